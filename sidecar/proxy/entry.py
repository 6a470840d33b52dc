"""How one call is let in, and what those who let it in hear of its end.

Asked, in the contract's order: this machine's network, the budget of the call's key, its breaker,
the slot of its key, its place at the provider. Who waits for a slot or a place holds no permit
meanwhile, and asks all of them again after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar import clock as machine
from sidecar.breaker.model import Mode, Outcome, Refusal
from sidecar.envelope.headers import Headers
from sidecar.envelope.model import Verdict
from sidecar.proxy.failures import Refused
from sidecar.proxy.hints import nothing_left
from sidecar.proxy.passage import Passage, concerns_gates
from sidecar.proxy.places import wait_for_place
from sidecar.proxy.sigv4 import REPLACED

if TYPE_CHECKING:
    from sidecar.breaker.admission import Admission
    from sidecar.breaker.bulkhead import Bulkhead
    from sidecar.proxy.incoming import Incoming
    from sidecar.proxy.plane import DataPlane
    from sidecar.proxy.runtime import Runtime
    from sidecar.telemetry.trace import CallTrace


class Entry:
    """One call before those who may refuse it.

    Args:
        plane: what all calls share.
        runtime: the provider.
        incoming: the request.
        began: when the call did, monotonic seconds.
        trace: the call's place in a trace; None while tracing is off.

    Attributes:
        runtime: the provider.
        subject: the model or the route that is asked for; None until it was read.
        admission: the leave to go on; None until it was given.
        key: the breaker's key that gave or refused it.
        refusal: why the breaker refused the call.
        waited: seconds for which the call was held here; None if it was not.
        aside: everything was given back, for a fault that is played.
    """

    __slots__ = (
        "_admitted_at",
        "_began",
        "_bulkhead",
        "_incoming",
        "_passage",
        "_place_would_refuse",
        "_plane",
        "_trace",
        "admission",
        "aside",
        "key",
        "refusal",
        "runtime",
        "subject",
        "waited",
    )

    def __init__(
        self,
        plane: DataPlane,
        runtime: Runtime,
        incoming: Incoming,
        began: float,
        trace: CallTrace | None,
    ) -> None:
        self._admitted_at = 0.0
        self._began = began
        self._bulkhead: Bulkhead | None = None
        self._incoming = incoming
        self._passage: Passage | None = None
        self._place_would_refuse = False
        self._plane = plane
        self._trace = trace
        self.admission: Admission | None = None
        self.aside = False
        self.key: str | None = None
        self.refusal: Refusal | None = None
        self.runtime = runtime
        self.subject: str | None = None
        self.waited: float | None = None

    # -- on the way in ----------------------------------------------------------------------

    async def enter(self) -> None:
        """Asks everybody who may refuse the call, and waits where it has to.

        A call that stood aside is one like any other again; its slot it had.

        Raises:
            Refused: one of them does.
        """
        runtime = self.runtime
        if runtime.gates.limits and not self.aside:
            await self._pass_gates()
        else:
            self.aside = False
            self._admit()
        if runtime.bulkhead.enter():
            self._bulkhead = runtime.bulkhead
        else:
            await self._wait_for_place()

    def check_again(self) -> None:
        """What was said while the call waited concerns it too.

        Raises:
            Refused: `local_network`, `quota` or `shed`.
        """
        if self._plane.watch.network.down:
            self._plane.watch.check(self.runtime)
        passage = self._passage_if_any()
        if passage is not None and self.admission is not None:
            passage.check_again(self.admission.mode, self._began)

    @property
    def patience(self) -> float:
        """Seconds that the call may still be held here: its waits share one `max_wait`."""
        return max(self.runtime.config.shedding.max_wait - (self.waited or 0.0), 0.0)

    @property
    def is_throttled(self) -> bool:
        """Does the upstream throttle the call's key?"""
        passage = self._passage_if_any()
        return passage is not None and passage.is_throttled

    async def _pass_gates(self) -> None:
        """As `_admit`, past the gates of the call's key: budget, breaker, slot, in this order."""
        runtime = self.runtime
        if runtime.retired:
            self._admit()
            return
        plane, now = self._plane, machine.monotonic()
        if plane.watch.network.down:
            plane.watch.check(runtime)
        passage = self._passage = self._passage_of()
        self.key, _, mode = plane.registry.peek(runtime.name, self.subject, now)
        passage.check_budget(mode)
        self._admit()
        assert self.admission is not None
        try:
            held = passage.enter(self.admission.mode)
        except Refused:
            self.admission.release(machine.monotonic())
            raise
        if held is not None:
            # What waits holds no permit: it may be a probe's, and what it is worth may change.
            self.admission.release(machine.monotonic())
            try:
                await passage.turn(held, plane.loop, plane.gate_fault)
            finally:
                self.waited = machine.monotonic() - now
            self._admit()
            self.check_again()
        passage.admitted()

    def _passage_of(self) -> Passage:
        runtime = self.runtime
        set_headers = {name.lower() for name, _ in runtime.set_headers}
        if runtime.signer is not None:
            # A caller's signature differs with each request; the limit is the daemon's own key's.
            set_headers |= REPLACED
        key = self._incoming.limit_key(
            self.subject or "", set_headers, runtime.dialect.secret_paths
        )
        return Passage(runtime.gates, key, self._admitted_at)

    def _passage_if_any(self) -> Passage | None:
        if not self.runtime.gates.limits or self.admission is None:
            return None
        self._passage = self._passage or self._passage_of()
        return self._passage

    def _admit(self) -> None:
        """Asks the network and the breaker."""
        runtime, plane = self.runtime, self._plane
        if plane.watch.network.down:
            plane.watch.check(runtime)
        now = self._admitted_at = machine.monotonic()
        if runtime.retired:
            # Taken away by a reload while this call was being read: no breaker is its own any more.
            self.key = f"{runtime.name}/{self.subject}"
            return
        tracing = plane.tracing
        tracing.current = self._trace
        admitted = plane.registry.admit(runtime.name, self.subject, now)
        tracing.current = None
        self.key = admitted.key
        if isinstance(admitted, Refusal):
            self.refusal = admitted
            raise Refused("breaker_open", admitted.reason, retry_after=admitted.retry_after)
        self.admission = admitted

    async def _wait_for_place(self) -> None:
        """Waits until one of the provider's calls has ended; not for long, and not with all.

        Raises:
            Refused: `bulkhead`, or whatever else the call meets after its wait.
        """
        bulkhead, admission, since = self.runtime.bulkhead, self.admission, machine.monotonic()
        if admission is None or admission.mode is not Mode.ENFORCE:
            bulkhead.force()
            self._bulkhead = bulkhead
            self._place_would_refuse = admission is not None and admission.mode is Mode.OBSERVE
            return
        admission.release(since)
        try:
            await wait_for_place(bulkhead, self.patience)
        finally:
            self.waited = (self.waited or 0.0) + machine.monotonic() - since
        self._bulkhead = bulkhead
        self._admit()
        self.check_again()

    # -- on the way out ---------------------------------------------------------------------

    @property
    def would_refuse(self) -> bool:
        """Would one of those who only observe have refused the call?"""
        admission, passage = self.admission, self._passage
        breaker = admission is not None and admission.would_refuse is not None
        if breaker or self._place_would_refuse:
            return True
        return passage is not None and passage.would_refuse

    def accepted(self, found: Headers) -> None:
        """A good answer has begun, or one that nobody judges: its headers."""
        runtime = self.runtime
        if not (runtime.gates.limits or runtime.config.shedding.preempt) or self._is_off:
            return
        self._passage = self._passage or self._passage_of()
        self._passage.accepted()
        self.foresee(found)

    def foresee(self, found: Headers) -> None:
        """An answer that is no throttle may say that the next one would be: its headers."""
        if not self.runtime.config.shedding.preempt or self._is_off:
            return
        hint = nothing_left(found, machine.wall())
        if hint is not None:
            self._passage = self._passage or self._passage_of()
            self._passage.exhausted(hint)

    def settle(self, outcome: Outcome, *, counts: bool) -> Outcome:
        """Tells network, gates and breaker how the call ended.

        Args:
            outcome: as the answer, or its lack, was judged.
            counts: False for an injected fault that is to say nothing of the provider.

        Returns:
            What it came to: a failure while the network is down is nobody's, and a throttle may
            count as a failure.
        """
        runtime, told = self.runtime, outcome
        if not counts:
            told = Outcome(Verdict.NEUTRAL)
            if self._passage is not None and not self.aside:
                self._passage.settle(told)
        else:
            network = self._plane.watch.network
            if network.down and runtime.upstream.host is not None:
                outcome = network.judged(outcome, runtime.upstream.host)
            if runtime.gates.limits or (
                outcome.verdict is not Verdict.SUCCESS and concerns_gates(outcome)
            ):
                outcome = self._tell_gates(outcome)
            told = outcome
        admission = self.admission
        if admission is not None:
            tracing = self._plane.tracing
            tracing.current = self._trace
            admission.settle(told, machine.monotonic())
            tracing.current = None
        return outcome

    def _tell_gates(self, outcome: Outcome) -> Outcome:
        if self._passage is None:
            # A refusal before the gates says nothing to them, and a provider that is off has none.
            if self._is_off:
                return outcome
            self._passage = self._passage_of()
        return self._passage.settle(outcome)

    @property
    def _is_off(self) -> bool:
        return self.admission is None or self.admission.mode is Mode.OFF

    def step_aside(self) -> None:
        """Gives back at once what a real call could want: probe, place, question to a budget."""
        self.aside = True
        nothing = Outcome(Verdict.NEUTRAL)
        if self._passage is not None:
            self._passage.settle(nothing)
        if self.admission is not None:
            self.admission.settle(nothing, machine.monotonic())
        self._leave_place()

    def used(self) -> None:
        """An attempt was sent: the slot is nobody else's."""
        if self._passage is not None:
            self._passage.used()

    def leave(self, *, sent: bool) -> None:
        """The call is over: what it still holds is free.

        Args:
            sent: an attempt was made; else a slot that it waited for is the next one's.
        """
        if not sent and self._passage is not None:
            self._passage.unused()
        self._leave_place()

    def _leave_place(self) -> None:
        if self._bulkhead is not None:
            self._bulkhead.leave()
            self._bulkhead = None
