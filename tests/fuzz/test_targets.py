"""A bounded look at every target: what is kept in the corpus, the seeds, and some changes of them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .__main__ import once
from .mutate import Mutator
from .targets import TARGETS, corpus, seeds

CORPUS = [(name, file, data) for name in TARGETS for file, data in corpus(name)]
EXAMPLES = {"answer": 120, "stream": 40, "report": 80, "config": 80}


@pytest.mark.parametrize(
    ("name", "data"),
    [(name, data) for name, _, data in CORPUS],
    ids=[f"{n}-{f}" for n, f, _ in CORPUS],
)
def test_the_corpus(name: str, data: bytes) -> None:
    """With the fuzzers' bound of time, which catches what hangs."""
    once(name, data)


@pytest.mark.parametrize("name", TARGETS)
def test_what_it_begins_with(name: str) -> None:
    """Some of the seeds here, the recorded cases have tests of their own."""
    for data in seeds(name)[:: 8 if name in ("answer", "record", "report") else 1]:
        TARGETS[name].check(data)


@pytest.mark.parametrize("name", TARGETS)
def test_what_becomes_of_it(name: str) -> None:
    target, known = TARGETS[name], seeds(name)

    @settings(
        max_examples=EXAMPLES.get(name, 150),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, len(known) - 1), st.randoms(use_true_random=False))
    def changed(which: int, random: Random) -> None:
        target.check(Mutator(random, known, target.tokens).mutated(known[which]))

    changed()


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=40, deadline=None, database=None)
@given(data=st.binary(max_size=400))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name].check(data)
