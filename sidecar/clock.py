"""The one place that reads a clock.

Every decision takes its time as an argument, so that tests move it by hand. Durations use the
monotonic clock; the wall clock is for people and for what must outlive the process.
"""

import time

monotonic = time.monotonic
"""Seconds since some fixed point of this boot; never goes back."""

wall = time.time
"""Seconds since the epoch; may step."""
