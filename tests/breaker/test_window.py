"""The window against a plain list of what happened."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sidecar.breaker.window import BUCKETS, Window
from sidecar.envelope.model import Verdict

STEPS = st.lists(
    st.tuples(
        st.one_of(st.just(0.0), st.floats(0, 3), st.floats(0, 1000)),
        st.sampled_from(list(Verdict)),
        st.booleans(),
    ),
    max_size=100,
)


def naive(events, seconds, now):
    """The events of the last ten whole buckets of a tenth of the window."""
    width = seconds / BUCKETS
    return [event for event in events if now // width - event[0] // width < BUCKETS]


@given(
    steps=STEPS,
    start=st.floats(0, 1e6),
    seconds=st.sampled_from([0.7, 1.0, 10.0, 60.0, 3600.0]),
    idle=st.floats(0, 100),
)
@hypothesis_settings(deadline=None)
def test_figures_equal_a_plain_list(steps, start, seconds, idle):
    window, events, now = Window(seconds), [], start
    for step, verdict, late in steps:
        now += step
        window.record(verdict, now, late=late)
        events.append((now, verdict, late))
    now += idle
    left = naive(events, seconds, now)
    figures = window.figures(now)
    for verdict in Verdict:
        count = sum(1 for _, other, _ in left if other is verdict)
        assert getattr(figures, verdict.value) == count
    decided = [verdict for _, verdict, _ in left if verdict in ("success", "failure")]
    expected = decided.count(Verdict.FAILURE) / len(decided) if decided else None
    assert figures.failure_ratio == expected
    timely = [verdict for _, verdict, late in left if not late]
    failures, successes = timely.count(Verdict.FAILURE), timely.count(Verdict.SUCCESS)
    assert window.deciding(now) == (failures, failures + successes)


def test_reads_roll_too():
    window = Window(10.0)
    window.record(Verdict.FAILURE, 100.0)
    assert window.figures(109.9).failure == 1
    assert window.figures(110.0).failure == 0
    assert window.figures(110.0).failure_ratio is None
    assert window.deciding(110.0) == (0, 0)


def test_a_burst_on_a_bucket_edge_leaves_as_one():
    window = Window(10.0)
    for verdict, moment in ((Verdict.FAILURE, 99.999), (Verdict.SUCCESS, 100.0)):
        for _ in range(1000):
            window.record(verdict, moment)
    assert window.figures(108.999).failure_ratio == 0.5
    assert window.figures(109.0).failure == 0
    assert window.figures(109.0).success == 1000


def test_an_earlier_time_counts_as_the_latest():
    window = Window(10.0)
    window.record(Verdict.FAILURE, 100.0)
    window.record(Verdict.FAILURE, 50.0)
    assert window.figures(0.0).failure == 2


@pytest.mark.parametrize("seconds", [5.0, 10.0, 20.0, 600.0])
def test_resizing_keeps_what_is_young_enough(seconds):
    window = Window(60.0)
    for second in range(600, 660):
        window.record(Verdict.FAILURE, float(second))
        window.record(Verdict.SUCCESS, float(second), late=True)
    other = window.resized(seconds, 660.0)
    kept = other.figures(660.0).failure
    # One old bucket (6 s) and one new one may round away, and nothing gets younger.
    assert min(seconds, 54) - 6 - seconds / BUCKETS <= kept <= min(seconds, 60)
    assert other.deciding(660.0) == (kept, kept)
    assert other.figures(660.0).success == kept
    assert other.figures(660.0 + seconds).failure == 0


def test_the_rate_of_what_is_young_is_not_spread_over_time_before_it() -> None:
    window = Window(60)
    for n in range(100):
        window.record(Verdict.SUCCESS, 1000 + n / 50)
    assert window.lately(1002, 2.0) == pytest.approx(50)
    assert window.lately(1002, 0.001) == 200, "no more than half a second's worth"
    assert window.lately(1002) < 20
