"""What the daemon writes on the answers that pass it, as their headers in whatever library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENVELOPE = "x-error-envelope"
SHOULD_RETRY = "x-should-retry"


def is_response(value: object) -> bool:
    """Whether this is an HTTP answer of some client, by the name of its class.

    A result may be anything, and reading an attribute of a lazy one may ask a server.
    """
    return any(kind.__name__.endswith("Response") for kind in type(value).__mro__)


def header_of(headers: Any, name: str) -> str | None:
    """A header, or None: absent, or these are no headers.

    Args:
        headers: a mapping that knows no case, as those of HTTP clients, or one in lower case.
        name: in lower case.
    """
    if not isinstance(headers, Mapping) and not hasattr(type(headers), "items"):
        return None
    try:
        value = headers.get(name)
    except Exception:  # noqa: BLE001 - the containers of many libraries
        return None
    return value if isinstance(value, str) else None
