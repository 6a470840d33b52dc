"""The daemon as the agent's process sees it: asked for permits, told of outcomes, never waited for.

A permit is asked for within a budget of time. A miss (nobody there, too slow, not understood) lets
the call run and leaves the daemon alone for a second, after which one call asks for all. A report
is written and forgotten.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.client.address import Endpoints, parse_address
from sidecar.client.given import Given, Injection, Permit, document_of, given_by
from sidecar.client.lines import Line, Lines, connect, connect_async
from sidecar.client.wire import Answer, WireError, request_bytes

BUDGET = 0.05
"""Seconds that a call waits for its permit at most."""
BACK_OFF = 1.0
"""Seconds for which a daemon that was missed is not asked again."""
REPORT_BUDGET = 0.005
"""Seconds for which a report may hold its caller: far more than loopback takes to accept one."""
_AT_EXIT = 0.1
"""Seconds that a process waits at its end for the daemon to have read the last reports."""

_log = logging.getLogger("sidecar.client")


@dataclass(slots=True)
class Counts:
    """What happened between this process and a daemon.

    Attributes:
        permits: calls that were let through.
        refused: calls that an open breaker stopped.
        injected: calls that failed because the daemon was asked to make them fail.
        unguarded: calls that ran without an answer of the daemon.
        reports: outcomes that were sent.
        dropped: outcomes that could not be sent.
    """

    permits: int = 0
    refused: int = 0
    injected: int = 0
    unguarded: int = 0
    reports: int = 0
    dropped: int = 0


class Daemon:
    """One daemon.

    Args:
        address: `http://host:port` or `unix:/path`.
        token: of the admin plane, where it wants one.

    Raises:
        ValueError: if the address or the token can be none.
    """

    def __init__(self, address: str, token: str | None = None) -> None:
        where = parse_address(address)
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ValueError("a token is visible ASCII")
        self.counts = Counts()
        self._address = address
        self._authority = where.authority
        self._endpoints = Endpoints(where)
        self._lines = Lines(self._noted)
        self._headers = {"x-sidecar-admin": "1"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._away_until = 0.0
        self._warned: set[str] = set()

    # -- permits ----------------------------------------------------------------------------

    def permit(
        self, name: str, correlation_id: str, budget: float, phase: str | None = None
    ) -> Given:
        """Ask whether a call may be made.

        Args:
            name: of the dependency.
            correlation_id: of the call.
            budget: seconds to wait at most.
            phase: `commit` or `connect`, where the call is one: an injected fault means more then.
        """
        if not self._worth_asking():
            return None
        deadline = time.monotonic() + budget
        question = self._question(name, correlation_id, phase)
        line = self._lines.take()
        try:
            answer = None
            if line is not None:
                answer = self._asked_again(line, question, deadline)
            if line is None or line.closed:
                line = connect(self._endpoints.known(budget), deadline)
                answer = self._ask(line, question, deadline)
        except (OSError, WireError) as error:
            self._missed(line, error)
            return None
        except BaseException:
            if line is not None:
                line.close()
            raise
        return self._given(line, answer)

    def _asked_again(self, line: Line, question: bytes, deadline: float) -> Answer | None:
        """Ask over a connection that was kept; it is closed if it had ended without a word."""
        try:
            return self._ask(line, question, deadline)
        except (ConnectionError, WireError):
            line.close()
            return None

    def _ask(self, line: Line, question: bytes, deadline: float) -> Answer | None:
        line.send(question, deadline)
        answer = None
        while line.owed:
            answer = self._last_of(line.settled(line.receive(deadline)), line)
        return answer

    async def permit_async(
        self, name: str, correlation_id: str, budget: float, phase: str | None = None
    ) -> Given:
        """The same for an event loop of asyncio, which goes on meanwhile."""
        if not self._worth_asking():
            return None
        from asyncio import timeout  # noqa: PLC0415 - who has no loop need not load it

        question = self._question(name, correlation_id, phase)
        line = self._lines.take()
        try:
            async with timeout(budget):
                answer = None
                if line is not None:
                    answer = await self._asked_again_async(line, question)
                if line is None or line.closed:
                    line = await connect_async(self._endpoints.known(0))
                    answer = await self._ask_async(line, question)
        except (OSError, WireError) as error:
            self._missed(line, error)
            return None
        except BaseException:
            if line is not None:
                line.close()
            raise
        return self._given(line, answer)

    async def _asked_again_async(self, line: Line, question: bytes) -> Answer | None:
        try:
            return await self._ask_async(line, question)
        except (ConnectionError, WireError):
            line.close()
            return None

    async def _ask_async(self, line: Line, question: bytes) -> Answer | None:
        await line.send_async(question)
        answer = None
        while line.owed:
            answer = self._last_of(line.settled(await line.receive_async()), line)
        return answer

    def _question(self, name: str, correlation_id: str, phase: str | None) -> bytes:
        headers = {**self._headers, "x-correlation-id": correlation_id}
        path = f"/v1/dependencies/{name}/permit"
        body = b"" if phase is None else json.dumps({"phase": phase}).encode()
        return request_bytes(path, self._authority, headers, body)

    def _worth_asking(self) -> bool:
        now, until = time.monotonic(), self._away_until
        if until and now < until:
            self.counts.unguarded += 1
            return False
        if until:
            # This call asks for all; the others go on as if nobody were there.
            self._away_until = now + BACK_OFF
        return True

    def _missed(self, line: Line | None, error: Exception) -> None:
        if line is not None:
            line.close()
        if not self._away_until:
            reason = str(error) or type(error).__name__
            _log.info("no permit from %s (%s): calls run unguarded", self._address, reason)
        self._away_until = time.monotonic() + BACK_OFF
        self.counts.unguarded += 1

    def _last_of(self, answers: list[Answer], line: Line) -> Answer | None:
        """The answer to the question itself; those before it are to reports."""
        if not line.owed and answers:
            *earlier, last = answers
        else:
            earlier, last = answers, None
        for answer in earlier:
            self._noted(answer)
        return last

    def _given(self, line: Line, answer: Answer | None) -> Given:
        self._lines.give_back(line)
        self._away_until = 0.0
        given = None if answer is None else given_by(answer)
        if isinstance(given, Permit):
            self.counts.permits += 1
        elif isinstance(given, Injection):
            self.counts.injected += 1
        elif given is not None:
            self.counts.refused += 1
        else:
            self.counts.unguarded += 1
            if answer is not None:
                self._noted(answer)
        return given

    # -- reports ----------------------------------------------------------------------------

    def report(self, name: str, document: Mapping[str, Any]) -> None:
        """Say what became of a call that had a permit. Never raises, never waits for an answer.

        Args:
            name: of the dependency.
            document: the body of the report.
        """
        line = None
        try:
            body = json.dumps(document, separators=(",", ":"), default=str).encode()
            path = f"/v1/dependencies/{name}/report"
            data = request_bytes(path, self._authority, self._headers, body)
            deadline = time.monotonic() + REPORT_BUDGET
            line = self._lines.take() or connect(self._endpoints.known(0), deadline)
            line.send(data, deadline)
        except Exception:  # noqa: BLE001 - a report that is lost costs nothing; a call that is lost does
            self.counts.dropped += 1
            if line is not None:
                line.close()
        else:
            self.counts.reports += 1
            self._lines.give_back(line)

    def _noted(self, answer: Answer) -> None:
        """Say once what a person has to mend; what the daemon says of a permit's end is no news."""
        if answer.status < 400:
            return
        error = document_of(answer).get("error")
        code = str(error.get("code")) if isinstance(error, dict) else str(answer.status)
        if code in {"unknown_permit", "expired_permit", "already_reported"} or code in self._warned:
            return
        self._warned.add(code)
        message = error.get("message") if isinstance(error, dict) else ""
        _log.warning("%s answers %s: %s", self._address, code, message)

    # -- its end ----------------------------------------------------------------------------

    def close(self, deadline: float) -> None:
        """Close the idle connections, once the daemon has read what was written to them."""
        self._lines.close(deadline)

    def drop(self) -> None:
        """Forget the connections of the process that this one was forked from."""
        self._lines.drop()


_daemons: dict[tuple[str, str | None], Daemon] = {}


def daemon_at(address: str, token: str | None) -> Daemon:
    """The one daemon that stands for an address and a token in this process.

    Raises:
        ValueError: if the address or the token can be none.
    """
    key = (address, token)
    found = _daemons.get(key)
    return found if found is not None else _daemons.setdefault(key, Daemon(address, token))


def counts() -> Counts:
    """What happened between this process and its daemons so far, added up."""
    total = Counts()
    for daemon in tuple(_daemons.values()):
        for name in Counts.__slots__:
            setattr(total, name, getattr(total, name) + getattr(daemon.counts, name))
    return total


def close() -> None:
    """Close the idle connections to all daemons; the next call opens new ones. Runs at exit."""
    deadline = time.monotonic() + _AT_EXIT
    for daemon in tuple(_daemons.values()):
        daemon.close(deadline)


def _forked() -> None:
    for daemon in tuple(_daemons.values()):
        daemon.drop()


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
