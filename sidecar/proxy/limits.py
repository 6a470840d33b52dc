"""The sizes that both sides of the data plane share."""

MAX_LINE = 64 * 1024
"""Bytes of one header line or request target; contract: up to 64 KiB pass."""

MAX_HEADERS = 256
"""Header lines of one message."""

READ_SIZE = 64 * 1024
"""Bytes buffered per direction before the sender is made to wait (twice this at most)."""
