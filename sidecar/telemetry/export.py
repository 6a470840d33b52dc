"""What leaves for a collector, if one is configured; nothing of OpenTelemetry is loaded otherwise.

A skeleton until the exporters are there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sidecar.telemetry.readings import Source
from sidecar.telemetry.trace import Tracing


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
        self._environ = environ
        self.exported: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.tracing = Tracing()

    def start(self) -> None:
        """Begin to export."""

    async def close(self) -> None:
        """Send what is left, for a short time at most."""
