"""Turns what was seen into an error envelope and a verdict. Pure: no I/O, no clock, no logging."""
