"""One breaker, a clock that is moved by hand, and short words for what a call can do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sidecar.breaker.breaker import Breaker, Permit
from sidecar.breaker.model import (
    Kind,
    Outcome,
    Refusal,
    Settings,
    Snapshot,
    State,
    Transition,
)
from sidecar.envelope.model import Verdict


class Scene:
    """A breaker of `openai/gpt-x` at t = 1000 s, without jitter unless asked for."""

    def __init__(self, *, random: Callable[[], float] = lambda: 0.0, **settings: object) -> None:
        self.now = 1000.0
        self.transitions: list[Transition] = []
        self.settings = Settings(**settings)
        self.breaker = Breaker(
            "openai/gpt-x", self.settings, self.transitions.append, now=self.now, random=random
        )

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def admit(self) -> Permit:
        permit = self.breaker.admit(self.now)
        assert isinstance(permit, Permit), permit
        return permit

    def refused(self) -> Refusal:
        refusal = self.breaker.admit(self.now)
        assert isinstance(refusal, Refusal), "the call was let through"
        return refusal

    def settle(self, permit: Permit, verdict: Verdict, **details: object) -> None:
        permit.settle(Outcome(verdict, **details), self.now)

    def call(self, verdict: Verdict, *, lasting: float = 0.0, **details: object) -> None:
        permit = self.admit()
        self.wait(lasting)
        self.settle(permit, verdict, **details)

    def succeed(self, times: int = 1) -> None:
        for _ in range(times):
            self.call(Verdict.SUCCESS)

    def fail(self, times: int = 1, **details: object) -> None:
        for _ in range(times):
            self.call(Verdict.FAILURE, **details)

    def trip(self, kind: Kind = Kind.ANSWER, **details: object) -> None:
        self.fail(self.settings.consecutive_failures, kind=kind, **details)
        assert self.state is State.OPEN

    def half_open(self, kind: Kind = Kind.ANSWER) -> None:
        self.trip(kind)
        self.wait(self.settings.open_for)
        assert self.state is State.HALF_OPEN

    @property
    def state(self) -> State:
        self.breaker.tick(self.now)
        return self.breaker.state

    @property
    def shown(self) -> Snapshot:
        return self.breaker.snapshot(self.now)

    @property
    def moves(self) -> list[tuple[State, State]]:
        return [(transition.old, transition.new) for transition in self.transitions]


@pytest.fixture
def scene() -> Callable[..., Scene]:
    return Scene
