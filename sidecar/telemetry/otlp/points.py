"""The metrics over OTLP: observable instruments of the SDK that read what `/metrics` shows.

The SDK has no observable histogram, and nothing of it belongs on a call's way; so the points of
ours are put beside what its reader collects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import (
    MeterProvider,
    ObservableCounter,
    ObservableGauge,
)
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    MetricsData,
)
from opentelemetry.sdk.metrics.export import Histogram as Points
from opentelemetry.sdk.resources import Resource

from sidecar import __version__
from sidecar.telemetry.figures import Histogram
from sidecar.telemetry.instruments import INSTRUMENTS, NAMESPACE, Instrument, Kind
from sidecar.telemetry.otlp.values import text
from sidecar.telemetry.readings import Reading, Sample

MOST_SERIES: Final = 1_000_000
"""Of one instrument; the bounds are our own, and the SDK's would cut a large configuration."""


class Meter:
    """Turns readings into requests for a collector.

    Args:
        who: the resource.
        started: when counting began, nanoseconds since the epoch.
    """

    def __init__(self, who: Mapping[str, str], started: int) -> None:
        self._started = started
        self._samples: dict[str, list[Sample]] = {}
        limits: dict[Any, int] = {ObservableCounter: MOST_SERIES, ObservableGauge: MOST_SERIES}
        self._reader = InMemoryMetricReader(cardinality_limits=limits)
        provider = MeterProvider(
            metric_readers=[self._reader],
            resource=Resource(dict(who)),
            shutdown_on_exit=False,
        )
        meter = provider.get_meter(NAMESPACE, __version__)
        for one in INSTRUMENTS:
            if one.kind is Kind.HISTOGRAM:
                continue
            make = (
                meter.create_observable_counter
                if one.kind is Kind.COUNTER
                else meter.create_observable_gauge
            )
            make(one.name, [partial(self._observe, one)], unit=one.unit, description=one.meaning)

    def _observe(self, one: Instrument, _options: CallbackOptions) -> Iterable[Observation]:
        for labels, value in self._samples.get(one.name, ()):
            if not isinstance(value, Histogram):
                yield Observation(value, _attributes(one, labels))

    def encode(self, reading: Reading, now: int) -> tuple[bytes, int]:
        """One request for the collector, and how many points are in it.

        Args:
            reading: what is shown; it must not change any more, for this may run in a thread.
            now: when it was read, nanoseconds since the epoch.
        """
        self._samples = {one.name: samples for one, samples in reading}
        data = self._reader.get_metrics_data()
        assert isinstance(data, MetricsData)
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        # The SDK hands a list out, and nobody else holds it.
        assert isinstance(metrics, list)
        metrics += [
            self._histogram(one, samples, now)
            for one, samples in reading
            if one.kind is Kind.HISTOGRAM
        ]
        points = sum(len(samples) for _, samples in reading)
        return encode_metrics(data).SerializeToString(), points

    def _histogram(self, one: Instrument, samples: list[Sample], now: int) -> Metric:
        points = [
            HistogramDataPoint(
                attributes=_attributes(one, labels),
                start_time_unix_nano=self._started,
                time_unix_nano=now,
                count=sum(value.counts),
                sum=value.total,
                bucket_counts=value.counts,
                explicit_bounds=value.bounds,
                min=None,  # type: ignore[arg-type] # optional in the protocol; nobody keeps it here
                max=None,  # type: ignore[arg-type]
            )
            for labels, value in samples
            if isinstance(value, Histogram)
        ]
        return Metric(
            name=one.name,
            description=one.meaning,
            unit=one.unit,
            data=Points(
                data_points=points, aggregation_temporality=AggregationTemporality.CUMULATIVE
            ),
        )


def _attributes(one: Instrument, labels: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(one.labels, map(text, labels), strict=True))
