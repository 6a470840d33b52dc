"""Measures the daemon beside other proxies, in one run on one machine: `python -m bench`."""
