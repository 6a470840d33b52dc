"""What waits for a collector: bounded, counted, tried again, and never in the way."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from sidecar.telemetry.otlp import batches as module
from sidecar.telemetry.otlp.batches import Batches
from sidecar.telemetry.otlp.senders import TAKEN, Sent


class Scripted:
    """A sender that answers what it is told to, then takes everything."""

    def __init__(self, *answers: Sent | asyncio.Event) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.closed = False
        self.asked = asyncio.Event()

    async def send(self, body: bytes) -> Sent:
        self.bodies.append(body)
        self.asked.set()
        answer = self.answers.pop(0) if self.answers else TAKEN
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return TAKEN
        return answer

    async def close(self) -> None:
        self.closed = True


Make = Callable[..., Batches]


@pytest.fixture
def counts() -> tuple[Counter[str], Counter[str]]:
    return Counter(), Counter()


def make(sender: Scripted, counts: Any, **more: Any) -> Batches:
    return Batches(
        "traces", "http://c", sender, lambda items: b",".join(items), *counts,
        **{"most": 10, "batch": 3, "delay": 0.001, **more},
    )  # fmt: skip


async def settled(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seen: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds:
            seen.append(seconds)
        await real(0)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    return seen


async def test_the_oldest_give_way_and_are_counted(counts) -> None:
    hold = asyncio.Event()
    sender = Scripted(hold)
    one = make(sender, counts)
    one.start()
    one.put(b"first")
    await settled(sender.asked.is_set)
    for n in range(100_000):
        one.put(b"%d" % n)
    assert len(one._items) == 10
    assert counts[1]["traces"] == 99_990
    hold.set()
    await settled(lambda: counts[0]["traces"] >= 1 + 9)
    await one.close()
    assert counts[0]["traces"] == 11
    assert sender.bodies[1] == b"99990,99991,99992"
    assert sender.closed


async def test_a_passing_trouble_is_tried_again_with_growing_pauses(counts, pauses, caplog) -> None:
    caplog.set_level(logging.INFO, "sidecar")
    sender = Scripted(Sent("status 503", again=True), Sent("status 429", again=True, wait=3600.0))
    one = make(sender, counts)
    one.start()
    one.put(b"a")
    await settled(lambda: counts[0]["traces"] == 1)
    assert sender.bodies == [b"a"] * 3
    assert pauses == [1.0, 30.0]
    assert [record.getMessage() for record in caplog.records] == [
        "telemetry.failing", "telemetry.recovered",
    ]  # fmt: skip
    await one.close()


async def test_a_lasting_trouble_ends_and_is_told_once_a_minute(counts, caplog) -> None:
    caplog.set_level(logging.INFO, "sidecar")
    bad = [Sent("status 503", again=True)] * 40
    one = make(Scripted(*bad), counts)
    one.start()
    for n in range(5):
        one.put(b"%d" % n)
        await settled(lambda n=n: counts[1]["traces"] == n + 1)
    assert len(caplog.records) == 1
    await one.close()


async def test_a_collector_that_comes_and_goes_is_told_of_once_a_minute(counts, caplog) -> None:
    caplog.set_level(logging.INFO, "sidecar")
    one = make(Scripted(*[Sent("status 503", again=True), TAKEN] * 20), counts)
    one.start()
    for n in range(20):
        one.put(b"%d" % n)
        await settled(lambda n=n: counts[0]["traces"] == n + 1)
    assert [record.getMessage() for record in caplog.records] == [
        "telemetry.failing", "telemetry.recovered",
    ]  # fmt: skip
    await one.close()


async def test_all_that_goes_to_one_collector_complains_as_one(counts, caplog) -> None:
    caplog.set_level(logging.INFO, "sidecar")
    shared = module.Complaints()
    bad = [Sent("status 400")] * 3
    lanes = [make(Scripted(*bad), counts, complaints=shared) for _ in range(3)]
    for lane in lanes:
        lane.start()
        lane.put(b"x")
    await settled(lambda: counts[1]["traces"] == 3)
    assert [record.getMessage() for record in caplog.records] == ["telemetry.failing"]
    for lane in lanes:
        await lane.close()


async def test_what_is_refused_for_good_is_not_sent_again(counts) -> None:
    sender = Scripted(Sent("status 400"))
    one = make(sender, counts)
    one.start()
    one.put(b"a")
    await settled(lambda: counts[1]["traces"] == 1)
    one.put(b"b")
    await settled(lambda: counts[0]["traces"] == 1)
    assert sender.bodies == [b"a", b"b"]
    await one.close()


async def test_what_a_collector_took_only_in_part_is_counted_so(counts, caplog) -> None:
    caplog.set_level(logging.INFO, "sidecar")
    one = make(Scripted(Sent(rejected=2, reason="too old"), Sent(rejected=99)), counts)
    one.start()
    for item in (b"a", b"b", b"c"):
        one.put(item)
    await settled(lambda: counts[0]["traces"] + counts[1]["traces"] == 3)
    assert (counts[0]["traces"], counts[1]["traces"]) == (1, 2)
    one.put(b"d")
    await settled(lambda: counts[1]["traces"] == 3)
    one.put(b"e")
    await settled(lambda: counts[0]["traces"] == 2)
    told = [
        (record.getMessage(), vars(record)["facts"].get("problem")) for record in caplog.records
    ]
    assert told == [("telemetry.failing", "rejected 2: too old"), ("telemetry.recovered", None)]
    await one.close()


async def test_one_bad_item_does_not_end_the_export(counts) -> None:
    one = make(Scripted(), counts)
    one.start()
    one.put("no bytes")
    await settled(lambda: counts[1]["traces"] == 1)
    one.put(b"b")
    await settled(lambda: counts[0]["traces"] == 1)
    await one.close()


async def test_the_end_sends_what_is_left_and_what_was_under_way(counts) -> None:
    hold = asyncio.Event()
    sender = Scripted(hold)
    one = make(sender, counts)
    one.start()
    for n in range(7):
        one.put(b"%d" % n)
    await settled(sender.asked.is_set)
    await one.close()
    assert sender.bodies[1:] == [b"0,1,2", b"3,4,5", b"6"]
    assert (counts[0]["traces"], counts[1]["traces"]) == (7, 0)


async def test_an_end_that_is_cut_short_counts_what_is_lost(counts) -> None:
    sender = Scripted(asyncio.Event(), asyncio.Event())
    one = make(sender, counts)
    for n in range(7):
        one.put(b"%d" % n)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await one.close()
    assert counts[1]["traces"] == 7
    assert sender.closed
