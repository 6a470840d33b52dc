"""The few errors of the data plane, each with what the caller is told.

`Refused`: the daemon will not forward the call. `UpstreamFailed`: it tried and got no answer.
`CallerGone`: nobody is left to tell. Library exceptions are turned into these at the one place
where the library is called.
"""

from __future__ import annotations

from sidecar.breaker.model import Kind
from sidecar.envelope.model import Verdict


class Refused(Exception):
    """A call that the daemon answers itself, having sent nothing.

    Attributes:
        decision: one of the contract's decisions.
        detail: the sentence for the envelope; quotes nothing of the request.
        code: the envelope's code where it is not the decision's own word.
        retry_after: seconds until it is worth asking again, where that is known.
        close: the connection cannot be used any further.
    """

    def __init__(
        self,
        decision: str,
        detail: str,
        *,
        code: str | None = None,
        retry_after: float | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(decision, detail)
        self.decision = decision
        self.detail = detail
        self.code = code
        self.retry_after = retry_after
        self.close = close


class UpstreamFailed(Exception):
    """The upstream gave no usable answer.

    Attributes:
        decision: `connect_error`, `timeout`, `upstream_error` or `local_network`.
        code: the envelope's code.
        detail: the sentence for the envelope.
        kind: which breaker it concerns and what closes it again.
        verdict: `failure`, or `neutral` where the upstream is not to blame.
        sent: the request (or some of it) had left when the failure came.
        names_this_machine: it can only be the trouble of the machine that this runs on.
        unknown_issuer: a certificate was issued by nobody that is known here.
    """

    def __init__(
        self,
        decision: str,
        code: str,
        detail: str,
        *,
        kind: Kind = Kind.ANSWER,
        verdict: Verdict = Verdict.FAILURE,
        sent: bool = False,
        names_this_machine: bool = False,
        unknown_issuer: bool = False,
    ) -> None:
        super().__init__(decision, code, detail)
        self.decision = decision
        self.code = code
        self.detail = detail
        self.kind = kind
        self.verdict = verdict
        self.sent = sent
        self.names_this_machine = names_this_machine
        self.unknown_issuer = unknown_issuer


class CallerGone(Exception):
    """The caller closed the connection, or neither read nor sent for `timeouts.client`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
