"""The lines of the log as records of OTLP, with the same names as on standard error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

from sidecar.telemetry.lines import fields_of
from sidecar.telemetry.otlp.values import SCOPE, pairs, resource, text

_SEVERITIES: Final = ((logging.CRITICAL, 21), (logging.ERROR, 17), (logging.WARNING, 13),
                      (logging.INFO, 9))  # fmt: skip
_DEBUG: Final = 5


class RecordHandler(logging.Handler):
    """Hands every line on as a record.

    Args:
        put: takes it; called in the thread that logs.
    """

    def __init__(self, put: Callable[[LogRecord], None]) -> None:
        super().__init__()
        self._put = put

    def emit(self, record: logging.LogRecord) -> None:
        """Format here, since the facts may change; a line is never worth a call."""
        try:
            self._put(record_of(record))
        except Exception:  # noqa: BLE001
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Nothing: standard error has the line, and an error here must not make another."""


def record_of(record: logging.LogRecord) -> LogRecord:
    """One line: its event is the name and the body, its facts are attributes, cleaned alike."""
    event, facts = fields_of(record)
    trace_id, span_id = facts.pop("trace_id", None), facts.pop("span_id", None)
    flags = facts.pop("trace_flags", None)
    time = int(record.created * 1e9)
    severity = next((one for least, one in _SEVERITIES if record.levelno >= least), _DEBUG)
    return LogRecord(
        time_unix_nano=time,
        observed_time_unix_nano=time,
        severity_number=severity,  # type: ignore[arg-type] # the numbers of the enum
        severity_text=record.levelname,
        event_name=text(event) if "logger" not in facts else "",
        body=AnyValue(string_value=text(event)),
        attributes=pairs(facts),
        trace_id=bytes.fromhex(trace_id) if trace_id else b"",
        span_id=bytes.fromhex(span_id) if span_id else b"",
        flags=int(flags, 16) if flags else 0,
    )


def request(records: Sequence[LogRecord], who: Mapping[str, str]) -> bytes:
    """One request for the collector."""
    scope = ScopeLogs(scope=SCOPE, log_records=records)
    found = ResourceLogs(resource=resource(who), scope_logs=[scope])
    return bytes(ExportLogsServiceRequest(resource_logs=[found]).SerializeToString())
