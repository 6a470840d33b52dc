"""Turns verdicts and the time into admission. Pure: no I/O, no clock, no logging, no HTTP."""
