"""What a reading makes of breakers that come and go."""

from __future__ import annotations

from types import SimpleNamespace

from sidecar.breaker.model import Mode, State
from sidecar.envelope.model import Verdict
from sidecar.telemetry import instruments, readings
from sidecar.telemetry.bounds import OTHER
from sidecar.telemetry.figures import ProviderFigures


def shot(model: str, open_seconds: float, state: State = State.CLOSED) -> SimpleNamespace:
    return SimpleNamespace(
        key=f"up/{model}",
        state=state,
        mode=Mode.ENFORCE,
        window=SimpleNamespace(**dict.fromkeys([verdict.value for verdict in Verdict], 0)),
        consecutive_failures=0,
        probes_in_flight=0,
        open_seconds=open_seconds,
        retry_after=None,
    )


def open_times(own: ProviderFigures, *shots: SimpleNamespace) -> dict[str, float]:
    samples = {one.name: [] for one in instruments.INSTRUMENTS}
    readings._of_breakers(samples, "up", own, shots)
    return {
        model: value for (_, model), value in samples[instruments.BREAKER_OPEN_TIME.name] if value
    }


def test_the_open_time_of_many_never_falls() -> None:
    """A counter that falls is one that began anew: `rate` would add all of it once more."""
    own = ProviderFigures()
    assert open_times(own, shot("a", 5000.0), shot("b", 100.0)) == {OTHER: 5000.0}
    # One is forgotten, as the least used ones are.
    assert open_times(own, shot("a", 5000.0)) == {OTHER: 5000.0}
    # Two that are open at once are so for one second in a second, and no more.
    both = [shot("a", 5001.0, State.OPEN), shot("c", 1.0, State.OPEN)]
    assert open_times(own, *both) == {OTHER: 5001.0}
    assert open_times(own) == {OTHER: 5001.0}


def test_the_open_time_of_one_survives_its_breaker() -> None:
    own = ProviderFigures()
    own.subject("m", telling=True)
    assert open_times(own, shot("m", 30.0)) == {"m": 30.0}
    assert open_times(own) == {"m": 30.0}
    # It is made anew, and opens again.
    assert open_times(own, shot("m", 0.0)) == {"m": 30.0}
    assert open_times(own, shot("m", 12.0, State.OPEN)) == {"m": 42.0}
