"""The four official Python clients behind one way of asking, whether they block or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import openai

MESSAGES = [{"role": "user", "content": "Say hello."}]

_CLIENTS: dict[str, Callable[..., Any]] = {
    "openai": openai.OpenAI,
    "openai-async": openai.AsyncOpenAI,
    "anthropic": anthropic.Anthropic,
    "anthropic-async": anthropic.AsyncAnthropic,
}
KINDS = tuple(_CLIENTS)
ASYNC_KINDS = ("openai-async", "anthropic-async")


@dataclass
class Client:
    """An official client and how it is asked.

    Attributes:
        kind: one of `KINDS`.
        raw: the client itself.
    """

    kind: str
    raw: Any

    @classmethod
    def make(cls, kind: str, base: str, **options: Any) -> Client:
        """A client for `base`, the address without the version that OpenAI's wants at its end."""
        if kind.startswith("openai"):
            options = {"api_key": "sk-good", "base_url": f"{base}/v1", **options}
        else:
            options = {"api_key": "sk-ant-good", "base_url": base, **options}
        return cls(kind, _CLIENTS[kind](timeout=options.pop("timeout", 10.0), **options))

    @property
    def is_openai(self) -> bool:
        return self.kind.startswith("openai")

    @property
    def waits(self) -> bool:
        return not self.kind.endswith("async")

    async def call(self, function: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Calls a method of the client; one that blocks does so in a thread."""
        if self.waits:
            return await asyncio.to_thread(function, *args, **more)
        return await function(*args, **more)

    async def ask(self, model: str = "gpt-4o", **more: Any) -> Any:
        """The plainest question."""
        if self.is_openai:
            create = self.raw.chat.completions.create
            return await self.call(create, model=model, messages=MESSAGES, **more)
        create = self.raw.messages.create
        return await self.call(create, model=model, messages=MESSAGES, max_tokens=64, **more)

    async def gather(self, function: Callable[..., Any], **more: Any) -> tuple[list[Any], Any]:
        """All events of a stream, and the error that ended it, if one did."""
        events: list[Any] = []

        def block() -> Exception | None:
            try:
                for event in function(stream=True, **more):
                    events.append(event)
            except Exception as error:
                return error
            return None

        if self.waits:
            return events, await asyncio.to_thread(block)
        try:
            async for event in await function(stream=True, **more):
                events.append(event)
        except Exception as error:
            return events, error
        return events, None

    async def stream(self, api: str, model: str) -> tuple[str, Any]:
        """The text of a stream as far as it came, and the error that ended it."""
        if api == "chat":
            create = self.raw.chat.completions.create
            events, error = await self.gather(create, model=model, messages=MESSAGES)
            deltas = (e.choices[0].delta.content or "" for e in events if e.choices)
        elif api == "responses":
            create = self.raw.responses.create
            events, error = await self.gather(create, model=model, input="Say hello.")
            deltas = (e.delta for e in events if e.type == "response.output_text.delta")
        else:
            create = self.raw.messages.create
            events, error = await self.gather(create, model=model, messages=MESSAGES, max_tokens=64)
            deltas = (e.delta.text for e in events if e.type == "content_block_delta")
        return "".join(deltas), error

    async def error(self, model: str = "gpt-4o", **more: Any) -> Any:
        """The exception that a question ends in."""
        try:
            found = await self.ask(model, **more)
        except (openai.OpenAIError, anthropic.AnthropicError) as error:
            return error
        raise AssertionError(f"answered: {found}")

    async def close(self) -> None:
        await self.call(self.raw.close)
