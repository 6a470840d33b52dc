"""What one classification costs, in this process and beside `json.loads` of the same body."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.upstream import COMPLETION
from sidecar.envelope.dialects import get
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import Seen

if TYPE_CHECKING:
    from bench.scenarios import Bench

_WORDS = (
    "The model's maximum context length is 8192 tokens. However, your messages resulted in 10061"
    " tokens. Please reduce the length of the messages or of the tools that you offer. "
)
_HEAD = Headers(
    [
        ("Content-Type", "application/json"),
        ("Date", "Mon, 30 Nov 2026 12:00:00 GMT"),
        ("x-request-id", "req_0a1b2c3d4e"),
        ("openai-organization", "org"),
        ("openai-processing-ms", "12"),
    ]
)


def _error(size: int) -> bytes:
    error = {
        "message": "",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "x_too_long",
    }
    room = size - len(json.dumps({"error": error}))
    error["message"] = (_WORDS * (room // len(_WORDS) + 1))[:room]
    return json.dumps({"error": error}).encode()


def _good(size: int) -> bytes:
    answer = json.loads(COMPLETION)
    message = answer["choices"][0]["message"]
    message["content"] += " And so on." * ((size - len(COMPLETION)) // len(" And so on."))
    return json.dumps(answer).encode()


KINDS = {
    "error 1 KiB": (400, _error(1024)),
    "outage 1 KiB": (503, _error(1024)),
    "good 2 KiB": (200, _good(2048)),
}
NEVER_SEEN = "error 1 KiB, never seen"
"""The same, each time with another number in it: nothing that is remembered helps."""


def measure(bench: Bench) -> None:
    """Errors and a good answer of one dialect."""
    dialect = get("openai")
    for name, (status, body) in KINDS.items():
        seen = Seen(
            status=status, headers=_HEAD, body=body, path="/v1/chat/completions", now=1796040000.0
        )
        found = bench.results.setdefault("classify", {}).setdefault(name, {})
        for _ in range(bench.plan.rounds):
            took = _best(lambda seen=seen: classify(seen, dialect))  # type: ignore[misc]
            beside = _best(lambda body=body: json.loads(body))  # type: ignore[misc]
            for key, value in (("us", took), ("json_us", beside), ("to_json", took / beside)):
                found.setdefault(key, []).append(value)
    found = bench.results["classify"].setdefault(NEVER_SEEN, {})
    for _ in range(bench.plan.rounds):
        bodies = itertools.cycle([_error(1024).replace(b"8192", b"%04d" % n) for n in range(2000)])
        took = _best(
            lambda bodies=bodies: classify(  # type: ignore[misc]
                Seen(status=400, headers=_HEAD, body=next(bodies), path="/v1/chat/completions"),
                dialect,
            )
        )
        found.setdefault("us", []).append(took)
    bench.say("  classify: done")


def _best(call: Callable[[], object], times: int = 2000) -> float:
    """Microseconds of one call, in the best of five runs: other work only adds."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(times):
            call()
        best = min(best, time.perf_counter() - began)
    return best / times * 1e6
