"""The event stream: each transition at once, to whoever reads; who does not read costs nothing."""

import asyncio
import json
from typing import Any

import pytest

from sidecar import clock
from sidecar.admin import events
from sidecar.admin.events import MOST_SUBSCRIBERS, QUEUED_EVENTS, EventHub, encode
from sidecar.breaker.model import State, Transition

from .daemon import Daemon, started
from .raw import call, connect

REQUEST = b"GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"


def transition(reason: str = "5 failures in a row") -> Transition:
    return Transition(
        key="openai/gpt-x",
        provider="openai",
        old=State.CLOSED,
        new=State.OPEN,
        reason=reason,
        at=clock.monotonic(),
        enforced=True,
        retry_after=30.0,
    )


class Stream:
    """One reader of /events."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = ""

    @classmethod
    async def open(cls, address: str) -> "Stream":
        stream = cls(*await connect(address))
        stream.writer.write(REQUEST)
        async with asyncio.timeout(5):
            stream.head = (await stream.reader.readuntil(b"\r\n\r\n")).decode()
            assert await stream.chunk() == b": changes follow\n\n"
        return stream

    async def chunk(self) -> bytes:
        size = int(await self.reader.readline(), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def facts(self, seconds: float = 1.0) -> dict[str, Any]:
        async with asyncio.timeout(seconds):
            name, number, data, *_ = (await self.chunk()).decode().split("\n")
        assert name == "event: transition"
        assert number.startswith("id: ")
        facts: dict[str, Any] = json.loads(data.removeprefix("data: "))
        return facts

    def close(self) -> None:
        self.writer.close()


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


async def test_each_transition_arrives_within_a_second(daemon: Daemon, address: str) -> None:
    first, second = await Stream.open(address), await Stream.open(address)
    assert "content-type: text/event-stream" in first.head.lower()
    assert "cache-control: no-store" in first.head.lower()
    daemon.fail("gpt-x")
    for stream in (first, second):
        facts = await stream.facts()
        assert (facts["key"], facts["old"], facts["new"]) == ("openai/gpt-x", "closed", "open")
        assert facts["provider"] == "openai"
        assert facts["enforced"] is True
        assert "5" in facts["reason"]
        assert 29 < facts["retry_after"] <= 36
        assert facts["at"].endswith("Z")
    daemon.fail("gpt-y")
    assert (await first.facts())["key"] == "openai/gpt-y"
    first.close()
    second.close()


async def test_heartbeats_keep_it_open(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.02)
    plane, address = await started(daemon)
    stream = await Stream.open(address)
    assert await stream.chunk() == events.HEARTBEAT
    assert await stream.chunk() == events.HEARTBEAT
    assert events.HEARTBEAT.startswith(b":")
    stream.close()
    await plane.stop()


async def test_a_reader_that_leaves_is_forgotten_at_once(daemon: Daemon) -> None:
    plane, address = await started(daemon)
    stream = await Stream.open(address)
    assert len(plane.events) == 1
    stream.close()
    await until(lambda: len(plane.events) == 0)
    await plane.stop()


async def test_a_reader_that_does_not_read_is_dropped(daemon: Daemon) -> None:
    plane, address = await started(daemon)
    idle, reading = await Stream.open(address), await Stream.open(address)
    idle.writer.transport.pause_reading()  # type: ignore[attr-defined]
    heard = 0

    async def read() -> None:
        nonlocal heard
        while True:
            await reading.chunk()
            heard += 1

    reader = asyncio.create_task(read())
    fact, sent = transition("x" * 400), 0
    async with asyncio.timeout(60):
        while len(plane.events) == 2:
            for _ in range(50):
                daemon.observer.emit(fact)
            sent += 50
            await until(lambda expected=sent: heard >= expected)
    assert len(plane.events) == 1
    assert not reader.done()
    reader.cancel()
    for stream in (idle, reading):
        stream.close()
    await plane.stop()


async def test_what_waits_for_a_reader_is_bounded() -> None:
    hub, cut = EventHub(), list[int]()
    subscription = hub.subscribe(lambda: cut.append(1))
    for _ in range(10 * QUEUED_EVENTS):
        hub(transition())
    assert cut == [1]
    assert subscription.dropped
    assert [piece async for piece in subscription.pieces()] == []


async def test_readers_are_bounded(daemon: Daemon) -> None:
    plane, address = await started(daemon)
    for _ in range(MOST_SUBSCRIBERS):
        plane.events.subscribe(lambda: None)
    answer = await call(address, "/events")
    assert (answer.status, answer.code) == (503, "too_many_readers")
    await plane.stop()


async def test_stopping_ends_the_streams(daemon: Daemon) -> None:
    plane, address = await started(daemon)
    stream = await Stream.open(address)
    async with asyncio.timeout(10):
        await plane.stop()
    assert await stream.reader.read() == b"0\r\n\r\n"
    stream.close()
    daemon.fail("gpt-x")
    assert len(plane.events) == 0


async def test_head_opens_no_stream(address: str) -> None:
    answer = await call(address, "/events", "HEAD")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")


def test_an_event_is_bounded_and_cannot_be_split() -> None:
    fact = transition("a\n\ndata: forged\r\n" + "ä\ud800" * 5_000)
    event = encode(fact, 7)
    assert len(event) < 8_192
    assert event.count(b"\n") == 4
    assert event.startswith(b"event: transition\nid: 7\ndata: {")
    assert b"\r" not in event
