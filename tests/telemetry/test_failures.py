"""What failed: the last hour in groups, the last ones by their ids, and no growth."""

import sys
from typing import Any

import pytest

from sidecar.envelope.model import ErrorClass, Source, Verdict
from sidecar.telemetry import failures as module
from sidecar.telemetry.failures import BUCKETS, FIELDS, KEPT, RAW_BYTES, SECONDS, Failures

from .facts import call, cancelled, envelope, failed, refused, reported, transition

USUAL = ("class", "source", "code")


class Scene:
    """A listener and its clock."""

    def __init__(self) -> None:
        self.now = 10_000.0
        self.failures = Failures(lambda: self.now)

    def hear(self, *facts: Any) -> None:
        for fact in facts:
            self.failures(fact)

    def counts(self, *by: str) -> dict[Any, int]:
        groups = self.failures.groups(by or USUAL)
        return {group.values: group.count for group in groups}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def limited(**changes: Any) -> Any:
    told = envelope("rate_limited", class_=ErrorClass.RATE_LIMIT, source=Source.SDK)
    return reported(dependency="pay", envelope=told, **changes)


def test_every_source_is_in_one_picture(scene: Scene) -> None:
    scene.hear(call(), cancelled(), transition(), reported(envelope=None))
    assert scene.counts() == {}
    scene.hear(failed(), failed(), reported(), limited(), refused())
    assert scene.counts() == {
        ("transient", "http", "503"): 2,
        ("transient", "database", "40001"): 1,
        ("rate_limit", "sdk", "rate_limited"): 1,
        ("transient", "sidecar", "breaker_open"): 1,
    }
    assert scene.counts("class") == {("transient",): 4, ("rate_limit",): 1}
    assert scene.counts("provider", "code") == {
        ("openai", "503"): 2,
        ("openai", "breaker_open"): 1,
        ("orders-db", "40001"): 1,
        ("pay", "rate_limited"): 1,
    }
    assert scene.counts("source") == {("http",): 2, ("database",): 1, ("sdk",): 1, ("sidecar",): 1}


def test_a_group_knows_its_first_and_its_last(scene: Scene) -> None:
    scene.hear(failed("a", correlation_id="c-1", at=1.0), failed("b", correlation_id="c-2", at=2.0))
    scene.hear(failed("a", correlation_id="c-3", at=3.0), reported(correlation_id="c-4", at=4.0))
    (group,) = scene.failures.groups(["class"])
    assert (group.count, group.first.correlation_id, group.last.correlation_id) == (4, "c-1", "c-4")
    assert (group.first.at, group.last.at) == (1.0, 4.0)
    first = scene.failures.groups(["code"])[0]
    assert (first.values, first.first.correlation_id, first.last.correlation_id) == (
        ("a",),
        "c-1",
        "c-3",
    )


def test_a_group_knows_its_minutes(scene: Scene) -> None:
    width = SECONDS / BUCKETS
    scene.hear(failed("a"), failed("b"))
    scene.now += 2 * width
    scene.hear(failed("a"), failed("a"))
    (group,) = scene.failures.groups(["class"])
    assert group.minutes == (0,) * (BUCKETS - 3) + (2, 0, 2)
    # Time moves them, asked for or not, and takes them away.
    scene.now += (BUCKETS - 3) * width
    (group,) = scene.failures.groups(["class"])
    assert group.minutes == (2, 0, 2) + (0,) * (BUCKETS - 3)
    scene.now += width
    (group,) = scene.failures.groups(["class"])
    assert group.minutes == (0, 2) + (0,) * (BUCKETS - 2)
    assert sum(group.minutes) == group.count


def test_the_latest_are_told_in_pages(scene: Scene) -> None:
    scene.hear(failed("a"), refused(), failed("b"))
    assert [one.envelope.code for one in scene.failures.latest()] == ["b", "a"]
    shown = scene.failures.latest(refusals=True)
    assert [one.envelope.code for one in shown] == ["b", "breaker_open", "a"]
    last = shown[0].number
    assert scene.failures.latest(last, refusals=True) == []
    scene.hear(*(refused() for _ in range(KEPT)), failed("c"))
    assert [one.envelope.code for one in scene.failures.latest(last)] == ["c"]
    assert len(scene.failures.latest(last, refusals=True)) == KEPT


def test_the_most_frequent_comes_first_then_the_latest(scene: Scene) -> None:
    scene.hear(failed("a"), failed("b"), failed("c"), failed("b"))
    assert [group.values[0] for group in scene.failures.groups(["code"])] == ["b", "c", "a"]


def test_an_hour_slides(scene: Scene) -> None:
    for minute in range(120):
        scene.now = 7200.0 + minute * 60.0
        scene.hear(failed(correlation_id=f"c-{minute}"))
        (group,) = scene.failures.groups(USUAL)
        assert group.count == min(minute + 1, BUCKETS)
        assert group.first.correlation_id == f"c-{max(0, minute + 1 - BUCKETS)}"
        assert group.last.correlation_id == f"c-{minute}"
    scene.now += SECONDS - 60.0
    assert scene.counts() == {("transient", "http", "503"): 1}
    scene.now += 60.0
    assert scene.counts() == {}
    assert not scene.failures._series
    assert not scene.failures._codes


