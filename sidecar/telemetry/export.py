"""What leaves for a collector, if one is configured; nothing of OpenTelemetry is loaded otherwise.

It puts together what `otlp` has: settings from the standard variables, a queue for spans and one
for log lines, and the metrics once each interval.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from sidecar import clock
from sidecar.telemetry import logs, readings
from sidecar.telemetry.observer import Fact, Fault, Observer
from sidecar.telemetry.otlp import settings
from sidecar.telemetry.readings import Source
from sidecar.telemetry.trace import Tracing

if TYPE_CHECKING:
    from sidecar.telemetry.otlp.batches import Batches, Complaints
    from sidecar.telemetry.otlp.points import Meter

CLOSING: Final = 1.0
"""Seconds for what is left at the exit; a collector that takes longer loses it."""


class Export:
    """Everything that is exported.

    Args:
        source: the daemon.
        environ: the standard variables of OpenTelemetry are read from it.

    Attributes:
        exported: what a collector took, by signal.
        dropped: what was lost, by signal.
        tracing: gives calls their places in traces.
    """

    def __init__(self, source: Source, environ: Mapping[str, str]) -> None:
        self._source = source
        self.exported: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.tracing = Tracing()
        self._settings = settings.read(environ)
        self._batches: dict[str, Batches] = {}
        self._complaints: dict[str, Complaints] = {}
        self._listener: Callable[[Fact], None] | None = None
        self._handler: logging.Handler | None = None
        self._meter: Meter | None = None
        self._metrics: asyncio.Task[None] | None = None
        self._observer: Observer | None = None
        self._warnings: list[str] = []
        if self._settings is not None:
            self._prepare(self._settings)

    # -- putting it together ----------------------------------------------------------------

    def _prepare(self, chosen: settings.Settings) -> None:
        """Load what is needed before the daemon listens, so that no call waits for it."""
        self._warnings = list(chosen.warnings)
        for signal, endpoint in chosen.endpoints.items():
            prepare = {
                "traces": self._prepare_traces,
                "metrics": self._prepare_metrics,
                "logs": self._prepare_logs,
            }[signal]
            try:
                prepare(chosen, endpoint)
            except (OSError, ImportError, ValueError) as error:
                # A certificate that cannot be read; the daemon is worth more than its traces.
                self._warnings.append(f"no {signal} are exported: {error}")
                self._batches.pop(signal, None)

    def _prepare_traces(self, chosen: settings.Settings, endpoint: settings.Endpoint) -> None:
        from sidecar.telemetry.otlp import spans  # noqa: PLC0415 - loaded only where it is needed

        batches = self._lane(endpoint, partial(spans.request, who=chosen.resource))
        self._listener = spans.Spans(self.tracing, self._upstream_of, batches.put)
        self.tracing.sampling = chosen.sampling

    def _prepare_metrics(self, chosen: settings.Settings, endpoint: settings.Endpoint) -> None:
        from sidecar.telemetry.otlp.points import Meter  # noqa: PLC0415

        # A reading that waits is out of date once the next one is there.
        self._lane(endpoint, _first, most=1, batch=1, weigh=_points)
        self._meter = Meter(chosen.resource, int(clock.wall() * 1e9))

    def _prepare_logs(self, chosen: settings.Settings, endpoint: settings.Endpoint) -> None:
        from sidecar.telemetry.otlp import records  # noqa: PLC0415

        batches = self._lane(endpoint, partial(records.request, who=chosen.resource))
        loop = asyncio.get_running_loop()

        def put(record: Any) -> None:
            # Any thread may log; the queue belongs to the loop.
            loop.call_soon_threadsafe(batches.put, record)

        self._handler = records.RecordHandler(put)

    def _lane(
        self, endpoint: settings.Endpoint, encode: Callable[..., bytes], **more: Any
    ) -> Batches:
        from sidecar.telemetry.otlp.batches import Batches, Complaints  # noqa: PLC0415
        from sidecar.telemetry.otlp.senders import sender  # noqa: PLC0415

        assert self._settings is not None
        chosen = self._settings
        collector = urlsplit(endpoint.shown).netloc or endpoint.shown
        batches = self._batches[endpoint.signal] = Batches(
            endpoint.signal,
            endpoint.shown,
            sender(endpoint),
            encode,
            self.exported,
            self.dropped,
            **{
                "most": chosen.queue,
                "batch": chosen.batch,
                "delay": chosen.delay,
                "complaints": self._complaints.setdefault(collector, Complaints()),
                **more,
            },
        )
        return batches

    def _upstream_of(self, provider: str) -> str | None:
        found = self._source.config.providers.get(provider)
        return None if found is None else found.upstream

    # -- at work ----------------------------------------------------------------------------

    def start(self, observer: Observer) -> None:
        """Begin to export.

        Args:
            observer: states the facts.
        """
        self._observer = observer
        for warning in self._warnings:
            logs.event("telemetry.warning", level=logging.WARNING, warning=warning)
        if self._listener is not None:
            observer.add(self._listener)
        if self._handler is not None:
            logging.getLogger().addHandler(self._handler)
        for batches in self._batches.values():
            batches.start()
        if self._meter is not None:
            self._metrics = asyncio.get_running_loop().create_task(self._measure())

    async def _measure(self) -> None:
        assert self._settings is not None
        while True:
            await asyncio.sleep(self._settings.interval)
            await self._read()

    async def _read(self) -> None:
        """Read everything here, in the loop; turn it into bytes elsewhere. Never raises."""
        assert self._meter is not None
        try:
            reading = readings.read(self._source, clock.monotonic())
            now = int(clock.wall() * 1e9)
            made = await asyncio.to_thread(self._meter.encode, reading, now)
            self._batches["metrics"].put(made)
        except Exception as error:  # noqa: BLE001 - neither the next reading nor the exit is lost
            if self._observer is not None:
                self._observer.emit(Fault(at=clock.wall(), where="telemetry", error=error))

    async def close(self) -> None:
        """Send what is left, for a short time at most."""
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)
        try:
            async with asyncio.timeout(CLOSING):
                if self._metrics is not None:
                    self._metrics.cancel()
                    await self._read()
                # What was logged a moment ago is on its way into the queue.
                await asyncio.sleep(0)
                await asyncio.gather(*(one.close() for one in self._batches.values()))
        except TimeoutError:
            pass
        for signal, count in self.dropped.items():
            if count:
                logs.event("telemetry.lost", level=logging.WARNING, signal=signal, count=count)


Made = tuple[bytes, int]
"""A request of metrics, and how many points are in it."""


def _first(items: list[Made]) -> bytes:
    return items[0][0]


def _points(item: Made) -> int:
    return item[1]
