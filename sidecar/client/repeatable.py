"""Which failures say by themselves that nothing was done, so that any call may be repeated.

A failure that leaves open what the other side did (a timeout, a cut connection, a 5xx) is repeated
only where the caller says that the call is idempotent or where it carries an idempotency key. The
failures below leave nothing open:

| the failure | why nothing was done |
|---|---|
| class `validation`, `authentication`, `rate_limit` | turned away at the door |
| source `database`, `retry_after` 0 | the work was undone, or the handle was dead before it began |
| code `connection_closed`, source not `http` | the handle was dead before the call |
| `raw.sent` is false | the request had not left |
| `raw.phase` is `connect` | there was no connection yet to send it on |
| a code of the table below | there was no connection, or it was refused before it was begun |

A function that is retried as a whole is one call: one transaction, or one request. What it did
before the step that failed is repeated with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sidecar.envelope.model import Envelope

_TURNED_AWAY = frozenset({"validation", "authentication", "rate_limit"})

NEVER_BEGUN: Final = {
    "connection_refused": "nobody was listening",
    "dns_failure": "the address was not found",
    "connect_timeout": "there was no connection",
    "pool_timeout": "no connection became free",
    "max_clients": "the server takes no more connections",
    "local_network_down": "this machine has no way out",
    "model_loading": "the model does not run yet",
    "breaker_open": "the daemon did not let it through",
    "shed": "the daemon did not let it through",
    "bulkhead_full": "the daemon did not let it through",
    "draining": "the daemon did not let it through",
}
"""Codes of failures before the call was begun, and why they are."""


def undone(envelope: Envelope) -> str | None:
    """Why a failed call has certainly not been done; None if it may have been.

    Args:
        envelope: of the failure.
    """
    if str(envelope.class_) in _TURNED_AWAY:
        return f"{envelope.class_}: turned away"
    raw = envelope.raw or {}
    if raw.get("sent") is False:
        return "the request had not left"
    if raw.get("phase") == "connect":
        return "there was no connection yet"
    if str(envelope.source) == "database" and envelope.retry_after == 0:
        return "undone, or never begun"
    if envelope.code == "connection_closed" and str(envelope.source) != "http":
        # The daemon's own word for a reused connection is of another kind: it had written there.
        return "the handle was dead before the call"
    return NEVER_BEGUN.get(envelope.code)
