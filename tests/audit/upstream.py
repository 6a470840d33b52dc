"""Upstreams that an audit is tried on: one that tells the truth, and the lies to put in its mouth."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

KEY = "sk-the-right-key"
MODEL = "gpt-real"


@dataclass
class Asked:
    """One request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str | None:
        return self.headers.get("authorization", "").removeprefix("Bearer ") or None


Answer = tuple[int, dict[str, Any] | str | None]


def error(message: str, code: str | None, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@dataclass
class Upstream:
    """An OpenAI-like API on loopback that answers each mistake with its own status.

    Attributes:
        lies: what it answers in place of the truth, by the truth's name.
        headers: on every answer.
        keyless: no key is needed.
        nameless: it answers to any model's name.
    """

    lies: dict[str, Answer | Callable[[int], Answer]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    keyless: bool = False
    nameless: bool = False
    routes: tuple[str, ...] = ("/v1/chat/completions", "/v1/responses")
    asked: list[Asked] = field(default_factory=list)
    ran: int = 0
    url: str = ""
    _said: dict[str, int] = field(default_factory=dict)
    _runner: web.ServerRunner | None = None

    async def start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._handle))
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request.method, request.path, headers, body)
        self.asked.append(asked)
        truth, answer = self._answer(asked)
        lie = self.lies.get(truth)
        if lie is not None:
            self._said[truth] = said = self._said.get(truth, 0) + 1
            answer = lie(said) if callable(lie) else lie
        status, document = answer
        if document is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if isinstance(document, str):
            return web.Response(
                status=status, text=document, content_type="text/html", headers=self.headers
            )
        return web.json_response(document, status=status, headers=self.headers)

    def _answer(self, asked: Asked) -> tuple[str, Answer]:
        if asked.path not in self.routes:
            return "path", (404, error("Invalid URL", None))
        if asked.method != "POST":
            return "method", (405, error("Not allowed to do that", "method_not_supported"))
        if not self.keyless:
            if asked.key is None:
                return "no key", (401, error("You didn't provide an API key", None))
            if asked.key != KEY:
                return "key", (401, error("Incorrect API key provided", "invalid_api_key"))
        try:
            document = json.loads(asked.body)
        except ValueError:
            return "json", (400, error("We could not parse the JSON body of your request", None))
        if not any(name in document for name in ("messages", "input")):
            return "missing", (400, error("you must say something", "missing_required_parameter"))
        if document.get("model") != MODEL and not self.nameless:
            return "model", (404, error("The model does not exist", "model_not_found"))
        if len(asked.body) > 4096:
            return "context", (400, error("too long", "context_length_exceeded"))
        self.ran += 1
        return "answer", (
            200,
            {
                "id": "x",
                "object": "chat.completion",
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": "."},
                    }
                ],
            },
        )


Started = Callable[..., Awaitable[Upstream]]