def test_a_clock_that_goes_back_loses_nothing(scene: Scene) -> None:
    scene.hear(failed())
    scene.now -= 5_000.0
    scene.hear(failed())
    assert scene.counts("code") == {("503",): 2}


def test_codes_are_bounded_for_each_name(scene: Scene) -> None:
    for number in range(500):
        scene.hear(failed(f"made-up-{number}"))
    scene.hear(reported(), failed("made-up-7"))
    counts = scene.counts("provider", "code")
    assert len(counts) == 102
    assert counts["openai", "other"] == 400
    assert counts["openai", "made-up-7"] == 2
    assert counts["orders-db", "40001"] == 1
    assert sum(counts.values()) == 502


def test_all_groups_together_are_bounded(scene: Scene) -> None:
    for name in range(40):
        for number in range(30):
            scene.hear(failed(f"code-{number}", provider=f"p-{name}"))
    counts = scene.counts("provider", "code")
    assert sum(counts.values()) == 1200
    assert len(counts) <= module._MOST_SERIES + 40


def test_room_comes_back_with_time(scene: Scene) -> None:
    for number in range(500):
        scene.hear(failed(f"made-up-{number}"))
    scene.now += SECONDS
    scene.hear(failed("new"))
    assert scene.counts("code") == {("new",): 1}


def test_one_workflow_joins_by_its_id(scene: Scene) -> None:
    scene.hear(
        limited(correlation_id="w-1"),
        failed(correlation_id="other"),
        reported(correlation_id="w-1"),
        refused(correlation_id="w-1"),
        failed("postcode_invalid", correlation_id="w-1"),
    )
    found = scene.failures.find("w-1")
    assert [failure.envelope.code for failure in found] == [
        "rate_limited",
        "40001",
        "breaker_open",
        "postcode_invalid",
    ]
    assert scene.failures.find("nobody") == []


def test_the_last_ones_are_kept(scene: Scene) -> None:
    for number in range(KEPT + 10):
        scene.hear(failed(correlation_id=f"c-{number}"))
    assert scene.failures.find("c-9") == []
    assert len(scene.failures.find("c-10")) == 1
    assert len(scene.failures.find(f"c-{KEPT + 9}")) == 1


def test_refusals_push_no_failure_out(scene: Scene) -> None:
    scene.hear(failed(correlation_id="the-cause"))
    for number in range(10_000):
        scene.hear(refused(correlation_id=f"r-{number}"))
    assert len(scene.failures.find("the-cause")) == 1
    assert len(scene.failures.find("r-9999")) == 1
    assert scene.failures.find("r-0") == []
    assert scene.counts("source") == {("sidecar",): 10_000, ("http",): 1}


def test_what_was_seen_is_bounded_altogether(scene: Scene) -> None:
    body = "é" * 65_536
    for number in range(KEPT):
        told = envelope(raw={"status": 503, "headers": {"a": "b"}, "body": body[number:]})
        scene.hear(failed(envelope=told, correlation_id=f"c-{number}"))
    kept = [failure for failure in scene.failures._last if failure.envelope.raw is not None]
    assert scene.failures._bytes <= RAW_BYTES
    assert 40 < len(kept) < KEPT
    assert len(scene.failures._last) == KEPT
    (oldest,) = scene.failures.find("c-0")
    assert (oldest.envelope.code, oldest.envelope.raw) == ("503", None)
    (newest,) = scene.failures.find(f"c-{KEPT - 1}")
    assert newest.envelope.raw["body"].startswith("é")
    for number in range(KEPT):
        scene.hear(failed(correlation_id=f"d-{number}"))
    assert (scene.failures._bytes, len(scene.failures._with_raw)) == (0, 0)


def test_one_that_is_larger_than_all_room_keeps_its_envelope(scene: Scene) -> None:
    told = envelope(raw={"attrs": {"x": ["y" * RAW_BYTES]}})
    scene.hear(failed(envelope=told, correlation_id="c"))
    assert scene.failures.find("c")[0].envelope.raw is None
    assert scene.failures._bytes == 0


def test_the_size_of_what_was_seen_is_about_right() -> None:
    raw = {"body": "x" * 1000, "headers": {"a": "b" * 500}, "args": ["c" * 300, 1, None, 2.5]}
    assert 1800 < module._size(raw) < 1800 + 1200
    assert module._size("x") == sys.getsizeof("x")
    assert module._size(None) == 0


def test_memory_stays_where_it_is(scene: Scene) -> None:
    """Not a measurement of bytes: nothing that is kept has more members after more failures."""

    def members() -> tuple[int, ...]:
        held = scene.failures
        buckets = sum(len(series.buckets) for series in held._series.values())
        return (
            len(held._series), buckets, len(held._codes), len(held._last), len(held._refused),
            len(held._with_raw),
        )  # fmt: skip

    def traffic(start: int) -> None:
        for number in range(start, start + 3_000):
            scene.now += 5.0
            scene.hear(failed(f"c-{number}", envelope=envelope(f"c-{number}", raw={"body": "x"})))
            scene.hear(refused(), reported(f"d-{number}", verdict=Verdict.FAILURE))

    traffic(0)
    before = members()
    traffic(3_000)
    assert all(now <= then * 1.1 for now, then in zip(members(), before, strict=True))


def test_the_fields_are_the_parts_of_a_key() -> None:
    assert FIELDS == ("class", "source", "code", "provider")
