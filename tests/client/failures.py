"""Failures of every class, as they come out of a guard."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from sidecar.client.errors import SidecarError
from sidecar.envelope.model import Envelope, ErrorClass, Source


def envelope(class_: str = "transient", **changes: Any) -> Envelope:
    fields: dict[str, Any] = {
        "class_": ErrorClass(class_),
        "source": Source.HTTP,
        "code": class_,
        "message": "it failed",
        "retryable": class_ in {"transient", "rate_limit"},
        "correlation_id": "w-1",
    }
    return Envelope(**fields | changes)


def failure(class_: str = "transient", **changes: Any) -> SidecarError:
    return SidecarError(envelope(class_, **changes))


def expired() -> SidecarError:
    return failure("authentication", code="token_expired", retryable=True)


def deadlock() -> SidecarError:
    return failure(source=Source.DATABASE, code="40P01", retry_after=0.0)


def no_such_table() -> None:
    """A real mistake of the caller's, out of a real driver."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("select * from nowhere")
