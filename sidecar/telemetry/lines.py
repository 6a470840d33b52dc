"""How a log record becomes a line, and how the line leaves without ever holding a call up.

JSON lines for machines, columns for a terminal, both on standard error, both ASCII, so that
nothing in a model's name or an upstream's words can forge a line or steer a terminal. Every text
is redacted and cut here, whoever logged it. A reader that stalls (a full pipe, a stopped terminal)
must not stall the event loop: a thread writes, behind a bounded queue; what does not fit is
dropped, counted, and the count is reported once there is room.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import queue
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Any, TextIO

from sidecar.envelope.redact import redact_text

FACTS = "facts"
"""The attribute of a record that carries its fields."""

_LONGEST_TEXT = 1_000
_SHORT_TEXT = 128
_MOST_ITEMS = 100
_DEEPEST = 4
_MOST_FRAMES = 20
_QUEUED_LINES = 4_096
_CLOSE_SECONDS = 1.0
_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    "._:/#~%+@-,;()[]*!?$&<>|^`'"
)  # fmt: skip
_SHORT_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}


def clean(value: Any, depth: int = 0) -> Any:
    """A value as it may stand in a log: JSON types only, redacted, of bounded size."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Enum):
        return clean(value.value, depth)
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            items = list(value.items())[:_MOST_ITEMS]
            return {_clean_text(str(name)): clean(item, depth + 1) for name, item in items}
        if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
            return [clean(item, depth + 1) for item in list(value)[:_MOST_ITEMS]]
    return _clean_text(str(value))


def _clean_text(text: str) -> str:
    # Most fields hold the same few words on every line, and redaction is most of a line's cost.
    if len(text) <= _SHORT_TEXT:
        return _redact_short(text)
    # Cut twice: redaction need not search a megabyte, and what it puts in may be longer.
    text = redact_text(text[: 4 * _LONGEST_TEXT])
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."


_redact_short = functools.lru_cache(maxsize=1_024)(redact_text)


def exception_facts(error: BaseException) -> dict[str, Any]:
    """An exception as fields: its type, its words, and where it was raised.

    The words of an HTTP parser quote the headers that it could not read, so they are left out;
    source lines are left out because they say nothing that the place does not.
    """
    kind = type(error)
    facts: dict[str, Any] = {"error": f"{kind.__module__}.{kind.__qualname__}"}
    if not kind.__module__.startswith("aiohttp.http"):
        facts["error_message"] = _clean_text(str(error))
    frames = traceback.extract_tb(error.__traceback__)[-_MOST_FRAMES:]
    facts["traceback"] = [
        f"{'/'.join(frame.filename.replace(chr(92), '/').split('/')[-3:])}"
        f":{frame.lineno} {frame.name}"
        for frame in frames
    ]
    return facts


_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def fields_of(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """A record's event and its fields, cleaned."""
    facts = getattr(record, FACTS, None)
    event = record.getMessage()
    fields: dict[str, Any] = {}
    if not isinstance(facts, Mapping):
        # Not one of our records: a library's own words, with the name of who spoke.
        event = _clean_text(event)
        fields["logger"] = record.name
    else:
        fields.update({str(name): clean(value) for name, value in facts.items()})
    if record.exc_info and record.exc_info[1] is not None:
        fields.update(exception_facts(record.exc_info[1]))
    return event, fields


def _stamp(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `event`, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        event, fields = fields_of(record)
        line = {"time": _stamp(record.created), "level": record.levelname.lower(), "event": event}
        for name, value in fields.items():
            line.setdefault(name, value)
        return json.dumps(line, separators=(",", ":"))


class TextFormatter(logging.Formatter):
    """Columns for a person: local time, level, event, then `name=value`; empty ones left out."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        event, fields = fields_of(record)
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = _SHORT_LEVELS.get(record.levelname, record.levelname)
        words = [clock, f"{level:<5}", _text(event, bare_spaces=True)]
        words += [
            f"{name}={_text(value)}"
            for name, value in fields.items()
            if value is not None and value not in ("", [], {})
        ]
        return " ".join(words)


def _text(value: Any, *, bare_spaces: bool = False) -> str:
    if isinstance(value, str):
        plain = value.replace(" ", "") if bare_spaces else value
        if plain and _PLAIN.issuperset(plain):
            return value
    return json.dumps(value, separators=(",", ":"))


class LineHandler(logging.Handler):
    """Writes lines to a stream from a thread of its own; never blocks, never raises.

    Attributes:
        dropped: lines that found the queue full, or that could not be made.
    """

    def __init__(self, stream: TextIO, capacity: int = _QUEUED_LINES) -> None:
        super().__init__()
        self._stream = stream
        self._queue: queue.Queue[str | None] = queue.Queue(capacity)
        self._thread: threading.Thread | None = None
        self._reported = 0
        self.dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Format here, since the facts may change; write there."""
        try:
            self._queue.put_nowait(self.format(record))
        except Exception:  # noqa: BLE001 - a line is never worth a call
            self.dropped += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="log", daemon=True)
            self._thread.start()

    def _write(self) -> None:
        while (line := self._queue.get()) is not None:
            try:
                self._stream.write(line + "\n")
                if self._queue.empty():
                    self._report_dropped()
                    self._stream.flush()
            except (OSError, ValueError):
                self.dropped += 1
            finally:
                self._queue.task_done()
        self._queue.task_done()

    def _report_dropped(self) -> None:
        lost = self.dropped - self._reported
        if lost:
            self._reported += lost
            facts = {FACTS: {"count": lost}}
            fields = {"msg": "log.dropped", "levelname": "WARNING", "levelno": logging.WARNING}
            self._stream.write(self.format(logging.makeLogRecord(fields | facts)) + "\n")

    def flush(self) -> None:
        """Wait until what was logged is written, for a second at most."""
        if self._thread is None or threading.current_thread() is self._thread:
            return
        deadline = time.monotonic() + _CLOSE_SECONDS
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks:
                left = deadline - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    return
                self._queue.all_tasks_done.wait(left)

    def close(self) -> None:
        """Write what is left, for a second at most, and end the thread."""
        self.flush()
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                self._queue.put_nowait(None)
            except queue.Full:
                pass
            else:
                thread.join(_CLOSE_SECONDS / 4)
        super().close()
