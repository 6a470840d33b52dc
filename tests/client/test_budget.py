"""A budget over all calls."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client import Budget

from .clock import Clock


def test_a_burst_then_a_tenth_then_a_trickle() -> None:
    clock = Clock()
    budget = Budget(0.1, per_second=0.5, burst=3, clock=clock)
    assert [budget.take() for _ in range(4)] == [True, True, True, False]
    for _ in range(10):
        budget.called()
    assert [budget.take() for _ in range(2)] == [True, False]
    clock.now += 2
    assert [budget.take() for _ in range(2)] == [True, False]
    clock.now += 1000
    assert [budget.take() for _ in range(4)] == [True, True, True, False]


def test_a_clock_that_goes_back_gives_nothing() -> None:
    clock = Clock()
    budget = Budget(0, burst=1, clock=clock)
    assert budget.take()
    clock.now -= 100
    assert not budget.take()


@pytest.mark.parametrize("wrong", [{"ratio": -1}, {"per_second": -1}, {"burst": 0.5}])
def test_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Budget(**wrong)  # type: ignore[arg-type]


@given(
    st.lists(st.sampled_from(["called", "take", "later"]), max_size=300),
    st.floats(0, 1),
    st.floats(0, 5),
    st.floats(1, 20),
)
def test_it_holds(steps: list[str], ratio: float, per_second: float, burst: float) -> None:
    clock = Clock()
    budget = Budget(ratio, per_second=per_second, burst=burst, clock=clock)
    calls = taken = 0
    for step in steps:
        if step == "called":
            calls += 1
            budget.called()
        elif step == "take":
            taken += budget.take()
        else:
            clock.now += 0.5
        passed = clock.now - 1000.0
        assert taken <= burst + ratio * calls + per_second * passed + 1e-6


def test_threads_share_it() -> None:
    budget = Budget(0, per_second=0, burst=100)
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: budget.take(), range(1000))) == 100


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_is_not_held_by_a_thread_of_its_parent() -> None:
    budget = Budget()
    holding, ended = threading.Event(), threading.Event()

    def hold() -> None:
        with budget._lock:
            holding.set()
            ended.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait(20)
    child = os.fork()
    if not child:
        os._exit(0 if budget.take() else 1)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        ended.set()
        thread.join()
