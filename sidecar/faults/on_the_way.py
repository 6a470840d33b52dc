"""What happens to a provider's own answer on its way: it is late, trickles, breaks off, or fails.

Its body is changed as it is read, so that nothing behind this point knows that a fault was made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from sidecar import clock
from sidecar.envelope.dialects.grpc_web import end_flag
from sidecar.envelope.model import ErrorClass
from sidecar.faults.failing_events import last_frame, stream_event
from sidecar.faults.streams import Events, Recoder, events_of, recoder_of
from sidecar.faults.watched import IN_STREAMS
from sidecar.proxy.exchange import Answer, Exchange
from sidecar.proxy.heads import in_chunks

if TYPE_CHECKING:
    from aiohttp.connector import Connection

    from sidecar.envelope.dialects.base import Dialect
    from sidecar.faults.injector import Fault

DRIBBLE_BYTES: Final = 16
"""Bytes that come at a time when an answer dribbles."""

DRIBBLE_SECONDS: Final = 0.02
"""Seconds between them where the rule does not say."""


class Stage(Enum):
    """How far a fault in a stream has come."""

    BEFORE = auto()
    OVER = auto()
    UNTOUCHED = auto()


class LateExchange(Exchange):
    """The provider's own answer, held back; the daemon's clocks run meanwhile."""

    __slots__ = ("_after", "_stopped")

    def __init__(
        self,
        connection: Connection,
        loop: asyncio.AbstractEventLoop,
        keep: Callable[[Connection], None],
        after: float | None,
        *,
        head_only: bool,
        upgrades: bool = False,
    ) -> None:
        super().__init__(connection, loop, keep, head_only=head_only, upgrades=upgrades)
        self._after = after
        self._stopped: asyncio.Future[Exception] = loop.create_future()

    async def head(self) -> Answer:
        """As it came, when its time has come."""
        if self._after:
            await asyncio.wait([self._stopped], timeout=self._after)
            if self._stopped.done():
                raise self._stopped.result()
        return await super().head()

    def interrupt(self, error: Exception) -> None:
        """As of every exchange; whoever is held back here is woken too."""
        if not self._stopped.done():
            self._stopped.set_result(error)
        super().interrupt(error)


class FaultyExchange(LateExchange):
    """The provider's own answer, to which something happens on the way."""

    __slots__ = (
        "_dialect",
        "_events",
        "_fault",
        "_grows",
        "_left",
        "_path",
        "_ready",
        "_recoder",
        "_stage",
        "_started",
    )

    def __init__(
        self,
        connection: Connection,
        loop: asyncio.AbstractEventLoop,
        keep: Callable[[Connection], None],
        fault: Fault,
        dialect: Dialect,
        path: str,
        *,
        method: str,
        head_only: bool,
    ) -> None:
        after = None if fault.rule.kind == "dribble" else fault.rule.after
        super().__init__(connection, loop, keep, after, head_only=head_only)
        self._fault = fault
        self._dialect = dialect
        self._path = path
        self._grows = dialect.streams_json(method, path)
        self._events: Events | None = None
        self._left = fault.rule.events
        self._ready = b""
        self._recoder: Recoder | None = None
        self._started = False
        self._stage = Stage.BEFORE

    async def head(self) -> Answer:
        """As it came, but for what a changed body makes untrue."""
        answer = await super().head()
        if self._fault.rule.kind not in IN_STREAMS:
            return answer
        message = answer.message
        self._recoder = recoder_of(message.headers.get("Content-Encoding"))
        if "Content-Length" not in message.headers or not self._is_stream(b""):
            return answer
        # What follows is longer or shorter than the provider could know.
        return Answer(in_chunks(message), answer.payload)

    @property
    def complete(self) -> bool:
        """Never at once: each part has to be looked at."""
        return False

    def there(self) -> bytes:
        """Nothing is here before it was read."""
        return b""

    async def follow(self, take: Callable[[bytes], bool]) -> None:
        """Hands nothing over: each part has to be asked for."""

    async def part(self) -> bytes:
        """The next bytes of the body, as the fault lets them through."""
        if self._fault.rule.kind == "dribble":
            return await self._trickle()
        if self._stage is Stage.OVER:
            return self._end()
        if self._stage is Stage.BEFORE and self._left <= 0 and self._is_stream(b""):
            return self._act(b"", first=True)
        while True:
            chunk = await super().part()
            if self._stage is Stage.UNTOUCHED:
                return chunk
            passed = self._passed(chunk)
            if passed or not chunk:
                return passed

    def _passed(self, chunk: bytes) -> bytes:
        """What becomes of the next bytes; nothing where they are the beginning of more."""
        recoder = self._recoder
        if not chunk:
            self._untouched(b"")
            return b"" if recoder is None else recoder.end()
        text: bytes | None = chunk if recoder is None else recoder.read(chunk)
        if text is None and self._started:
            # What was written anew of it cannot be taken back.
            raise self.failure(ConnectionResetError("its coding cannot be read"))
        if text is None:
            return self._untouched(chunk)
        if not self._started and text:
            self._started = True
            self._events = events_of(self._content_type, text, grows=self._grows)
            if self._events is None:
                return self._untouched(chunk)
            if self._left <= 0:
                return self._act(b"", first=True)
        if self._events is not None:
            for end in self._events.ends(text):
                self._left -= 1
                if self._left == 0:
                    return self._act(text[:end])
        return text if recoder is None or not text else recoder.write(text)

    def _untouched(self, chunk: bytes) -> bytes:
        self._stage = Stage.UNTOUCHED
        self._recoder = None
        return chunk

    def _act(self, before: bytes, *, first: bool = False) -> bytes:
        """The last event has passed: what follows is the fault."""
        self._stage = Stage.OVER
        rule, recoder = self._fault.rule, self._recoder
        if rule.kind == "error_event":
            event = self._event()
            events = self._events or events_of(self._content_type, b"", grows=self._grows)
            before += event if events is None else events.put(event, first=first)
            self._fault.said = True
        if recoder is not None and before:
            before = recoder.write(before)
        return before or self._end()

    def _event(self) -> bytes:
        """The event of the fault, as this stream writes events."""
        rule, kind = self._fault.rule, self._content_type
        class_ = ErrorClass(rule.class_ or "transient")
        if end_flag(kind) is not None:
            return last_frame(
                self._dialect, class_, self._path, kind or "",
                wait=rule.retry_after, code=rule.code, message=rule.message,
            )  # fmt: skip
        return stream_event(
            self._dialect, class_, self._path,
            wait=rule.retry_after, code=rule.code, message=rule.message, now=clock.wall(),
        )  # fmt: skip

    def _end(self) -> bytes:
        """What comes behind the fault."""
        if self._fault.rule.kind == "cut":
            raise self.failure(ConnectionResetError("an injected fault"))
        recoder, self._recoder = self._recoder, None
        return b"" if recoder is None else recoder.end()

    @property
    def _content_type(self) -> str | None:
        message = self._message
        return None if message is None else message.headers.get("Content-Type")

    def _is_stream(self, first: bytes) -> bool:
        return events_of(self._content_type, first, grows=self._grows) is not None

    async def _trickle(self) -> bytes:
        if not self._ready:
            self._ready = await super().part()
            if not self._ready:
                return b""
        after = self._fault.rule.after
        await asyncio.sleep(DRIBBLE_SECONDS if after is None else after)
        piece, self._ready = self._ready[:DRIBBLE_BYTES], self._ready[DRIBBLE_BYTES:]
        return piece
