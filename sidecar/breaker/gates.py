"""All gates of one provider, by key: the throttle gate and the spent budget of each.

A gate is made by the first throttle of its key and forgotten when nothing of it matters any more,
so that a provider whose upstream refuses nobody has none, and its calls pay nothing. Credentials
and models come from callers: their number is bounded, least recently used out first, and a key
that cannot be kept is not gated, which costs a refusal by the upstream and no call.

As for breakers, a fault in here costs no call: it is counted, and the call goes on.
"""

from __future__ import annotations

import itertools
import random as random_numbers
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, ParamSpec, TypeVar

from sidecar.breaker.admission import Faults
from sidecar.breaker.gating import (
    GateSettings,
    GateSnapshot,
    Hint,
    LimitKey,
    QuotaMode,
    QuotaSnapshot,
    Shed,
    Spent,
)
from sidecar.breaker.quota import Quota
from sidecar.breaker.saved import FAR, KeyWait, SavedLimit, SpentBudget
from sidecar.breaker.shedding import Gate, Ticket

KEYS: Final = 1024
"""Keys a provider has at most."""

P = ParamSpec("P")
Result = TypeVar("Result")


class Limit:
    """What is known of one key.

    Attributes:
        gate: its throttle gate.
        number: of its credential among those of the same subject.
        quota: its spent budget; None while there is one to spend.
    """

    __slots__ = ("gate", "number", "quota")

    def __init__(self, gate: Gate, number: int) -> None:
        self.gate = gate
        self.number = number
        self.quota: Quota | None = None

    def is_idle(self, now: float) -> bool:
        """Does it neither hold nor refuse anything?"""
        return self.quota is None and self.gate.is_idle(now)

    def is_disposable(self, now: float) -> bool:
        """Would forgetting it change nothing that matters?"""
        known = self.quota is not None and not self.quota.is_stale(now)
        return not known and self.gate.is_disposable(now)


