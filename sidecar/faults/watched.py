"""When a caller first saw evidence of a fault: looked for where its bytes are written.

A stream that breaks after its hundredth event was a good stream until then. So what counts is not
the head that came with it, nor the end of the call, but the first byte that would not have been
there, or not so late, without the fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar import clock
from sidecar.proxy.outgoing import Framing, Outgoing

if TYPE_CHECKING:
    from sidecar.faults.injector import Fault
    from sidecar.proxy.connection import Connection

IN_STREAMS: Final = frozenset({"cut", "error_event"})
"""The kinds whose head is the provider's own."""


class Watched(Outgoing):
    """The answer to a call that has a fault. Only these calls pay for the looking.

    Args:
        connection: the caller's.
        http10: the caller knows no chunks.
        keep: the connection can carry another request.
        fault: that is to be seen.
    """

    __slots__ = ("_fault",)

    def __init__(self, connection: Connection, *, http10: bool, keep: bool, fault: Fault) -> None:
        super().__init__(connection, http10=http10, keep=keep)
        self._fault = fault

    def start(
        self,
        status: int,
        reason: str,
        lines: list[bytes],
        framing: Framing,
        body: bytes = b"",
        *,
        whole: bool = False,
        size: int | None = None,
    ) -> None:
        """As every answer's head; an error, or one that came late, is evidence."""
        super().start(status, reason, lines, framing, body, whole=whole, size=size)
        if status >= 400 or self._fault.rule.kind not in IN_STREAMS or self._fault.said:
            self._see()

    def switch(self, reason: str, lines: list[bytes]) -> None:
        """As every answer that changes the protocol."""
        super().switch(reason, lines)
        self._see()

    def write(self, data: bytes) -> None:
        """As every part of a body; the one with the fault's event in it is evidence."""
        super().write(data)
        if data and self._fault.said:
            self._see()

    def cut(self, last: bytes = b"") -> None:
        """As every bad end, which is evidence by itself."""
        super().cut(last)
        self._see()

    def _see(self) -> None:
        self._fault.seen(clock.monotonic())
