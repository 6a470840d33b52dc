"""The daemon's own refusals and errors, said on purpose.

An agent has to get along with these too: a breaker that is open, a slot that is far away, a budget
that is spent. Nothing here speaks for the daemon: the same exceptions are raised that it raises in
earnest, and what answers them is the code that answers all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from sidecar.breaker.model import Kind
from sidecar.config.fault_rules import OWN_CODES
from sidecar.envelope.model import Verdict
from sidecar.proxy.failures import Refused, UpstreamFailed

if TYPE_CHECKING:
    from sidecar.faults.injector import Fault

_NOBODYS: Final = frozenset({"total_timeout", "connection_closed"})
"""The codes of failures that the provider is not blamed for."""

_DETAILS: Final[Mapping[str, str]] = {
    "breaker_open": "the breaker is open",
    "shed": "no slot is free soon enough",
    "quota": "the budget is known to be spent",
    "bulkhead": "all places are taken",
    "local_network": "this machine has no way out",
    "draining": "the daemon is stopping",
}


def raise_own(fault: Fault) -> NoReturn:
    """Ends a call as the daemon itself ends one.

    Raises:
        Refused: for what it never sends.
        UpstreamFailed: for what it could not get an answer to.
    """
    decision = fault.decision
    assert decision is not None
    known = OWN_CODES.get(decision, ())
    code = fault.rule.code or (known[0] if known else None)
    told = fault.rule.message or _DETAILS.get(decision, decision.replace("_", " "))
    detail = f"{told} (an injected fault)"
    if decision in ("connect_error", "timeout", "upstream_error"):
        raise UpstreamFailed(
            decision,
            code or decision,
            detail,
            kind=_kind(decision),
            verdict=Verdict.NEUTRAL if code in _NOBODYS else Verdict.FAILURE,
            sent=decision != "connect_error",
        )
    wait = fault.wait if decision in ("breaker_open", "shed", "local_network") else None
    raise Refused(
        decision,
        detail,
        code=code,
        retry_after=wait,
        close=decision in ("draining", "internal_error"),
    )


def _kind(decision: str) -> Kind:
    match decision:
        case "connect_error":
            return Kind.CONNECTION
        case "timeout":
            return Kind.TIMEOUT
    return Kind.ANSWER