class Gates:
    """The limits of one provider. Times are monotonic seconds.

    Args:
        name: of the provider.
        settings: its `shedding`.
        faults: counts what goes wrong in here.
        accepted: tells how many calls a second of a subject went well lately.
        random: yields numbers in [0, 1) for the spread of waits.

    Attributes:
        limits: what is known, by key; empty while nobody is held up, and then calls pay nothing.
    """

    __slots__ = ("_accepted", "_faults", "_random", "limits", "name", "settings")

    def __init__(
        self,
        name: str,
        settings: GateSettings,
        faults: Faults,
        accepted: Callable[[str, float], float] = lambda _subject, _now: 0.0,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        self.name = name
        self.settings = settings
        self._faults = faults
        self._accepted = accepted
        self._random = random
        self.limits: OrderedDict[LimitKey, Limit] = OrderedDict()

    def __len__(self) -> int:
        return len(self.limits)

    # What calls ask and tell. None of these raises.

    def spent(self, key: LimitKey, now: float) -> Spent | None:
        """Is the budget of this key known to be spent? Asking may use up the turn to ask again."""
        return self._guarded(None, self._ask_quota, key, now)

    def _ask_quota(self, key: LimitKey, now: float) -> Spent | None:
        limit = self._find(key)
        return None if limit is None or limit.quota is None else limit.quota.ask(now)

    def spent_since(self, key: LimitKey, at: float, now: float) -> Spent | None:
        """Did the budget of this key turn out to be spent after that time? Uses up no turn."""
        return self._guarded(None, self._spent_since, key, at, now)

    def _spent_since(self, key: LimitKey, at: float, now: float) -> Spent | None:
        limit = self._find(key)
        return None if limit is None or limit.quota is None else limit.quota.said_since(at, now)

    def gate(self, key: LimitKey) -> Gate | None:
        """The throttle gate of a key, if it has one."""
        limit = self._guarded(None, self._find, key)
        return None if limit is None else limit.gate

    def enter(self, key: LimitKey, now: float) -> tuple[Gate, Ticket] | Shed | None:
        """Let a call on (None), give it a place in a gate's queue, or shed it."""
        return self._guarded(None, self._enter, key, now)

    def _enter(self, key: LimitKey, now: float) -> tuple[Gate, Ticket] | Shed | None:
        limit = self._find(key)
        if limit is None:
            return None
        found = limit.gate.enter(now)
        return (limit.gate, found) if isinstance(found, Ticket) else found

    def would_shed(self, key: LimitKey, now: float) -> bool:
        """What `enter` would have said to a call that goes on in any case: True if shed."""
        return self._guarded(False, self._would_shed, key, now)  # noqa: FBT003

    def _would_shed(self, key: LimitKey, now: float) -> bool:
        limit = self._find(key)
        return limit is not None and limit.gate.observe(now) is not None

    def throttled(self, key: LimitKey, now: float, admitted_at: float, hint: Hint | None) -> bool:
        """The upstream refused a call for its rate; True if that counts as a failure by now."""
        return self._guarded(False, self._throttled, key, now, admitted_at, hint)  # noqa: FBT003

    def _throttled(self, key: LimitKey, now: float, admitted_at: float, hint: Hint | None) -> bool:
        limit = self._obtain(key, now)
        if limit is None:
            return False
        return limit.gate.throttled(now, admitted_at, hint)

    def exhausted(self, key: LimitKey, now: float, hint: Hint) -> None:
        """An answer that is no throttle said that nothing remains until a reset."""
        self._guarded(None, self._exhausted, key, now, hint)

    def _exhausted(self, key: LimitKey, now: float, hint: Hint) -> None:
        limit = self._obtain(key, now)
        if limit is not None:
            limit.gate.exhausted(now, hint)

    def answered(self, key: LimitKey, now: float, admitted_at: float, *, accepted: bool) -> None:
        """The upstream answered without a throttle; `accepted` if it did what it was asked."""
        self._guarded(None, self._answered, key, now, admitted_at, accepted)

    def _answered(self, key: LimitKey, now: float, admitted_at: float, accepted: bool) -> None:  # noqa: FBT001
        limit = self._find(key)
        if limit is None:
            return
        limit.gate.answered(now, admitted_at, accepted=accepted)
        if accepted and limit.quota is not None and limit.quota.lifts(admitted_at):
            limit.quota = None

    def ran_out(self, key: LimitKey, now: float, code: str, resets_in: float | None) -> None:
        """The upstream said that the budget of this key is spent."""
        self._guarded(None, self._ran_out, key, now, code, resets_in)

    def _ran_out(self, key: LimitKey, now: float, code: str, resets_in: float | None) -> None:
        if self.settings.quota_mode is QuotaMode.OFF:
            return
        limit = self._obtain(key, now)
        if limit is None:
            return
        if limit.quota is None:
            limit.quota = Quota(code, resets_in, self.settings.recheck, now)
        else:
            limit.quota.spent(code, resets_in, now)

    def told_nothing(self, key: LimitKey, now: float, asked_at: float) -> None:
        """A call that had asked was given up: its turn to ask again is another's."""
        self._guarded(None, self._told_nothing, key, now, asked_at)

    def _told_nothing(self, key: LimitKey, now: float, asked_at: float) -> None:
        limit = self.limits.get(key)
        if limit is not None and limit.quota is not None:
            limit.quota.returned(asked_at, now)

    # What time and people do.

    def tick(self, now: float) -> None:
        """Let happen what was due, and forget what does not matter any more."""
        self._guarded(None, self._tick, now)

    def _tick(self, now: float) -> None:
        forgotten = [key for key, limit in self.limits.items() if limit.is_disposable(now)]
        for key in forgotten:
            del self.limits[key]

    def reset(self, subject: str | None, now: float) -> None:
        """Open the gates of one subject, or all of them (None)."""
        for key, limit in self.limits.items():
            if subject is None or key.subject == subject:
                limit.quota = None
                limit.gate.reset(now)

    def configure(self, settings: GateSettings, now: float) -> None:
        """Take other settings; what is closed stays closed."""
        self.settings = settings
        for limit in self.limits.values():
            limit.gate.configure(settings, now)
            if settings.quota_mode is QuotaMode.OFF:
                limit.quota = None
            elif limit.quota is not None:
                limit.quota.configure(settings.recheck)

    # What outlives the process.

    def saved(self, now: float) -> tuple[SavedLimit, ...]:
        """The waits that the upstream named and the budgets that it said are spent."""
        found = (_saved(key, limit, now) for key, limit in self.limits.items())
        return tuple(one for one in found if one is not None)

    def restore(self, saved: Iterable[SavedLimit], now: float) -> int:
        """Take up what an earlier process knew, as far as it still holds.

        Returns:
            Of how many keys anything did.
        """
        return sum(self._resume(one, now) for one in saved)

    def _resume(self, saved: SavedLimit, now: float) -> bool:
        wait, budget = saved.wait, saved.budget
        gated = budget is not None and self.settings.quota_mode is not QuotaMode.OFF
        if not gated and (wait is None or wait.until <= now):
            return False
        limit = self._obtain(LimitKey(bytes.fromhex(saved.credential), saved.subject), now)
        if limit is None:
            return False
        if wait is not None:
            limit.gate.resume(wait.until, Hint(wait.hint, wait.source), now)
        if budget is not None and gated:
            resets_in = None if budget.until is None else max(budget.until - now, 0.0)
            limit.quota = Quota(budget.code, resets_in, self.settings.recheck, now)
            limit.quota.resume(budget.next_check, now)
        return True

    # What is shown.

    def is_shedding(self, now: float) -> bool:
        """Does any key refuse or hold calls, as people would say that a provider sheds?"""
        gating = self.settings.quota_mode is QuotaMode.GATE
        return any(
            limit.gate.is_closed(now) or (gating and limit.quota is not None)
            for limit in self.limits.values()
        )

    def gate_snapshots(self, now: float) -> list[GateSnapshot]:
        """The throttle gates, by key."""
        return [limit.gate.snapshot(now) for limit in self._sorted() if limit.gate.was_closed]

    def quota_snapshots(self) -> list[QuotaSnapshot]:
        """The spent budgets, by key."""
        return [
            limit.quota.snapshot(limit.gate.key)
            for limit in self._sorted()
            if limit.quota is not None
        ]

    def _sorted(self) -> list[Limit]:
        return sorted(self.limits.values(), key=lambda limit: limit.gate.key)

    # The table.

    def _find(self, key: LimitKey) -> Limit | None:
        limit = self.limits.get(key)
        if limit is not None:
            self.limits.move_to_end(key)
        return limit

    def _obtain(self, key: LimitKey, now: float) -> Limit | None:
        limit = self._find(key)
        if limit is None and self._has_room(now):
            number = self._number(key.subject)
            shown = f"{self.name}/{key.subject}" + (f"#{number}" if number > 1 else "")
            accepted = self._accepted(key.subject, now)
            gate = Gate(shown, self.settings, now=now, accepted=accepted, random=self._random)
            limit = self.limits[key] = Limit(gate, number)
        return limit

    def _number(self, subject: str) -> int:
        """Tells the credentials of one subject apart, none of which is ever shown."""
        taken = {limit.number for key, limit in self.limits.items() if key.subject == subject}
        return next(number for number in itertools.count(1) if number not in taken)

    def _has_room(self, now: float) -> bool:
        if len(self.limits) < KEYS:
            return True
        spare = None
        for key, limit in self.limits.items():
            if limit.is_idle(now):
                spare = key
                break
            if spare is None and not limit.gate.queued:
                spare = key
        if spare is None:
            return False
        # An idle key, else the one that was not used for longest and where nobody waits.
        del self.limits[spare]
        return True

    def _guarded(
        self, otherwise: Result, do: Callable[P, Result], *args: P.args, **more: P.kwargs
    ) -> Result:
        try:
            return do(*args, **more)
        except Exception as error:  # noqa: BLE001  # the boundary: no fault costs a call
            self._faults.count(error)
            return otherwise


def _saved(key: LimitKey, limit: Limit, now: float) -> SavedLimit | None:
    wait = budget = None
    named = limit.gate.named_wait(now)
    if named is not None:
        until, hint = named
        wait = KeyWait(until=until, hint=min(hint.seconds, FAR), source=hint.source[:64])
    if limit.quota is not None:
        quota = limit.quota
        budget = SpentBudget(code=quota.code[:64], until=quota.until, next_check=quota.next_check)
    if wait is None and budget is None:
        return None
    credential = key.credential.hex()
    return SavedLimit(credential=credential, subject=key.subject, wait=wait, budget=budget)
