"""One line for what matters, a summary for what repeats, no secret, no forged line, no stall."""

import asyncio
import io
import json
import logging
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.breaker.model import State
from sidecar.envelope.model import ErrorClass, Source, Verdict
from sidecar.telemetry import logs
from sidecar.telemetry.lines import LineHandler, clean
from sidecar.telemetry.logs import LogListener
from sidecar.telemetry.observer import (
    AttemptFinished,
    ConfigReloaded,
    Controlled,
    Ending,
    Fault,
    NetworkChange,
    Observer,
)
from sidecar.telemetry.storms import Storms

from .facts import call, cancelled, envelope, failed, refused, reported, transition


class Log:
    """The log of the process, caught in memory."""

    def __init__(self, handler: LineHandler, stream: io.StringIO) -> None:
        self.handler = handler
        self.stream = stream

    def text(self) -> str:
        self.handler.flush()
        return self.stream.getvalue()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines()]


@pytest.fixture
def log() -> Iterator[Log]:
    root, ours = logging.getLogger(), logging.getLogger("sidecar")
    levels = root.level, ours.level
    stream = io.StringIO()
    handler = logs.setup("info", "json", stream)
    yield Log(handler, stream)
    root.removeHandler(handler)
    handler.close()
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def test_a_failed_call_is_one_line_with_all_that_joins_it(log: Log) -> None:
    listener = LogListener()
    listener(
        failed(
            "rate_limited",
            envelope=envelope(
                "rate_limited",
                class_=ErrorClass.RATE_LIMIT,
                retryable=True,
                retry_after=2.5,
                raw={"upstream_request_id": "req-7", "body": "never shown"},
            ),
            verdict=Verdict.THROTTLE,
            status=429,
            upstream_status=429,
            rule="openai: rate_limit_exceeded",
        )
    )
    (line,) = log.lines()
    assert line["time"].endswith("Z")
    del line["time"]
    assert line == {
        "level": "info",
        "event": "call.failed",
        "correlation_id": "c-1",
        "provider": "openai",
        "model": "gpt-x",
        "status": 429,
        "class": "rate_limit",
        "code": "rate_limited",
        "verdict": "throttle",
        "rule": "openai: rate_limit_exceeded",
        "ending": "answered",
        "decision": "forwarded",
        "key": "openai/gpt-x",
        "method": "POST",
        "path": "/v1/chat/completions",
        "upstream_status": 429,
        "duration": 0.5,
        "first_byte": None,
        "source": "http",
        "retryable": True,
        "retry_after": 2.5,
        "message": "it failed",
        "upstream_request_id": "req-7",
    }


def test_a_reported_failure_is_a_line_of_the_same_shape(log: Log) -> None:
    listener = LogListener()
    listener(failed())
    listener(reported())
    answered, line = log.lines()
    assert set(answered) | {"dependency"} == set(line)
    del line["time"]
    assert line == {
        "level": "info",
        "event": "call.failed",
        "correlation_id": "c-1",
        "provider": None,
        "dependency": "orders-db",
        "model": None,
        "status": None,
        "class": "transient",
        "code": "40001",
        "verdict": "alive",
        "rule": "sqlstate 40001",
        "ending": "reported",
        "decision": "reported",
        "key": "orders-db",
        "method": None,
        "path": None,
        "upstream_status": None,
        "duration": 0.25,
        "first_byte": None,
        "source": "database",
        "retryable": True,
        "retry_after": 0.0,
        "message": "it failed",
    }


def test_a_failing_dependency_is_a_warning(log: Log) -> None:
    LogListener()(reported(verdict=Verdict.FAILURE, would_refuse=True))
    (line,) = log.lines()
    assert (line["level"], line["would_refuse"]) == ("warning", True)


def test_what_repeats_at_a_dependency_is_summed_up(log: Log) -> None:
    listener = LogListener()
    for _ in range(7):
        listener(reported("breaker_open", decision="breaker_open", verdict=None))
        listener(reported(decision="expired", envelope=None, verdict=Verdict.NEUTRAL))
        listener(reported(envelope=None, verdict=Verdict.SUCCESS, would_refuse=True))
    assert log.lines() == []
    listener.close()
    lines = {line["event"]: line for line in log.lines()}
    assert set(lines) == {"calls.refused", "calls.would_refuse", "permits.expired"}
    for line in lines.values():
        assert line["count"] == 7
        assert line["by_key"] == {"orders-db": 7}
    listener.close()
    assert len(log.lines()) == 3


