"""The kinds of calls: what is asked, what the upstream does about it, and what may come of it.

Caller and upstream are different processes that know nothing of each other but this file: the query
of a call names its kind and its id, and every body follows from the two.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

MODELS = 3
"""Models of each kind: enough for breakers of their own, and few enough to open."""

EVENTS = 12
FULL = 300 * 1024
"""Bytes of a large body: more than a connection buffers."""


class Kind(NamedTuple):
    """One kind of call.

    Attributes:
        provider: which of the daemon's it goes to.
        weight: how often it is drawn.
        verdict: what the breaker hears of it; None where no breaker is asked.
        statuses: what the caller may be sent if the upstream was asked and did what it should.
        decisions: what `x-sidecar-decision` may say then.
        path: of the route.
        method: of the request.
        safe: the daemon may send it again, once.
    """

    provider: str
    weight: int
    verdict: str | None
    statuses: tuple[int, ...] = (200,)
    decisions: tuple[str, ...] = ("forwarded",)
    path: str = "/v1/chat/completions"
    method: str = "POST"

    @property
    def safe(self) -> bool:
        return self.method in ("GET", "HEAD", "OPTIONS")


KINDS: dict[str, Kind] = {
    # What goes well.
    "ok": Kind("calm", 300, "success"),
    "get": Kind("calm", 60, "success", path="/v1/models", method="GET"),
    "stream": Kind("calm", 60, "success"),
    "claude": Kind("claude", 40, "success", path="/v1/messages"),
    "upload": Kind("calm", 12, "success"),
    "chunked": Kind("calm", 20, "success"),
    "download": Kind("calm", 12, "success", path="/v1/files/x/content", method="GET"),
    "dribble": Kind("calm", 6, "success"),
    "slow_reader": Kind("calm", 3, "success", path="/v1/files/x/content", method="GET"),
    "passing": Kind("passing", 20, "success"),
    "socket": Kind("calm", 6, "success", (101,), path="/v1/realtime", method="GET"),
    # What is the caller's own fault, whatever it wears.
    "typo": Kind("calm", 30, "alive", (404,)),
    "key": Kind("calm", 10, "alive", (401,)),
    "spent": Kind("spent", 10, "alive", (402,)),
    "throttle": Kind("limited", 10, "throttle", (429,)),
    "limited_ok": Kind("limited", 20, "success"),
    # What is the upstream's.
    "boom": Kind("rough", 12, "failure", (500,)),
    "cut_body": Kind("rough", 6, "failure", (502,), ("upstream_error",)),
    "cut_large": Kind("rough", 4, "failure", path="/v1/files/x/content", method="GET"),
    "cut_stream": Kind("rough", 8, "failure"),
    "error_event": Kind("rough", 6, "failure"),
    "reset": Kind("rough", 6, "failure", (502,), ("upstream_error",)),
    "hang": Kind("rough", 3, "failure", (504,), ("timeout",)),
    "silence": Kind("rough", 3, "failure"),
    "page": Kind("rough", 4, "failure", (502, 503)),
    "rough_ok": Kind("rough", 60, "success"),
    "flaky": Kind("retried", 20, "success", (200, 503)),
    "narrow": Kind("narrow", 30, "success"),
    # Callers that do not behave.
    "leave_waiting": Kind("calm", 8, "neutral"),
    "leave_streaming": Kind("calm", 8, "neutral"),
    "stuck_reader": Kind("calm", 1, "neutral", path="/v1/files/x/content", method="GET"),
    "stuck_sender": Kind("calm", 1, "neutral"),
    # What never leaves.
    "bad_request": Kind("calm", 4, None, (400,), ("bad_request",), "/x#fragment", "GET"),
    "unknown": Kind("nobody", 4, None, (404,), ("unknown_provider",), "/v1/x", "GET"),
    "foreign": Kind("calm", 4, None, (403,), ("forbidden_host",), "/v1/x", "GET"),
    "too_large": Kind("narrow", 3, None, (413,), ("too_large",)),
}

GOOD = {
    "ok",
    "get",
    "upload",
    "chunked",
    "dribble",
    "passing",
    "limited_ok",
    "rough_ok",
    "flaky",
    "narrow",
}
"""Kinds that are answered with `completion`."""

LARGE = {"download", "slow_reader", "stuck_reader", "cut_large"}

LEAVING = {"leave_waiting", "leave_streaming"}

STUCK = {"stuck_reader", "stuck_sender"}


def model_of(kind: str, number: int) -> str:
    """Which model a call asks for."""
    return f"{kind}-{number % MODELS}"


def request_body(kind: str, id_: str, number: int) -> bytes:
    """What is asked."""
    document = {
        "model": model_of(kind, number),
        "id": id_,
        "messages": [{"role": "user", "content": id_}],
    }
    if kind in ("upload", "chunked", "too_large"):
        document["pad"] = id_ * (FULL // len(id_) if kind != "chunked" else 400)
    return json.dumps(document).encode()


def completion(id_: str) -> bytes:
    """A good answer, which belongs to one call alone."""
    choice = {"message": {"role": "assistant", "content": f"for {id_}"}, "finish_reason": "stop"}
    return json.dumps({"id": id_, "object": "chat.completion", "choices": [choice]}).encode()


def large(id_: str) -> bytes:
    """Bytes of no meaning, which belong to one call alone."""
    seed = hashlib.blake2b(id_.encode(), digest_size=32).digest()
    # Nobody's buffers hold what is meant to be stuck.
    return seed * (FULL // len(seed)) * (64 if id_.startswith("stuck") else 1)


def events(kind: str, id_: str) -> list[bytes]:
    """The events of a stream, in the words of its provider, without its end."""
    if kind == "claude":
        said = [
            ("message_start", {"message": {"id": id_, "role": "assistant", "content": []}}),
            *(
                (
                    "content_block_delta",
                    {"index": 0, "delta": {"type": "text_delta", "text": f"{id_} {n}"}},
                )
                for n in range(EVENTS)
            ),
        ]
        return [_event(name, {"type": name, **held}) for name, held in said]
    return [
        _event(None, {"id": id_, "choices": [{"index": 0, "delta": {"content": f"{id_} {n}"}}]})
        for n in range(EVENTS)
    ]


def ending(kind: str) -> bytes:
    """The end of a stream that is whole."""
    if kind == "claude":
        return _event("message_stop", {"type": "message_stop"})
    stop = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return _event(None, stop) + b"data: [DONE]\n\n"


def _event(name: str | None, value: object) -> bytes:
    line = b"data: " + json.dumps(value).encode() + b"\n\n"
    return line if name is None else b"event: " + name.encode() + b"\n" + line


def failure(kind: str) -> tuple[int, bytes, list[bytes]]:
    """Status, body and header lines of an answer that is an error."""
    errors: dict[str, tuple[int, str, str, list[bytes]]] = {
        # A typo in the dress of an outage, and a spent budget in that of a rate limit.
        "typo": (503, "model_not_found", "The model does not exist", []),
        "key": (401, "invalid_api_key", "Incorrect API key provided", []),
        "spent": (429, "insufficient_quota", "You exceeded your current quota", []),
        "throttle": (429, "rate_limit_exceeded", "Rate limit reached", [b"Retry-After: 1"]),
        "boom": (500, "server_error", "The server had an error", []),
        "flaky": (503, "server_error", "Try again", []),
    }
    status, code, message, lines = errors[kind]
    return (
        status,
        json.dumps({"error": {"message": message, "type": code, "code": code}}).encode(),
        lines,
    )
