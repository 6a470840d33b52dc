"""What OpenTelemetry's standard variables say; there are no settings of our own beside them.

Nothing is exported unless one of them names an endpoint. Log lines leave only if that is asked for
by itself, since whoever runs a collector usually reads standard error already.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from sidecar import __version__
from sidecar.config.addresses import without_user_info
from sidecar.telemetry.trace import Sampling

PREFIX: Final = "OTEL_EXPORTER_OTLP_"
SIGNALS: Final = ("traces", "metrics", "logs")
SHORTEST_TIMEOUT: Final = 0.1
LONGEST_TIMEOUT: Final = 60.0
_SERVICES: Final = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where one signal goes, and how.

    Attributes:
        signal: traces, metrics or logs.
        url: for HTTP the whole of it, for gRPC scheme, host and port.
        grpc: over gRPC, else protobuf over HTTP.
        headers: to send along; they may hold a token.
        timeout: seconds for one request.
        gzip: compress what is sent.
        certificate: file with the authorities to trust.
        client_certificate: file to show, with `client_key`.
        client_key: its key.
        insecure: gRPC without TLS.
    """

    signal: str
    url: str
    grpc: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    timeout: float = 10.0
    gzip: bool = False
    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    insecure: bool = False

    @property
    def shown(self) -> str:
        """The address for people, without a password or a query."""
        return without_user_info(self.url.partition("?")[0])

    @property
    def method(self) -> str:
        """The method of the gRPC service."""
        return _SERVICES[self.signal]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the variables say.

    Attributes:
        endpoints: by signal; a signal that is not exported is left out.
        resource: who speaks.
        sampling: which calls are traced.
        queue: spans that wait at most; as many log lines.
        batch: spans in one request.
        delay: seconds that a span waits at most.
        interval: seconds between two exports of the metrics.
        warnings: what was said and is not done.
    """

    endpoints: dict[str, Endpoint]
    resource: dict[str, str]
    sampling: Sampling
    queue: int = 2048
    batch: int = 512
    delay: float = 5.0
    interval: float = 60.0
    warnings: tuple[str, ...] = ()


def read(environ: Mapping[str, str]) -> Settings | None:
    """What is to be exported; None if nothing is, and nothing is to be said of it.

    Args:
        environ: the environment of the process.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    reader = _Reader(environ)
    endpoints: dict[str, Endpoint] = {}
    for signal in SIGNALS:
        found = reader.endpoint(signal)
        if found is not None:
            endpoints[signal] = found
    if not endpoints and not reader.warnings:
        return None
    queue = int(reader.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048, 1, 65_536))
    return Settings(
        endpoints=endpoints,
        resource=_resource(environ),
        sampling=reader.sampling(),
        queue=queue,
        batch=min(int(reader.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, 1, 8192)), queue),
        delay=reader.number("OTEL_BSP_SCHEDULE_DELAY", 5000, 1, 600_000) / 1000,
        interval=reader.number("OTEL_METRIC_EXPORT_INTERVAL", 60_000, 10, 86_400_000) / 1000,
        warnings=tuple(reader.warnings),
    )