def test_a_good_call_leaves_no_line(log: Log) -> None:
    LogListener()(call())
    LogListener()(reported(envelope=None, verdict=Verdict.SUCCESS))
    assert log.text() == ""


@pytest.mark.parametrize(
    ("verdict", "decision", "level"),
    [
        (Verdict.FAILURE, "forwarded", "warning"),
        (Verdict.FAILURE, "connect_error", "warning"),
        (Verdict.ALIVE, "forwarded", "info"),
        (Verdict.THROTTLE, "forwarded", "info"),
        (Verdict.NEUTRAL, "upstream_error", "info"),
        (Verdict.NEUTRAL, "internal_error", "error"),
    ],
)
def test_levels(log: Log, verdict: Verdict, decision: str, level: str) -> None:
    LogListener()(failed(verdict=verdict, decision=decision))
    (line,) = log.lines()
    assert (line["event"], line["level"]) == ("call.failed", level)


def test_f166_every_kind_of_end_leaves_its_trace(log: Log) -> None:
    listener = LogListener()
    for n in range(100):
        # Ten lines a minute are written of a model: a storm of one kind is summed up.
        model = f"gpt-{n % 10}"
        listener(cancelled(model=model))
        listener(failed("stream_truncated", model=model, status=200, upstream_status=200))
        listener(failed("idle_timeout", model=model, status=504, decision="timeout"))
        listener(
            failed(
                "draining",
                model=model,
                envelope=None,
                verdict=Verdict.NEUTRAL,
                status=200,
                ending=Ending.SHUTDOWN,
            )
        )
        listener(refused())
    listener.close()
    lines = log.lines()
    calls = [line for line in lines if line["event"].startswith("call.")]
    assert len(calls) == 400
    assert {line["ending"] for line in calls} == {
        "client_left",
        "upstream_cut",
        "timed_out",
        "shutdown",
    }
    cancels = [line for line in calls if line["ending"] == "client_left"]
    assert len(cancels) == 100
    assert {line["status"] for line in cancels} == {None}
    assert {(line["event"], line["verdict"], line["level"]) for line in cancels} == {
        ("call.cancelled", "neutral", "info")
    }
    (summary,) = [line for line in lines if line["event"] == "calls.refused"]
    assert summary["count"] == 100
    assert summary["by_decision"] == {"breaker_open": 100}
    assert summary["by_key"] == {"openai/gpt-x": 100}


def test_a_storm_leaves_ten_lines_a_minute_and_a_count(log: Log) -> None:
    listener = LogListener()
    for n in range(500):
        listener(failed("503", at=1_000.0 + n / 10))
    listener(failed("503", at=1_001.0, model="another"))
    listener(failed("502", at=1_001.0))
    listener(reported("40001", at=1_001.0))
    assert len(log.lines()) == 10 + 3
    assert listener.suppressed == 490
    # A minute after the first that was held back, whatever happens next tells of them.
    listener(failed("503", at=1_061.5))
    lines = log.lines()
    (told,) = [line for line in lines if line["event"] == "calls.repeated"]
    assert (told["count"], told["provider"], told["model"], told["class"], told["code"]) == (
        490, "openai", "gpt-x", "transient", "503",
    )  # fmt: skip
    listener.close()
    written = [line for line in lines if line["event"] == "call.failed" and line["code"] == "503"]
    assert len(written) + told["count"] == 502


def test_ten_lines_are_those_of_any_minute_and_kinds_are_bounded() -> None:
    storms = Storms()
    kind = ("p", "m", "transient", "503")
    admitted = [at for at in range(600) if storms.admit(kind, float(at))]
    for at in admitted:
        assert len([one for one in admitted if at <= one < at + 60]) <= 10
    assert len(admitted) + storms.take()[kind] == 600
    assert storms.take() == {}
    for n in range(5_000):
        storms.admit(("p", f"m-{n}", None, None), 1_000.0)
    assert len(storms._written) <= 1_001
    # A clock that was set back holds nothing up for ever.
    assert storms.admit(kind, 5.0)


