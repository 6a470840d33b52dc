"""The breakers of one provider: which one a call needs, and how many there may be.

Subjects (models, routes) come from callers, so their number and length are bounded. A breaker that
is needed, because it is not closed, has calls in flight or was set by hand, is never forgotten;
when all are needed, further subjects share one: no call is refused for it and nothing grows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import blake2b
from math import inf
from typing import Final

from sidecar.breaker.admission import Admission, Faults
from sidecar.breaker.breaker import Breaker
from sidecar.breaker.gates import Gates
from sidecar.breaker.model import (
    Mode,
    NoRoomError,
    ProviderSettings,
    Refusal,
    Scope,
    State,
    Transition,
    UnknownKeyError,
    UpstreamVerdict,
)
from sidecar.breaker.saved import SavedProvider

KEYS: Final = 1024
"""Breakers a provider has at most, its own and the shared one included."""

SHARED: Final = "~other"
"""The subject whose breaker further subjects share; a route of that name shares it too."""

SUBJECT_LENGTH: Final = 256
"""Characters of a subject that count."""


class Provider:
    """One provider's own breaker and those of its subjects, least recently used first.

    Attributes:
        gates: its rate limits and spent budgets, which live as long as its breakers do.
        live: no reload has taken it away.
        own: the breaker that hears of connections.
    """

    __slots__ = (
        "_faults",
        "_on_transition",
        "_random",
        "_shared",
        "_subjects",
        "gates",
        "live",
        "name",
        "own",
        "settings",
    )

    def __init__(
        self,
        name: str,
        settings: ProviderSettings,
        on_transition: Callable[[Transition], None],
        faults: Faults,
        *,
        now: float,
        random: Callable[[], float],
    ) -> None:
        self._on_transition = on_transition
        self._faults = faults
        self._random = random
        self._shared: Breaker | None = None
        self._subjects: OrderedDict[str, Breaker] = OrderedDict()
        self.live = True
        self.name = name
        self.settings = settings
        self.own = self._new(name, now)
        self.gates = Gates(name, settings.shedding, faults, self._accepted_lately, random)

    def admit(self, subject: str | None, now: float) -> Admission | Refusal:
        """Take both permits; if the second is refused, the first is given back."""
        own = self.own.admit(now)
        if isinstance(own, Refusal):
            return own
        if not subject or self.settings.scope is Scope.PROVIDER:
            return Admission(self._faults, self.name, self.own, None, own)
        try:
            breaker = self._subjects.get(subject)
            if breaker is None:
                breaker = self._make(subject, now)
            else:
                self._subjects.move_to_end(subject)
            permit = breaker.admit(now)
        except Exception:
            own.release(now)
            raise
        if isinstance(permit, Refusal):
            own.release(now)
            return permit
        return Admission(self._faults, breaker.key, breaker, own, permit)

    def peek(self, subject: str | None, now: float) -> tuple[str, State, Mode]:
        """The key, state and mode that a call would meet; makes nothing."""
        breaker = self.own if self.settings.scope is Scope.PROVIDER else self.find(subject)
        if breaker is None:
            key = f"{self.name}/{subject}"[: len(self.name) + 1 + SUBJECT_LENGTH]
            return key, State.CLOSED, self.settings.settings.mode
        breaker.tick(now)
        return breaker.key, breaker.state, breaker.mode

    def find(self, subject: str | None) -> Breaker | None:
        """The breaker that bears a subject's key, if there is one; no subject, no further name."""
        if not subject:
            return self.own
        if self.settings.scope is Scope.PROVIDER:
            return None
        if subject == SHARED:
            return self._shared
        return self._subjects.get(subject[:SUBJECT_LENGTH])

    def obtain(self, subject: str, now: float) -> Breaker:
        """The breaker that bears a subject's key, made if no call has made it yet.

        Raises:
            UnknownKeyError: if all subjects have one breaker.
            NoRoomError: if every place is taken; the shared one would hold other subjects too.
        """
        breaker = self.find(subject)
        if breaker is not None:
            return breaker
        if self.settings.scope is Scope.PROVIDER:
            raise UnknownKeyError(
                f"{self.name} has one breaker for all its calls (scope: provider), and its key is"
                f" {self.name}"
            )
        if subject != SHARED and not self._has_room():
            raise NoRoomError(
                f"{self.name} has {KEYS} breakers, and all are open, in use or held by hand"
            )
        breaker = self._make(subject, now)
        breaker.last_used = -inf  # an order is no use of the model
        return breaker

    def breakers(self) -> Iterator[Breaker]:
        """All of them, the provider's own first."""
        yield self.own
        yield from self._subjects.values()
        if self._shared is not None:
            yield self._shared

    def tick(self, now: float) -> None:
        """Let everything happen that was due by `now`."""
        # A listener may admit calls, and so make breakers, while it is told.
        for breaker in tuple(self.breakers()):
            breaker.tick(now)
        self.gates.tick(now)

    def verdict(self, now: float) -> UpstreamVerdict:
        """How the provider is, for people; refuses nothing."""
        self.tick(now)
        since = now - self.settings.settings.window
        models = routes = open_models = open_routes = 0
        any_open = False
        for breaker in self.breakers():
            is_open = breaker.state is State.OPEN
            any_open = any_open or is_open
            if breaker is self.own or breaker.last_used < since:
                continue
            if breaker.key.startswith("~", len(self.name) + 1):
                routes, open_routes = routes + 1, open_routes + is_open
            else:
                models, open_models = models + 1, open_models + is_open
        # An API without models is judged by its routes in their place.
        used, dark = (models, open_models) if models else (routes, open_routes)
        if self.own.state is State.OPEN or (used >= 2 and dark * 2 > used):
            return UpstreamVerdict.DOWN
        limited = any_open or self.gates.is_shedding(now)
        return UpstreamVerdict.DEGRADED if limited else UpstreamVerdict.UP

    def is_still(self, settings: ProviderSettings) -> bool:
        """Whether these settings are of the same upstream, cut into breakers the same way."""
        mine = self.settings
        return mine.upstream == settings.upstream and mine.scope is settings.scope

    def configure(self, settings: ProviderSettings, now: float) -> None:
        """Take other thresholds and keep the state."""
        if settings != self.settings:
            self.settings = settings
            for breaker in self.breakers():
                breaker.configure(settings.settings, now)
            self.gates.configure(settings.shedding, now)

    def _accepted_lately(self, subject: str, now: float) -> float:
        breaker = self.own if self.settings.scope is Scope.PROVIDER else self.find(subject)
        return 0.0 if breaker is None else breaker.accepted_lately(now)

    def saved(self, now: float) -> SavedProvider | None:
        """What of it must outlive the process; None if nothing must."""
        start = len(self.name) + 1
        found = [breaker.saved(now, breaker.key[start:] or None) for breaker in self.breakers()]
        kept = tuple(one for one in found if one is not None)
        limits = self.gates.saved(now)
        if not kept and not limits:
            return None
        return SavedProvider(identity=self._identity(), breakers=kept, limits=limits)

    def restore(self, saved: SavedProvider, now: float) -> int:
        """Take up what an earlier process knew, if it knew this upstream.

        Returns:
            How many breakers and keys took up something.
        """
        if saved.identity != self._identity():
            return 0
        taken = self.gates.restore(saved.limits, now)
        for one in saved.breakers:
            try:
                breaker = self.obtain(one.subject or "", now)
            except (UnknownKeyError, NoRoomError):
                continue
            taken += breaker.restore(one, now)
        return taken

    def _identity(self) -> str:
        """Tells whether it is still the same; an address may hold a secret, so it is hashed."""
        told = f"{self.settings.scope.value} {self.settings.upstream}".encode("utf-8", "replace")
        return blake2b(told, digest_size=16).hexdigest()

    def _make(self, subject: str, now: float) -> Breaker:
        if subject == SHARED:
            return self._share(now)
        subject = subject[:SUBJECT_LENGTH]
        known = self._subjects.get(subject)
        if known is not None:
            self._subjects.move_to_end(subject)
            return known
        if not self._has_room():
            return self._share(now)
        breaker = self._subjects[subject] = self._new(f"{self.name}/{subject}", now)
        return breaker

    def _has_room(self) -> bool:
        if len(self._subjects) < KEYS - 2:
            return True
        for subject, breaker in self._subjects.items():
            if breaker.disposable:
                del self._subjects[subject]
                return True
        return False

    def _share(self, now: float) -> Breaker:
        if self._shared is None:
            self._shared = self._new(f"{self.name}/{SHARED}", now)
        return self._shared

    def _new(self, key: str, now: float) -> Breaker:
        return Breaker(key, self.settings.settings, self._announce, now=now, random=self._random)

    def _announce(self, transition: Transition) -> None:
        if self.live:
            try:
                self._on_transition(transition)
            except Exception as error:  # noqa: BLE001  # a listener's fault is not the machine's
                self._faults.count(error)
