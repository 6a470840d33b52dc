"""The daemon as it is, with a window: on SIGUSR2 it writes what it holds in memory to its log.

    python -m bench.soak.inside serve --config …

Nothing else is different. What is shown are tasks, and the objects that belong to calls: of a
daemon at rest there are none.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections import Counter

TRACE = "SOAK_TRACE"
"""Names the file for a line of every call."""

OF_CALLS = {
    "Call", "Incoming", "Outgoing", "Forwarding", "Exchange", "Relay", "WebSocketRelay", "Judge",
    "Connection", "UpstreamProtocol", "StreamReader", "Scanner", "Admission", "Passage", "Ticket",
    "Repeats", "Lease", "Clock",
}  # fmt: skip


def tell(*_: object) -> None:
    """Writes one line; runs between two steps of the loop."""
    gc.collect()
    found: Counter[str] = Counter()
    tasks: list[str] = []
    for thing in gc.get_objects():
        kind = type(thing)
        if kind.__name__ in OF_CALLS and kind.__module__.startswith("sidecar"):
            found[kind.__name__] += 1
        elif isinstance(thing, asyncio.Task) and not thing.done():
            tasks.append(getattr(thing.get_coro(), "__qualname__", "?"))
    line = {"event": "soak.inside", "tasks": Counter(tasks), "objects": found}
    os.write(2, json.dumps(line).encode() + b"\n")


def trace(file: int) -> None:
    """Writes a line for every call that is over: to find the one that does not add up."""
    from sidecar import daemon  # noqa: PLC0415 - loaded when it is wanted
    from sidecar.telemetry import observer  # noqa: PLC0415

    def hear(fact: observer.Fact) -> None:
        if isinstance(fact, observer.CallFinished):
            ending, verdict = observer.ending_of(fact), fact.verdict or "-"
            line = f"{fact.correlation_id} {fact.decision} {fact.status} {verdict} {ending}\n"
            os.write(file, line.encode())

    def heard_too(*listeners: observer.Listener) -> observer.Observer:
        return observer.Observer(*listeners, hear)

    daemon.Observer = heard_too  # type: ignore[misc,assignment] # it is a window


def main() -> int:
    signal.signal(signal.SIGUSR2, tell)
    from sidecar.cli import main as daemon  # noqa: PLC0415 - the handler is there first

    if file := os.environ.get(TRACE):
        trace(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    return daemon(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
