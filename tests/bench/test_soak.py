"""Twenty seconds of the soak: its books balance, and a book that does not is noticed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.soak import calls
from bench.soak.books import Books, Life
from bench.soak.callers import Callers, Seen
from bench.soak.callers import _Line as Line
from bench.soak.trouble import Span

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the soak reads /proc")
def test_a_short_soak(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    command = ["-m", "bench.soak", "--seconds", "14", "--callers", "32", "--json", str(found)]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(found.read_text())
    assert told["lives"] > 1
    assert told["calls"] > 500
    assert set(told["trouble"]) >= {"reload", "restart_daemon", "restart_upstream", "freeze"}
    assert set(told["kinds"]) >= {"ok", "stream", "typo", "boom"}


@pytest.mark.parametrize(
    ("kind", "says", "ending"),
    [
        ("stuck_reader", b"", "nothing"),
        ("stuck_sender", b"", "nothing"),
        ("stuck_sender", b"HTTP/1.1 100 Continue\r\n\r\n", "thrown"),
        ("ok", b"", "nothing"),
    ],
)
async def test_who_was_never_heard_was_not_thrown_out(kind, says, ending) -> None:
    """As by a daemon that stops with the connection still in its queue."""

    async def hangs_up(reader, writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(says)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(hangs_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        told = await Callers(port, 0, 1).call(Line(port), kind, 1)
    assert told.ending == ending


def seen(**more) -> Seen:
    told = {
        "id": "ok-1", "kind": "ok", "model": "ok-1", "began": 10.0, "over": 10.1, "ending": "whole", "status": 200,
        "decision": "forwarded",
    }  # fmt: skip
    return Seen(**{**told, **more})


def books(*calls_seen: Seen, heads=("ok-1",), total=None, lines=(), spans=()) -> list[str]:
    count = len(calls_seen) if total is None else total
    stopped = {"event": "daemon.stopped", "requests": count, "forwarded": count, "answered_here": 0}
    metrics = {
        "breaker_sidecar_calls_total": {("calm", "ok-1", "success"): float(count)},
        "breaker_sidecar_calls_ended_total": {("calm", "answered"): float(count)},
        "breaker_sidecar_refusals_total": {},
        "breaker_sidecar_upstream_attempts_total": {("calm",): float(count)},
    }
    records = [("head", id_) for id_ in heads]
    lives = [Life(20.0, [*lines, stopped])]
    return Books(calls_seen, spans, records, lives, metrics).close()


def test_books_that_balance() -> None:
    assert books(seen()) == []


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (lambda: books(seen(), total=2), "calls in all"),
        (lambda: books(seen(), heads=()), "never got it"),
        (lambda: books(seen(), heads=("ok-1", "ok-1")), "sent 2 times"),
        (lambda: books(seen(), heads=("ok-1", "ok-9")), "nobody asked"),
        (lambda: books(seen(ending="cut")), "cut without a cause"),
        (lambda: books(seen(ending="endless")), "has no end"),
        (lambda: books(seen(status=500)), "status has no cause"),
        (lambda: books(seen(wrong="bytes of another")), "bytes of another"),
        (lambda: books(seen(decision="connect_error", status=502)), "connect_error has no cause"),
        (lambda: books(seen(decision="breaker_open", status=503)), "breaker_open has no cause"),
        (lambda: books(seen(), lines=[{"event": "fault", "error": "x"}]), "fault"),
        (lambda: books(seen(), lines=[{"event": "", "text": "Traceback"}]), "Traceback"),
        (lambda: books(seen(ending="nothing", status=0, decision=""), heads=()), "nobody answered"),
    ],
)  # fmt: skip
def test_books_that_do_not(told, words: str) -> None:
    assert any(words in problem for problem in told()), told()


def test_what_was_disturbed_has_its_cause() -> None:
    refused = seen(decision="connect_error", status=502, verdict="failure")
    away = [Span("upstream away", 9.9, 10.2)]
    assert not any("no cause" in problem for problem in books(refused, heads=(), spans=away))


def test_every_kind_can_be_asked_and_answered() -> None:
    for kind in calls.KINDS:
        assert calls.request_body(kind, f"{kind}-1", 1)
    assert calls.completion("a-1") != calls.completion("a-2")
