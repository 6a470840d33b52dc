"""Facts leave the core as frozen records; every backend here is a listener."""
