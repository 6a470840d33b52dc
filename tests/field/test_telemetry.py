"""Area observability: what leaves over OTLP, and what a bad collector may cost (nothing)."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from tests.proxy.callers import call, chat
from tests.proxy.upstreams import answer, says
from tests.telemetry.collector import Collector, Sink, attributes, exporting, reading

from .process import ROOT, Process
from .scene import CHAT, DONE, JSON, STREAM_HEAD, admin, ask, base, chunk, delta, error, until

OWN = "breaker_sidecar."
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01")


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def collector(tmp_path: Path) -> AsyncIterator[Collector]:
    one = Collector(tmp_path)
    try:
        await one.start()
        yield one
    finally:
        await one.stop()


@pytest.fixture
async def sink(tmp_path: Path) -> AsyncIterator[Sink]:
    one = Sink(tmp_path)
    await one.start()
    yield one
    await one.stop()


def export(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
async def test_a_collector_gets_one_call_as_spans_log_line_and_metric(
    start, upstream, log, collector, monkeypatch, protocol
) -> None:
    export(monkeypatch, collector.environ(protocol))
    monkeypatch.setenv("OTEL_SERVICE_NAME", "night-watch")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test%20bed")
    running = await start({"up": base(upstream.url)})
    upstream.script = says(error(503, "server_error"))
    headers = (JSON, PARENT, ("x-correlation-id", "workflow-7"), ("tracestate", "a=1"))
    assert (await call(running.port, CHAT, "POST", chat(), *headers)).status == 503
    found = collector.sink
    failing = {"provider": "up", "model": "gpt-x", "verdict": "failure"}
    await until(lambda: len(found.spans()) >= 2)
    await until(lambda: [r for r in found.records() if r["body"]["stringValue"] == "call.failed"])
    await until(
        lambda: [p for p in found.points(OWN + "calls", **failing) if p.get("asInt") == "1"]
    )

    server = next(span for span in found.spans() if span["kind"] == "SPAN_KIND_SERVER")
    client = next(span for span in found.spans() if span["kind"] == "SPAN_KIND_CLIENT")
    assert (server["traceId"], server["parentSpanId"]) == (TRACE, "b7ad6b7169203331")
    assert (client["traceId"], client["parentSpanId"]) == (TRACE, server["spanId"])
    assert server["name"] == "POST /up"
    assert server["traceState"] == client["traceState"] == "a=1"
    told = server["attributes"]
    assert told[OWN + "correlation_id"] == "workflow-7"
    assert (told[OWN + "verdict"], told["error.type"]) == ("failure", "server_error")
    assert (told["http.request.method"], told["http.response.status_code"]) == ("POST", 503)
    assert (told[OWN + "envelope.class"], told[OWN + "envelope.code"]) == (
        "transient",
        "server_error",
    )
    assert (told["url.path"], told["http.route"]) == (CHAT, "/up")
    assert client["attributes"]["server.address"] == "127.0.0.1"
    assert client["attributes"]["server.port"] == int(upstream.url.rpartition(":")[2])
    assert server["status"]["code"] == client["status"]["code"] == "STATUS_CODE_ERROR"
    assert server["resource"]["service.name"] == "night-watch"
    assert server["resource"]["deployment.environment.name"] == "test bed"
    # The upstream was told that the client's span is its parent, and nothing else was changed.
    sent = upstream.requests[-1]
    assert sent.get(b"traceparent") == f"00-{TRACE}-{client['spanId']}-01".encode()
    assert sent.get(b"tracestate") == b"a=1"

    record = next(r for r in found.records() if r["body"]["stringValue"] == "call.failed")
    assert (record["traceId"], record["spanId"]) == (TRACE, server["spanId"])
    assert record["attributes"]["correlation_id"] == "workflow-7"
    assert record["attributes"]["verdict"] == "failure"
    (line,) = log.lines("call.failed")
    assert (line["trace_id"], line["span_id"]) == (TRACE, server["spanId"])
    assert line["correlation_id"] == "workflow-7"

    zero = found.points(OWN + "calls", provider="up", model="", verdict="throttle")
    assert {point["asInt"] for point in zero} == {"0"}
    lasted = found.points(OWN + "upstream.duration", provider="up")[-1]
    assert (lasted["count"], lasted["explicitBounds"][-1]) == ("1", 600.0)


async def test_opentelemetrys_own_collector_joins_the_log_with_the_trace(
    process, upstream, sink
) -> None:
    """It reads the log as a file, by the configuration that ships; the spans came over OTLP."""
    environ = {**exporting(sink.port), "OTEL_LOGS_EXPORTER": "none"}
    running = await process({"up": base(upstream.url)}, environ=environ)
    async with reading(running.log, ROOT / "monitoring" / "collector.yaml", sink):
        upstream.script = says(error(503, "server_error"))
        headers = (JSON, PARENT, ("x-correlation-id", "workflow-7"))
        assert (await call(running.port, CHAT, "POST", chat(), *headers)).status == 503
        await until(
            lambda: [r for r in sink.records() if r["body"]["stringValue"] == "call.failed"]
        )
        await until(lambda: len(sink.spans()) >= 2)
    (line,) = running.lines("call.failed")
    (record,) = [r for r in sink.records() if r["body"]["stringValue"] == "call.failed"]
    server = next(span for span in sink.spans() if span["kind"] == "SPAN_KIND_SERVER")
    assert (record["traceId"], record["spanId"]) == (server["traceId"], server["spanId"])
    assert (record["traceId"], record["flags"]) == (TRACE, 1)
    assert record["severityNumber"] == "SEVERITY_NUMBER_WARN"
    at = datetime.fromtimestamp(int(record["timeUnixNano"]) / 1e9, UTC)
    assert at.isoformat(timespec="milliseconds").replace("+00:00", "Z") == line["time"]
    # Everything else is an attribute, under the name that it has in the log, and nothing twice.
    told = dict(record["attributes"])
    del told["log.file.name"]
    apart = ("time", "level", "event", "trace_id", "span_id", "trace_flags")
    assert told == {name: value for name, value in line.items() if name not in apart}
    assert told["correlation_id"] == "workflow-7"
    # Lines without a trace came through too.
    assert "daemon.listening" in [r["body"]["stringValue"] for r in sink.records()]


async def test_what_a_collector_rejects_is_not_counted_as_taken(
    start, upstream, sink, log, monkeypatch
) -> None:
    refused = ExportLogsServiceResponse()
    refused.partial_success.rejected_log_records = 1
    refused.partial_success.error_message = "too large"
    sink.reply = refused.SerializeToString()
    export(monkeypatch, {**exporting(sink.port), "OTEL_METRICS_EXPORTER": "none"})
    running = await start({"up": base(upstream.url)})
    upstream.script = says(answer(200, b"{}"))
    assert (await call(running.port, "/up/v1/models", "GET")).status == 200
    await until(lambda: log.lines("telemetry.failing"))
    assert log.lines("telemetry.failing")[0]["problem"] == "rejected 1: too large"
    text = (await admin(running, "/metrics")).body.decode()
    assert re.search(r'telemetry_dropped_total\{signal="\w+"\} [1-9]', text)


async def test_attempts_transitions_refusals_and_first_words_are_events(
    start, upstream, sink, monkeypatch
) -> None:
    export(monkeypatch, exporting(sink.port))
    running = await start({"up": base(upstream.url, breaker={"open_for": "300s"})})
    upstream.script = says(STREAM_HEAD + chunk(delta("a", "stop") + DONE) + b"0\r\n\r\n")
    assert (await ask(running, stream=True)).status == 200
    upstream.script = says(error(500))
    for n in range(6):
        await ask(running, n=n)
    await until(lambda: len(sink.spans()) >= 12)
    servers = [span for span in sink.spans() if span["kind"] == "SPAN_KIND_SERVER"]
    events = [
        {event["name"]: attributes(event) for event in span.get("events", [])} for span in servers
    ]
    assert OWN + "first_content" in events[0]
    (moved,) = [one[OWN + "transition"] for one in events if OWN + "transition" in one]
    assert moved[OWN + "to"] == "open"
    assert moved[OWN + "key"] == "up/gpt-x"
    refused = [span for span in servers if span["attributes"][OWN + "decision"] == "breaker_open"]
    assert refused
    parents = {span.get("parentSpanId") for span in sink.spans()}
    for span in refused:
        # No request was sent: no client span, but an event that says when it may be.
        assert span["spanId"] not in parents
        told = next(e for e in span["events"] if e["name"] == OWN + "breaker_open")
        assert attributes(told)[OWN + "retry_after"] > 0
        assert span["attributes"]["error.type"] == "breaker_open"


async def test_a_call_that_names_nobody_still_says_what_it_asked_for(
    start, upstream, sink, monkeypatch
) -> None:
    export(monkeypatch, exporting(sink.port))
    running = await start({"up": base(upstream.url)})
    secret = "sk-proj-aB3dE5gH7jK9mN1pQ3rS"
    asked = f"/nobody/v1/x/{secret}?key={secret}"
    assert (await call(running.port, asked, "PURGE")).status == 404
    await until(sink.spans)
    (span,) = sink.spans()
    told = span["attributes"]
    assert told["url.path"] == "/nobody/v1/x/[redacted]"
    assert (span["name"], told["http.request.method"]) == ("HTTP", "_OTHER")
    assert "http.route" not in told
    assert secret not in sink.file.read_text()


async def test_a_repeated_request_is_a_span_of_its_own(start, upstream, sink, monkeypatch) -> None:
    """The one thing that is sent again today: a GET on a connection that had died."""
    export(monkeypatch, exporting(sink.port))
    running = await start({"up": base(upstream.url)})
    seen = 0

    async def script(visit: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            visit.reset()
            return
        await visit.send(answer(200, b"{}"))

    upstream.script = script
    for _ in range(2):
        assert (await call(running.port, "/up/v1/models", "GET")).status == 200
    await until(lambda: len(sink.spans()) >= 5)
    clients = [span for span in sink.spans() if span["kind"] == "SPAN_KIND_CLIENT"]
    again = [span for span in clients if "http.request.resend_count" in span["attributes"]]
    assert [span["attributes"]["http.request.resend_count"] for span in again] == [1]
    (dead,) = [span for span in clients if span["attributes"].get("error.type")]
    assert dead["attributes"]["error.type"] == "connection_closed"
    sent = [request.get(b"traceparent").split(b"-")[2].decode() for request in upstream.requests]
    assert sorted(sent) == sorted(span["spanId"] for span in clients)


@pytest.mark.parametrize(
    ("headers", "continued"),
    [
        ([("Traceparent", f"00-{TRACE}-b7ad6b7169203331-01"), ("tracestate", "a=1"),
          ("Tracestate", "b=2"), ("baggage", "k=v")], True),
        ([("traceparent", f"00-{TRACE}-b7ad6b7169203331-03")], True),
        ([("traceparent", f"cc-{TRACE}-b7ad6b7169203331-01-what-comes-later")], True),
        ([("TRACEPARENT", "garbage"), ("tracestate", "a=1"), ("baggage", "k=v")], False),
        ([("traceparent", f"00-{TRACE.upper()}-b7ad6b7169203331-01")], False),
        ([("traceparent", f"00-{'0' * 32}-b7ad6b7169203331-01")], False),
        ([("traceparent", f"ff-{TRACE}-b7ad6b7169203331-01")], False),
        ([("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"),
          ("TraceParent", f"00-{TRACE}-b7ad6b7169203332-01"), ("tracestate", "a=1")], False),
        ([("tracestate", "a=1"), ("baggage", "k=v")], False),
    ],
)  # fmt: skip
async def test_f162_never_two_and_never_a_broken_one(
    start, upstream, sink, monkeypatch, headers, continued
) -> None:
    export(monkeypatch, exporting(sink.port))
    running = await start({"up": base(upstream.url)})
    assert (await call(running.port, "/up/x", "GET", None, *headers)).status == 200
    sent = upstream.requests[0].headers
    parents = [value for name, value in sent if name.lower() == b"traceparent"]
    assert len(parents) == 1
    match = re.fullmatch(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-0[13]", parents[0])
    assert match is not None
    assert (match[1].decode() == TRACE) is continued
    states = [value for name, value in sent if name.lower() == b"tracestate"]
    given = [value.encode() for name, value in headers if name.lower() == "tracestate"]
    assert states == (given if continued else [])
    # Baggage is nobody's business here.
    assert [v for n, v in sent if n == b"baggage"] == [
        value.encode() for name, value in headers if name == "baggage"
    ]


async def test_who_is_not_sampled_passes_untouched(start, upstream, sink, monkeypatch) -> None:
    export(monkeypatch, exporting(sink.port))
    running = await start({"up": base(upstream.url)})
    headers = [("traceparent", f"00-{TRACE}-b7ad6b7169203331-00"), ("tracestate", "a=1")]
    await call(running.port, "/up/x", "GET", None, *headers)
    sent = [(name.encode(), value.encode()) for name, value in headers]
    assert upstream.requests[0].headers[1:] == sent


async def test_a_new_trace_bears_the_id_of_the_correlation(
    start, upstream, sink, monkeypatch
) -> None:
    export(monkeypatch, exporting(sink.port))
    running = await start({"up": base(upstream.url)})
    found = await call(running.port, "/up/x", "GET")
    await until(lambda: len(sink.spans()) >= 2)
    assert {span["traceId"] for span in sink.spans()} == {found.get("x-correlation-id")}


BAD = {
    "refuses": 0,
    "takes no answer": 200,
    "says 503, come back in an hour": 503,
    "says 400": 400,
    "speaks no HTTP": -1,
    "drips": -1,
    "floods": -1,
}


async def _garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"\x00\x01 no protocol at all\n")
    writer.close()


_ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n\r\n"
_speaking: set[asyncio.Task[Any]] = set()


def _without_end(piece: bytes, pause: float) -> Any:
    """A collector whose answer has a head and then no end."""

    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        _speaking.add(task)
        try:
            writer.write(_ENDLESS)
            while True:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
        except ConnectionError:
            pass
        finally:
            writer.close()
            _speaking.discard(task)

    return speak


SPEAKERS = {
    "speaks no HTTP": _garbage,
    "drips": _without_end(b"\0", 0.05),
    "floods": _without_end(bytes(1 << 20), 0),
}


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("how", [*BAD, "has no name"])
async def test_f160_a_bad_collector_costs_no_call_and_no_exit(
    tmp_path, upstream, sink, how, protocol
) -> None:
    """A thousand spans into a black hole, then the end: no later than two seconds, and counted."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = sink.port
        server: asyncio.Server | None = None
        if how == "takes no answer":
            silent.listen(1)
            port = silent.getsockname()[1]
        elif how == "refuses":
            port = silent.getsockname()[1]
        elif how in SPEAKERS:
            server = await asyncio.start_server(SPEAKERS[how], "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
        else:
            sink.status = BAD.get(how, 200)
            sink.headers = {"Retry-After": "3600"}
        # Whoever says 200 has taken them, whatever else it says: then none may be lost, also where
        # the machine is too busy to send as fast as they come.
        taken = protocol != "grpc" and how in ("drips", "floods")
        queue = "2000" if taken else "200"
        environ = exporting(
            port, OTEL_EXPORTER_OTLP_PROTOCOL=protocol, OTEL_BSP_MAX_QUEUE_SIZE=queue
        )
        if how == "has no name":
            environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://collector.invalid:4318"
        process = Process(tmp_path / "p", {"up": base(upstream.url)}, environ=environ)
        try:
            await process.listening()
            upstream.script = says(answer(200, b"{}"))
            for _ in range(20):
                found = await asyncio.gather(
                    *(call(process.port, "/up/v1/models", "GET") for _ in range(25))
                )
                assert {one.status for one in found} == {200}
            text = (await admin(process, "/metrics")).body.decode()
            # F135: nor does it make the daemon, and so its pod, ill.
            for path in ("/healthz", "/readyz"):
                assert (await admin(process, path)).status == 200
            begun = time.monotonic()
            process.signal(signal.SIGTERM)
            assert await process.exit_code(10) == 0
            took = time.monotonic() - begun
            assert took < 2, took
            lines = process.lines()
        finally:
            await process.end()
            if server is not None:
                server.close()
            await until(lambda: not _speaking)
        assert not [line for line in lines if "text" in line]
        # Whatever it is that does not leave: one line a minute.
        assert len([one for one in lines if one["event"] == "telemetry.failing"]) <= 1
        lost = {one["signal"]: one["count"] for one in lines if one["event"] == "telemetry.lost"}
        assert lost.get("traces", 0) == (0 if taken else 1_000)
        assert "breaker_sidecar_telemetry_dropped_total" in text
        assert not [one for one in lines if one["event"] in ("fault", "listener.failed")]


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
async def test_a_certificate_that_cannot_be_read_costs_the_export_alone(
    process, upstream, sink, tmp_path, protocol
) -> None:
    environ = exporting(
        sink.port,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"https://127.0.0.1:{sink.port}",
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        OTEL_EXPORTER_OTLP_CERTIFICATE=str(tmp_path / "gone.pem"),
    )
    running = await process({"up": base(upstream.url)}, environ=environ)
    upstream.script = says(answer(200, b"{}"))
    assert (await call(running.port, "/up/v1/models", "GET")).status == 200
    running.signal(signal.SIGTERM)
    assert await running.exit_code(10) == 0
    told = [line["warning"] for line in running.lines("telemetry.warning")]
    assert len(told) == 3
    assert all("gone.pem" in one for one in told)
    assert not running.lines("fault")


async def test_a_certificate_that_is_none_adds_no_lines_of_a_library(
    process, upstream, sink, tmp_path
) -> None:
    (tmp_path / "none.pem").write_text("none")
    environ = exporting(
        sink.port,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"https://127.0.0.1:{sink.port}",
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
        OTEL_EXPORTER_OTLP_CERTIFICATE=str(tmp_path / "none.pem"),
    )
    running = await process({"up": base(upstream.url)}, environ=environ)
    await until(lambda: running.lines("telemetry.failing"))
    running.signal(signal.SIGTERM)
    assert await running.exit_code(10) == 0
    assert all(line.startswith("{") for line in running.log.read_text().splitlines())


async def test_a_reading_that_fails_is_no_failure_of_the_exit(
    start, upstream, sink, monkeypatch
) -> None:
    export(monkeypatch, exporting(sink.port, OTEL_METRIC_EXPORT_INTERVAL="3600000"))
    running = await start({"up": base(upstream.url)})

    def broken(*_: object) -> None:
        raise RuntimeError("no reading")

    with monkeypatch.context() as patched:
        patched.setattr("sidecar.telemetry.export.readings.read", broken)
        await running.daemon.close()
    assert [fault.where for fault in running.faults] == ["telemetry"]
    running.faults.clear()


def test_nothing_is_loaded_without_an_endpoint() -> None:
    """Nor by anybody else: pybreaker would load Redis's client, and that one OpenTelemetry."""
    code = (
        "import sys, sidecar.daemon, sidecar.cli.serve\n"
        "heavy = {'opentelemetry', 'google', 'grpc', 'requests', 'redis', 'rich'}\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


async def test_settings_are_the_standard_ones(start, upstream, sink, log, monkeypatch) -> None:
    export(monkeypatch, {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{sink.port}/v1/traces",
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20sk-collector-12345678,x-team=night",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
    })  # fmt: skip
    running = await start({"up": base(upstream.url)})
    await ask(running)
    await until(lambda: sink.spans())
    assert sink.seen[0]["authorization"] == "Bearer sk-collector-12345678"
    assert sink.seen[0]["x-team"] == "night"
    assert sink.seen[0]["content-type"] == "application/x-protobuf"
    assert not sink.points(OWN + "calls")
    assert not sink.records()
    assert "sk-collector" not in json.dumps(log.lines())