def test_a_hang_that_the_caller_gave_up_on_is_a_failure(log: Log) -> None:
    LogListener()(failed("hang_abandoned", status=0, upstream_status=None))
    (line,) = log.lines()
    assert (line["event"], line["level"], line["ending"]) == (
        "call.failed",
        "warning",
        "client_left",
    )


def test_refusals_are_summed_up_each_ten_seconds_without_a_loop(log: Log) -> None:
    listener = LogListener()
    for second in range(25):
        listener(refused(at=1_000.0 + second))
    assert [line["count"] for line in log.lines()] == [10, 10]
    listener.close()
    assert [line["count"] for line in log.lines()] == [10, 10, 5]
    listener.close()
    assert len(log.lines()) == 3


async def test_the_last_refusals_are_summed_up_by_a_timer(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SUMMARY_SECONDS", 0.01)
    listener = LogListener()
    listener(refused())
    async with asyncio.timeout(5):
        while not log.text():
            await asyncio.sleep(0.01)
    assert log.events() == ["calls.refused"]


def test_the_summary_is_bounded(log: Log) -> None:
    listener = LogListener()
    for number in range(5_000):
        listener(refused(key=f"openai/model-{number % 2_500}"))
    listener.close()
    (line,) = log.lines()
    assert line["count"] == 5_000
    assert len(line["by_key"]) <= 21
    assert sum(line["by_key"].values()) == 5_000


def test_what_observe_would_have_refused_is_summed_up_too(log: Log) -> None:
    listener = LogListener()
    listener(call(would_refuse=True))
    listener(failed(would_refuse=True))
    listener.close()
    first, second = log.lines()
    assert (first["event"], first["would_refuse"]) == ("call.failed", True)
    assert (second["event"], second["count"]) == ("calls.would_refuse", 2)


def test_each_transition_is_a_line_with_its_reason(log: Log) -> None:
    observer = Observer(LogListener())
    observer.emit(transition())
    observer.emit(transition(State.OPEN, State.HALF_OPEN, reason="open time is over"))
    observer.emit(transition(State.HALF_OPEN, State.CLOSED, reason="2 good probes", enforced=False))
    assert [(line["event"], line["level"], line["reason"]) for line in log.lines()] == [
        ("breaker.opened", "warning", "5 consecutive failures"),
        ("breaker.half_open", "info", "open time is over"),
        ("breaker.closed", "info", "2 good probes"),
    ]
    assert log.lines()[2]["enforced"] is False


def test_reloads_and_controls_are_lines(log: Log) -> None:
    listener = LogListener()
    listener(ConfigReloaded(at=1.0, generation=2, hash="abc", added=("groq",)))
    listener(ConfigReloaded(at=1.0, generation=2, hash="abc", problems=("line 3: unknown key",)))
    listener(Controlled(at=1.0, key="openai", verb="open", duration=600.0, reason="drill"))
    reloaded, rejected, controlled = log.lines()
    assert (reloaded["event"], reloaded["added"]) == ("config.reloaded", ["groq"])
    assert (rejected["event"], rejected["level"]) == ("config.refused", "error")
    assert rejected["problems"] == ["line 3: unknown key"]
    assert (controlled["verb"], controlled["seconds"], controlled["reason"]) == (
        "open",
        600.0,
        "drill",
    )


def _fault(where: str = "classify", error: BaseException | None = None) -> Fault:
    try:
        raise error or KeyError("sk-proj-abcdefghijklmnopqrstuvwxyz0123456789")
    except BaseException as caught:
        return Fault(at=1.0, where=where, error=caught, correlation_id="c-3")


def test_a_fault_is_logged_once_and_then_counted(log: Log) -> None:
    listener = LogListener()
    for _ in range(4):
        listener(_fault())
    listener(_fault("breaker"))
    listener.close()
    first, second, summary = log.lines()
    assert (first["event"], first["where"], first["error"]) == (
        "fault",
        "classify",
        "builtins.KeyError",
    )
    assert any("test_logs.py" in frame for frame in first["traceback"])
    assert second["where"] == "breaker"
    assert (summary["event"], summary["where"]) == ("faults.repeated", {"classify": 3})


def test_secrets_are_redacted_whoever_logs_them(log: Log) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
    LogListener()(failed(envelope=envelope(message=f"Incorrect API key provided: {secret}")))
    LogListener()(failed(rule=f"matched Bearer {secret}", model=secret))
    LogListener()(_fault())
    logs.event("x", headers={"authorization": f"Bearer {secret}"}, deep=[{"a": [secret]}])
    logging.getLogger("somebody").warning("token %s", secret)
    assert secret not in log.text()
    assert len(log.lines()) == 5


def test_a_parsers_words_are_never_logged(log: Log) -> None:
    from aiohttp.http_exceptions import BadHttpMessage

    LogListener()(_fault("proxy", BadHttpMessage("Authorization: hunter2")))
    assert "hunter2" not in log.text()
    assert log.lines()[0]["error"] == "aiohttp.http_exceptions.BadHttpMessage"


@pytest.mark.parametrize(
    "evil", ["a\nb", "a\r\nlevel=error", "\x1b[2J", "\x9b31m", "\u202eabc", "\ud800", "\x00"]
)
@pytest.mark.parametrize("format_", ["json", "text"])
def test_no_text_forges_a_line_or_steers_a_terminal(evil: str, format_: str) -> None:
    stream = io.StringIO()
    handler = logs.setup("info", format_, stream)
    try:
        LogListener()(failed(model=evil, rule=evil, envelope=envelope(message=evil)))
        logging.getLogger("library").error("said %s", evil)
        handler.flush()
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    text = stream.getvalue()
    assert len(text.splitlines()) == 2
    assert text.isascii()
    assert all(character.isprintable() for line in text.split("\n") for character in line)


def test_odd_values_become_json() -> None:
    assert clean(float("nan")) is None
    assert clean(float("inf")) is None
    assert clean(b"bytes") == "b'bytes'"
    assert clean({1: {2}}) == {"1": [2]}
    assert clean(State.OPEN) == "open"
    assert clean(Source.HTTP) == "http"
    assert len(clean("x " * 5_000)) == 1_000
    assert len(clean(list(range(5_000)))) == 100
    deep: list[Any] = []
    deep.append(deep)
    assert isinstance(clean(deep), list)


def test_text_for_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    handler = logs.setup("info", "auto", stream)
    try:
        LogListener()(transition())
        logs.event("daemon.listening", addresses=["127.0.0.1:7600"], nothing=None)
        handler.flush()
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    first, second = stream.getvalue().splitlines()
    assert first[8:] == (
        " WARN  breaker.opened key=openai/gpt-x provider=openai old=closed new=open "
        'reason="5 consecutive failures" enforced=true retry_after=30.0'
    )
    assert second.endswith('INFO  daemon.listening addresses=["127.0.0.1:7600"]')


def test_auto_is_json_elsewhere(log: Log) -> None:
    stream = io.StringIO()
    handler = logs.setup("info", "auto", stream)
    logs.event("hello")
    handler.flush()
    logging.getLogger().removeHandler(handler)
    handler.close()
    assert json.loads(stream.getvalue())["event"] == "hello"


def test_the_level_holds_for_our_lines_and_changes_on_reload(log: Log) -> None:
    logs.set_level("warning")
    logs.event("quiet")
    logs.set_level("info")
    logs.event("heard")
    logging.getLogger("library").info("not heard")
    assert log.events() == ["heard"]


def test_setup_replaces_itself(log: Log) -> None:
    stream = io.StringIO()
    handler = logs.setup("info", "json", stream)
    logs.event("once")
    handler.flush()
    assert len(stream.getvalue().splitlines()) == 1
    assert log.text() == ""
    logging.getLogger().removeHandler(handler)
    handler.close()


class Stalled(io.StringIO):
    """A reader that does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def write(self, text: str) -> int:
        self.release.wait(10)
        return super().write(text)


def test_a_stalled_reader_stalls_nobody_and_bounds_the_memory() -> None:
    stream = Stalled()
    handler = LineHandler(stream, capacity=10)
    record = logging.makeLogRecord({"msg": "x", "levelname": "INFO", "facts": {}})
    handler.setFormatter(logging.Formatter("%(message)s"))
    for _ in range(1_000):
        handler.handle(record)
    assert handler.dropped >= 989
    stream.release.set()
    handler.close()
    assert "log.dropped" in stream.getvalue()
    assert handler.dropped + stream.getvalue().splitlines().count("x") == 1_000


def test_closing_waits_a_second_at_most() -> None:
    stream = Stalled()
    handler = LineHandler(stream, capacity=10)
    handler.handle(logging.makeLogRecord({"msg": "x"}))
    started = time.monotonic()
    handler.close()
    assert time.monotonic() - started < 5
    stream.release.set()


def test_a_broken_stream_and_a_broken_record_raise_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    handler = LineHandler(stream)
    handler.handle(logging.makeLogRecord({"msg": "x"}))
    handler.handle(logging.makeLogRecord({"msg": "%s %s", "args": ("one",)}))
    handler.flush()
    assert handler.dropped == 2
    handler.close()


TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


def _documented() -> dict[str, Any]:
    text = (Path(__file__).parents[2] / "docs" / "logs.md").read_text()
    schema: dict[str, Any] = json.loads(text.split("```json\n")[1].split("```")[0])
    return schema


def test_every_line_is_as_documented(log: Log) -> None:
    listener = LogListener()
    raw = {"upstream_request_id": "req-7"}
    listener(failed(envelope=envelope(raw=raw), reclassified=True, would_refuse=True))
    listener(failed("x", envelope=None, model=None, key=None, verdict=None, decision="timeout"))
    listener(cancelled())
    listener(refused())
    listener(reported())
    listener(reported(decision="expired", envelope=None))
    listener(transition(retry_after=None))
    listener(ConfigReloaded(at=1.0, generation=2, hash="abc", added=("groq",)))
    listener(ConfigReloaded(at=1.0, generation=2, hash="abc", problems=("line 3",)))
    listener(Controlled(at=1.0, key="openai", verb="open"))
    listener(_fault())
    listener(_fault())
    listener.close()
    logging.getLogger("library").warning("said")
    schema = _documented()
    lines = log.lines()
    assert len(lines) == 14
    for line in lines:
        assert set(schema["required"]) <= set(line)
        for name, value in line.items():
            rule = schema["properties"][name]
            if "enum" in rule:
                assert value in rule["enum"], (name, value)
                continue
            kinds = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
            assert any(isinstance(value, TYPES[kind]) for kind in kinds), (name, value)


def test_every_event_is_documented(log: Log) -> None:
    from sidecar.telemetry import call_lines, export, observer
    from sidecar.telemetry import lines as line_module
    from sidecar.telemetry.otlp import batches

    text = (Path(__file__).parents[2] / "docs" / "logs.md").read_text()
    source = "".join(
        Path(module.__file__).read_text()
        for module in (logs, call_lines, line_module, observer, export, batches)
    )
    events = set(
        re.findall(
            r'"((?:breaker|calls?|config|faults?|listener|log|permits|telemetry)\.[a-z_]+)"', source
        )
    )
    assert {"call.failed", "breaker.opened", "calls.refused", "log.dropped"} <= events
    assert {name for name in events if f"`{name}`" not in text} == set()


def test_a_network_that_goes_down_and_comes_back(log: Log) -> None:
    listener = LogListener()
    hosts = frozenset({"b.example", "a.example"})
    listener(NetworkChange(down=True, reason="no route", at=10.0, since=0.0, hosts=hosts))
    listener(NetworkChange(down=False, reason="a.example was reached", at=14.5, since=10.0))
    down, up = log.lines()
    assert (down["event"], down["level"]) == ("network.down", "warning")
    assert (down["reason"], down["hosts"]) == ("no route", ["a.example", "b.example"])
    assert (up["event"], up["level"], up["down_for"]) == ("network.up", "info", 4.5)


def test_an_attempt_leaves_no_line_of_its_own(log: Log) -> None:
    fact = AttemptFinished(
        at=1.0, provider="up", correlation_id="c", number=1, began=0.0, duration=1.0, status=503
    )
    LogListener()(fact)
    assert log.lines() == []