class _Reader:
    """Reads variables, and notes what it cannot follow."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.warnings: list[str] = []

    def _of(self, signal: str, name: str) -> str | None:
        """A variable of a signal, else the one of all signals; empty is unset."""
        own = self._environ.get(f"{PREFIX}{signal.upper()}_{name}", "").strip()
        return own or self._environ.get(PREFIX + name, "").strip() or None

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number within its bounds; one that is none is the default, with a warning."""
        text = self._environ.get(name, "").strip()
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not least <= value <= most:
            self.warnings.append(f"{name} is no number from {least:g} to {most:g}: ignored")
            return default
        return value

    def endpoint(self, signal: str) -> Endpoint | None:
        """Where a signal goes; None if nowhere."""
        own = self._environ.get(f"{PREFIX}{signal.upper()}_ENDPOINT", "").strip()
        common = self._environ.get(f"{PREFIX}ENDPOINT", "").strip()
        chosen = self._environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower()
        exporters = {word.strip() for word in chosen.split(",") if word.strip()}
        if exporters and "otlp" not in exporters:
            if exporters != {"none"}:
                self.warnings.append(
                    f"OTEL_{signal.upper()}_EXPORTER: only otlp and none are known here"
                )
            return None
        if not (own or common) or (signal == "logs" and not (own or exporters)):
            return None
        protocol = self._of(signal, "PROTOCOL") or "http/protobuf"
        if protocol not in ("grpc", "http/protobuf"):
            self.warnings.append(f"OTLP over {protocol[:40]} is not spoken: http/protobuf is used")
        grpc = protocol == "grpc"
        url = own or (common if grpc else f"{common.rstrip('/')}/v1/{signal}")
        if grpc and "://" not in url:
            # The specification lets gRPC's endpoint be a bare host and port.
            secure = (self._of(signal, "INSECURE") or "").lower() != "true"
            url = f"{'https' if secure else 'http'}://{url}"
        if not _is_url(url):
            self.warnings.append(
                f"the OTLP endpoint for {signal} is no http or https URL: no {signal} are exported"
            )
            return None
        return Endpoint(
            signal=signal,
            url=url,
            grpc=grpc,
            headers=self._headers(signal),
            timeout=self._timeout(signal),
            gzip=(self._of(signal, "COMPRESSION") or "").lower() == "gzip",
            certificate=self._of(signal, "CERTIFICATE"),
            client_certificate=self._of(signal, "CLIENT_CERTIFICATE"),
            client_key=self._of(signal, "CLIENT_KEY"),
            insecure=urlsplit(url).scheme == "http",
        )

    def _timeout(self, signal: str) -> float:
        text = self._of(signal, "TIMEOUT")
        if text is None:
            return 10.0
        try:
            seconds = float(text) / 1000
        except ValueError:
            self.warnings.append("an OTLP timeout is no number of milliseconds: ignored")
            return 10.0
        # NaN compares with nothing and ends up at the longest.
        return max(SHORTEST_TIMEOUT, seconds) if seconds < LONGEST_TIMEOUT else LONGEST_TIMEOUT

    def _headers(self, signal: str) -> tuple[tuple[str, str], ...]:
        found: dict[str, str] = {}
        for pair in (self._of(signal, "HEADERS") or "").split(","):
            name, equals, value = pair.partition("=")
            name, value = name.strip().lower(), unquote(value.strip())
            if not equals or not name:
                continue
            if not (name.isascii() and value.isprintable() and value.isascii()):
                self.warnings.append("an OTLP header cannot be sent: ignored")
                continue
            found[name] = value
        return tuple(found.items())

    def sampling(self) -> Sampling:
        """Which calls are traced."""
        name = self._environ.get("OTEL_TRACES_SAMPLER", "").strip() or "parentbased_always_on"
        share = 1.0
        kind = name.removeprefix("parentbased_")
        if kind == "traceidratio":
            share = self.number("OTEL_TRACES_SAMPLER_ARG", 1.0, 0.0, 1.0)
        elif kind == "always_off":
            share = 0.0
        elif kind != "always_on":
            self.warnings.append(f"OTEL_TRACES_SAMPLER {name[:40]}: not known, all are traced")
        return sampler(share, parent_decides=name.startswith("parentbased_"))


def _is_url(url: str) -> bool:
    """Can a request be sent there at all?"""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # Brackets without an address, or a port that is none.
        return False


def sampler(share: float, *, parent_decides: bool) -> Sampling:
    """A decision by the trace id, the same in every process that sees the trace.

    Args:
        share: of the traces, 0 to 1.
        parent_decides: where the caller has a span, its sampling is followed.
    """
    limit = round(share * 2**56)

    def by_id(trace_id: str, _parent: bool | None) -> bool:  # noqa: FBT001 - the type's
        return share >= 1 or int(trace_id[-14:], 16) < limit

    def by_parent(trace_id: str, parent: bool | None) -> bool:  # noqa: FBT001
        return by_id(trace_id, parent) if parent is None else parent

    chosen: Callable[[str, bool | None], bool] = by_parent if parent_decides else by_id
    return chosen


def _resource(environ: Mapping[str, str]) -> dict[str, str]:
    found = {
        "service.name": "breaker-sidecar",
        "service.version": __version__,
        "service.instance.id": str(uuid.uuid4()),
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
    }
    for pair in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        name, equals, value = pair.partition("=")
        if equals and name.strip():
            found[name.strip()] = unquote(value.strip())
    name = environ.get("OTEL_SERVICE_NAME", "").strip()
    if name:
        found["service.name"] = name
    return found
