"""The actors of the demo: an upstream that lies, a caller that retries, a status-only breaker.

None of them knows the daemon. The caller follows the rule of the official SDKs, so that what it
does with and without a daemon in between is what a real program would do.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from sidecar import clock

GOOD_MODEL = "gpt-demo"
OTHER_MODEL = "gpt-demo-mini"
MISSPELT_MODEL = "gpt-dmeo"
_PATH = "/v1/chat/completions"


class Health(StrEnum):
    """What the upstream does with calls for `GOOD_MODEL`; `OTHER_MODEL` is well throughout."""

    WELL = "well"
    BROKEN = "broken"
    SLOW = "slow"


class LyingUpstream:
    """An API on loopback that answers a misspelt model with 503, as some gateways do.

    Attributes:
        health: what it does at the moment.
        requests: how many requests it has seen, by model.
        delay: seconds that `SLOW` takes.
    """

    def __init__(self, delay: float) -> None:
        self.health = Health.WELL
        self.requests: Counter[str] = Counter()
        self.delay = delay
        self._lock = threading.Lock()
        upstream = self

        class Handler(socketserver.StreamRequestHandler):
            disable_nagle_algorithm = True

            def handle(self) -> None:
                while (body := _read_request(self.rfile)) is not None:
                    self.wfile.write(_response(*upstream.answer(str(body.get("model")))))

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return int(self._server.server_address[1])

    @property
    def total(self) -> int:
        """All requests that it has seen."""
        with self._lock:
            return self.requests.total()

    def answer(self, model: str) -> tuple[int, dict[str, Any]]:
        """Status and body for a request of that model; counts it."""
        with self._lock:
            self.requests[model] += 1
            health = self.health
        if model == MISSPELT_MODEL:
            return 503, _error(
                f"The model `{model}` does not exist", "invalid_request_error", "model_not_found"
            )
        if health is Health.BROKEN and model == GOOD_MODEL:
            return 500, _error("The server had an error", "server_error", None)
        if health is Health.SLOW and model == GOOD_MODEL:
            time.sleep(self.delay)
        message = {"role": "assistant", "content": "Hello."}
        return 200, {
            "id": "chatcmpl-demo",
            "object": "chat.completion",
            "created": 0,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        }


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


def _read_request(stream: Any) -> dict[str, Any] | None:
    length = 0
    head = stream.readline()
    if not head:
        return None
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    try:
        body = json.loads(stream.read(length) or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _response(status: int, document: dict[str, Any]) -> bytes:
    body = json.dumps(document).encode()
    reason = http.client.responses[status]
    head = (
        f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _error(message: str, kind: str, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a caller got in the end.

    Attributes:
        status: of the last attempt.
        code: the error's code, if the body names one.
        message: the error's message, if the body has one.
        decision: `x-sidecar-decision`, if a daemon answered or passed it on.
        attempts: how many requests were sent.
        statuses: of each attempt.
        seconds: how long the last attempt took.
    """

    status: int
    code: str | None
    message: str | None
    decision: str | None
    attempts: int
    statuses: tuple[int, ...]
    seconds: float


@dataclass(slots=True)
class Caller:
    """A program with an SDK's retries: two, on 408, 409, 429 and 5xx, unless told not to.

    The rule and its waits (half a second, doubled, at most eight, a quarter of it random) are
    those of the official Python clients of OpenAI and Anthropic.

    Attributes:
        host: where it sends its requests.
        port: likewise.
        prefix: the path before the API's own.
        retries: how often it tries again.
        pace: 1.0 waits as the SDKs do, less waits less.
    """

    host: str
    port: int
    prefix: str = ""
    retries: int = 2
    pace: float = 1.0
    sleep: Callable[[float], None] = time.sleep
    _local: threading.local = field(default_factory=threading.local)
    _open: list[http.client.HTTPConnection] = field(default_factory=list)

    def close(self) -> None:
        """Closes its connections."""
        for connection in self._open:
            connection.close()

    def call(self, model: str, prompt: str) -> Answer:
        """One call with its retries."""
        statuses: list[int] = []
        while True:
            began = clock.monotonic()
            response, document = self._send(model, prompt)
            seconds = clock.monotonic() - began
            statuses.append(response.status)
            again = len(statuses) <= self.retries and _should_retry(response)
            if not again:
                return _answer(response, document, tuple(statuses), seconds)
            self.sleep(self.pace * _wait(response, len(statuses)))

    def _send(self, model: str, prompt: str) -> tuple[http.client.HTTPResponse, Any]:
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}]})
        headers = {"content-type": "application/json", "authorization": "Bearer demo"}
        reused = hasattr(self._local, "connection")
        connection = self._connection()
        try:
            connection.request("POST", self.prefix + _PATH, body, headers)
            response = connection.getresponse()
            content = response.read()
        except (http.client.HTTPException, OSError):
            connection.close()
            del self._local.connection
            if not reused:
                raise
            return self._send(model, prompt)  # a kept connection that had gone stale
        try:
            return response, json.loads(content)
        except ValueError:
            return response, {}

    def _connection(self) -> http.client.HTTPConnection:
        """One for each thread, kept open as an SDK's pool would."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._local.connection = connection
            self._open.append(connection)
        return connection


def _should_retry(response: http.client.HTTPResponse) -> bool:
    told = response.getheader("x-should-retry")
    if told in ("true", "false"):
        return told == "true"
    return response.status in (408, 409, 429) or response.status >= 500


def _wait(response: http.client.HTTPResponse, attempt: int) -> float:
    hint = response.getheader("retry-after-ms")
    try:
        hinted = float(hint) / 1000 if hint else float(response.getheader("retry-after") or 0)
    except ValueError:
        hinted = 0.0
    if 0 < hinted <= 60:
        return hinted
    return min(0.5 * 2.0 ** (attempt - 1), 8.0) * (1 - 0.25 * random.random())  # noqa: S311 - spread, no secret


def _answer(
    response: http.client.HTTPResponse, document: Any, statuses: tuple[int, ...], seconds: float
) -> Answer:
    error = document.get("error") if isinstance(document, dict) else None
    error = error if isinstance(error, dict) else {}
    return Answer(
        status=response.status,
        code=error.get("code"),
        message=error.get("message"),
        decision=response.getheader("x-sidecar-decision"),
        attempts=len(statuses),
        statuses=statuses,
        seconds=seconds,
    )


@dataclass(slots=True)
class StatusOnlyBreaker:
    """A breaker as most are built: five answers in a row of 500 or more, and everybody waits.

    Attributes:
        threshold: failures in a row that open it.
        run: failures in a row so far.
        open_after: how many answers it had heard when it opened; None while it is closed.
    """

    threshold: int = 5
    run: int = 0
    open_after: int | None = None
    _heard: int = 0

    def hear(self, statuses: tuple[int, ...]) -> None:
        """Counts the attempts of one call."""
        for status in statuses:
            self._heard += 1
            self.run = self.run + 1 if status >= 500 else 0
            if self.run >= self.threshold and self.open_after is None:
                self.open_after = self._heard
