"""Connections to the daemon that threads and event loops share: plain sockets, kept open.

A report is written and its answer is not waited for: it is owed by the connection, and read by
whoever uses that connection next. So a report costs a system call, needs no thread and no task, and
cannot be cancelled half-way; and since the daemon answers a connection's requests in their order, a
permit that is asked for after a report is given in the knowledge of it.

A connection is used by one caller at a time and belongs to no loop. What is left in the middle of
an exchange is closed.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sidecar.client.address import Endpoint
from sidecar.client.wire import Answer, AnswerReader, WireError

if TYPE_CHECKING:
    import asyncio

_MOST_IDLE = 64
"""Connections that are kept for later; as many callers at once need no new one."""
_CHUNK = 65536


class Line:
    """One connection.

    Args:
        sock: connected.

    Attributes:
        sock: the socket.
        owed: answers that are still to come.
        last: the daemon has said that it ends this connection.
    """

    __slots__ = ("_reader", "last", "owed", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.owed = 0
        self.last = False
        self._reader = AnswerReader()

    def close(self) -> None:
        """End it; more than once is harmless."""
        self.sock.close()

    @property
    def closed(self) -> bool:
        """Whether it was ended here."""
        return self.sock.fileno() < 0

    # -- for threads ------------------------------------------------------------------------

    def send(self, data: bytes, deadline: float) -> None:
        """Write a request.

        Raises:
            OSError: if it is not taken in time.
        """
        self.sock.settimeout(_soon(deadline))
        self.sock.sendall(data)
        self.owed += 1

    def receive(self, deadline: float) -> bytes:
        """Read what comes; after the deadline only what has come.

        Raises:
            OSError: if nothing does in time.
        """
        self.sock.settimeout(max(0.0, deadline - time.monotonic()))
        return self.sock.recv(_CHUNK)

    # -- for loops --------------------------------------------------------------------------

    async def send_async(self, data: bytes) -> None:
        """Write a request."""
        self.sock.settimeout(0.0)
        await _loop().sock_sendall(self.sock, data)
        self.owed += 1

    async def receive_async(self) -> bytes:
        """Read what comes."""
        return await _loop().sock_recv(self.sock, _CHUNK)

    # -- for both ---------------------------------------------------------------------------

    def settled(self, data: bytes) -> list[Answer]:
        """The answers that are whole once these bytes have come.

        Raises:
            ConnectionResetError: if no bytes have come: the daemon has closed.
            WireError: if they are no answers, or nobody asked for them.
        """
        if not data:
            raise ConnectionResetError("the daemon closed the connection")
        self._reader.feed(data)
        answers = []
        while (answer := self._reader.next()) is not None:
            self.owed -= 1
            if self.owed < 0 or self.last:
                raise WireError("an answer without a request")
            self.last = answer.last
            answers.append(answer)
        return answers

    def catch_up(self, told: Callable[[Answer], None]) -> bool:
        """Read what has come meanwhile, without waiting.

        Args:
            told: hears of the answers.

        Returns:
            Whether the connection can still be used.
        """
        self.sock.settimeout(0.0)
        try:
            while True:
                for answer in self.settled(self.sock.recv(_CHUNK)):
                    told(answer)
        except BlockingIOError:
            return not self.last
        except (OSError, WireError):
            return False


class Lines:
    """Idle connections to one daemon.

    Args:
        told: hears of answers that nobody waited for.
    """

    def __init__(self, told: Callable[[Answer], None]) -> None:
        self._told = told
        self._idle: deque[Line] = deque()

    def take(self) -> Line | None:
        """The connection that was used last, so that a caller alone stays on one; None if none."""
        while True:
            try:
                line = self._idle.pop()
            except IndexError:
                return None
            if line.catch_up(self._told):
                return line
            line.close()

    def give_back(self, line: Line) -> None:
        """Keep a connection for the next caller."""
        if len(self._idle) < _MOST_IDLE and not line.last:
            self._idle.append(line)
        else:
            line.close()

    def close(self, deadline: float) -> None:
        """End all, what was written first: a connection that is closed unread is cut."""
        while (line := self.take()) is not None:
            try:
                while line.owed:
                    for answer in line.settled(line.receive(deadline)):
                        self._told(answer)
            except (OSError, WireError):
                pass
            line.close()

    def drop(self) -> None:
        """Close this process's side of all, for they are another process's."""
        while self._idle:
            self._idle.pop().close()


def connect(endpoints: Iterable[Endpoint], deadline: float) -> Line:
    """Connect to the first endpoint that answers.

    Raises:
        OSError: if none does in time.
    """
    failure: OSError = ConnectionRefusedError("no address is known")
    for family, where in endpoints:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(_soon(deadline))
            sock.connect(where)
            return _ready(sock)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure


async def connect_async(endpoints: Iterable[Endpoint]) -> Line:
    """Connect to the first endpoint that answers.

    Raises:
        OSError: if none does.
    """
    failure: OSError = ConnectionRefusedError("no address is known")
    for family, where in endpoints:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(0.0)
            await _loop().sock_connect(sock, where)
            return _ready(sock)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure


def _loop() -> asyncio.AbstractEventLoop:
    from asyncio import get_running_loop  # noqa: PLC0415 - who has no loop need not load it

    return get_running_loop()


def _ready(sock: socket.socket) -> Line:
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Line(sock)


def _soon(deadline: float) -> float:
    """What is left, and a moment in any case: what needs no waiting is not refused for being late.

    A thread that was not given the processor has used up its time without having used it.
    """
    return max(0.001, deadline - time.monotonic())
