"""One call's way past the gates of its key, and what its end tells them.

Made only where it is needed: for a call of a provider that has a gate, and for the answer that
makes one. What a gate decides is decided in `sidecar/breaker`; here it becomes a wait, a refusal,
or a word to the gate.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sidecar import clock as machine
from sidecar.breaker.gates import Gates
from sidecar.breaker.gating import Hint, LimitKey, QuotaMode, Shed
from sidecar.breaker.model import Kind, Mode, Outcome
from sidecar.breaker.shedding import Gate, Ticket
from sidecar.envelope.dialects.rule import BUDGET_WORDS
from sidecar.envelope.model import Verdict
from sidecar.proxy.failures import Refused
from sidecar.proxy.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Callable

SPENT = BUDGET_WORDS - {"request_over_budget"}
"""The budget words that concern a key; the one left out concerns a single request."""


def concerns_gates(outcome: Outcome) -> bool:
    """Does such an end make a gate where there is none?"""
    verdict = outcome.verdict
    return verdict is Verdict.THROTTLE or (verdict is Verdict.ALIVE and outcome.code in SPENT)


class Passage:
    """A call before the gates of its key.

    Args:
        gates: of the provider.
        key: of the call's limits.
        admitted_at: when the call went on, if it did already.

    Attributes:
        would_refuse: a gate that is only observed would have refused the call.
    """

    __slots__ = (
        "_accepted",
        "_admitted_at",
        "_asked_at",
        "_gates",
        "_key",
        "_slot_of",
        "would_refuse",
    )

    def __init__(self, gates: Gates, key: LimitKey, admitted_at: float) -> None:
        self._gates = gates
        self._key = key
        self._admitted_at = admitted_at
        self._asked_at: float | None = None
        self._accepted = False
        self._slot_of: Gate | None = None
        self.would_refuse = False

    # -- on the way in ----------------------------------------------------------------------

    def check_budget(self, mode: Mode) -> None:
        """Refuses a call whose budget is known to be spent, but for the one that asks again.

        Raises:
            Refused: `quota`, with the budget's own word.
        """
        if mode is Mode.OFF:
            return
        now = machine.monotonic()
        spent = self._gates.spent(self._key, now)
        if spent is None:
            self._asked_at = now
        elif mode is Mode.ENFORCE and self._gates.settings.quota_mode is QuotaMode.GATE:
            raise Refused("quota", spent.reason, code=spent.code)
        else:
            self.would_refuse = True

    def enter(self, mode: Mode) -> tuple[Gate, Ticket] | None:
        """Asks the throttle gate: None to go on, or a place in its queue.

        Raises:
            Refused: `shed`, with the wait until a slot.
        """
        now = machine.monotonic()
        if mode is Mode.OFF:
            return None
        if mode is Mode.OBSERVE:
            self.would_refuse |= self._gates.would_shed(self._key, now)
            return None
        found = self._gates.enter(self._key, now)
        if isinstance(found, Shed):
            raise _refused(found)
        return found

    async def turn(
        self,
        held: tuple[Gate, Ticket],
        loop: asyncio.AbstractEventLoop,
        on_fault: Callable[[Exception], None],
    ) -> None:
        """Waits for the slot of a call that is held.

        Raises:
            Refused: `shed`, with the wait that is left.
        """
        gate, ticket = held
        pump = gate.server
        if not isinstance(pump, Pump):
            pump = gate.server = Pump(gate, loop, on_fault)
        shed = await pump.turn(ticket)
        if shed is not None:
            raise _refused(shed)
        self._slot_of = gate

    def unused(self) -> None:
        """The call does not go on after all: a slot that it waited for is the next one's."""
        gate, self._slot_of = self._slot_of, None
        if gate is not None:
            gate.give_back()

    def used(self) -> None:
        """The call was sent: its slot is nobody else's."""
        self._slot_of = None

    def admitted(self) -> None:
        """The call goes on now."""
        self._admitted_at = machine.monotonic()

    @property
    def is_throttled(self) -> bool:
        """Are calls of the key held, shed or paced now?"""
        gate = self._gates.gate(self._key)
        return gate is not None and gate.is_closed(machine.monotonic())

    def check_again(self, mode: Mode, since: float) -> None:
        """Refuses a call that was let through and not sent yet: what has been said since?

        Args:
            mode: of the call's breaker.
            since: when the call began.

        Raises:
            Refused: `quota` or `shed`.
        """
        if mode is not Mode.ENFORCE:
            return
        gates, now = self._gates, machine.monotonic()
        asked_at = since if self._asked_at is None else self._asked_at
        spent = gates.spent_since(self._key, asked_at, now)
        if spent is not None and gates.settings.quota_mode is QuotaMode.GATE:
            raise Refused("quota", spent.reason, code=spent.code)
        gate = gates.gate(self._key)
        if gate is not None and (refused := gate.recheck(now)) is not None:
            raise _refused(refused)
        self.admitted()

    # -- what becomes of it -----------------------------------------------------------------

    def accepted(self) -> None:
        """A good answer has begun."""
        if not self._accepted:
            self._accepted = True
            self._gates.answered(self._key, machine.monotonic(), self._admitted_at, accepted=True)

    def exhausted(self, hint: Hint) -> None:
        """The answer says that nothing remains."""
        self._gates.exhausted(self._key, machine.monotonic(), hint)

    def settle(self, outcome: Outcome) -> Outcome:
        """Tells the gates how the call ended.

        Returns:
            What the breaker is to hear: a throttle that counts as a failure becomes one.
        """
        gates, key, now = self._gates, self._key, machine.monotonic()
        verdict = outcome.verdict
        if verdict is Verdict.THROTTLE:
            hint = None
            if outcome.retry_after is not None:
                hint = Hint(outcome.retry_after, outcome.hint_source or "body")
            if gates.throttled(key, now, self._admitted_at, hint):
                outcome = Outcome(Verdict.FAILURE, code=outcome.code, status=outcome.status)
        elif verdict is Verdict.ALIVE and outcome.code in SPENT:
            gates.ran_out(key, now, outcome.code or "", outcome.resets_in)
            return outcome
        elif verdict is Verdict.SUCCESS:
            self.accepted()
            return outcome
        elif verdict is not Verdict.NEUTRAL:
            if outcome.kind is not Kind.CONNECTION:
                gates.answered(key, now, self._admitted_at, accepted=False)
        elif self._asked_at is not None and not self._accepted:
            gates.told_nothing(key, now, self._asked_at)
        return outcome


def _refused(shed: Shed) -> Refused:
    return Refused("shed", shed.reason, retry_after=shed.wait)
