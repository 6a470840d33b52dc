"""The id that joins the steps of one piece of work, whichever tool each of them goes to.

It is kept in a context variable, so that it follows threads' contexts and asynchronous tasks by
themselves. Guards and retries send it to the daemon and put it into their envelopes; calls through
the daemon get it as the header `x-correlation-id`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sidecar import correlation

_current: ContextVar[str | None] = ContextVar("sidecar_correlation_id", default=None)


@contextmanager
def workflow(id: str | None = None) -> Iterator[str]:  # noqa: A002 - as callers say it
    """Give everything inside one correlation id.

    Args:
        id: the id, or None: that of the workflow around this one, else a new one. Letters other
            than `[A-Za-z0-9._:/-]` become `_`, and 128 are kept.

    Yields:
        The id.
    """
    own = correlation.sanitised(id) if id is not None else ""
    token = _current.set(own or correlation_id() or correlation.made())
    try:
        yield _current.get() or ""
    finally:
        _current.reset(token)


def correlation_id() -> str | None:
    """The id of the workflow that is going on here, or None outside of any."""
    return _current.get()


def current_or_made() -> str:
    """The id for one call: that of its workflow, else one of its own."""
    return _current.get() or correlation.made()
