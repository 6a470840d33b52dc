"""Whether this machine has a way out: its own trouble must darken nobody else's breaker.

Two kinds of evidence. Some failures name this machine by themselves: no route, no network, a
resolver that says "try again", an egress proxy that refuses. Of all others one alone proves
nothing, but two hosts that have nothing to do with each other seldom fail at the same time.

Any byte from anywhere outside disproves it. While it stands, nothing is sent and no breaker hears
of anything; a probe asks again and again whether it is over. The probe is somebody else's: here
are only the facts and the times.

A host on this machine is a special witness: a tunnel or a forwarded port ends there and goes dark
with the network, but a model server that was stopped does so too, and one that answers says
nothing about the network. So such a host speaks for itself alone, and is refused only if it was
among those that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from ipaddress import ip_address
from math import inf
from typing import Final

import msgspec

from sidecar.breaker.model import Kind, Outcome
from sidecar.envelope.model import Verdict

WITHIN: Final = 10.0
"""Seconds within which failures of two hosts belong together."""

PROBE_EVERY: Final = 4.5
"""Seconds from one probe to the next: five until the end is known, and the probe takes time too."""

ALONE_FOR: Final = 60.0
"""Seconds for which a host that failed alone, while others answered, raises no alarm again."""

HOSTS: Final = 64
"""Hosts that are remembered at most; far more than it takes to know."""

LOCAL_CODE: Final = "local_network_down"

THIS_MACHINE: Final = "localhost"

_KINDS: Final = frozenset({Kind.CONNECTION, Kind.TIMEOUT})


class NetworkChange(msgspec.Struct, frozen=True, kw_only=True):
    """The network of this machine went down or came back.

    Attributes:
        down: which of the two.
        reason: why, in words.
        at: monotonic seconds.
        since: of one that went down, from when on failures may have been its own; else when it
            went down.
        hosts: those whose failures prove it.
    """

    down: bool
    reason: str
    at: float
    since: float
    hosts: frozenset[str] = frozenset()


class Network:
    """What is known of the way out. Times are monotonic seconds.

    Args:
        on_change: hears when it goes down and when it is back.

    Attributes:
        down: nothing can be reached from here.
        uneasy: something failed lately, so that a success is worth telling.
        reason: why it is down; None while it is up.
        since: when it went down; None while it is up.
    """

    __slots__ = (
        "_alone",
        "_asked",
        "_at_once",
        "_distrusted",
        "_failed",
        "_on_change",
        "_probe_at",
        "_witnesses",
        "down",
        "reason",
        "since",
        "uneasy",
    )

    def __init__(self, on_change: Callable[[NetworkChange], None]) -> None:
        self._on_change = on_change
        self._failed: dict[str, float] = {}
        self._at_once: set[str] = set()
        self._distrusted: dict[str, float] = {}
        self._alone: dict[str, float] = {}
        self._witnesses: frozenset[str] = frozenset()
        self._probe_at = inf
        self._asked = 0
        self.down = False
        self.uneasy = False
        self.reason: str | None = None
        self.since: float | None = None

    def refuses(self, host: str) -> bool:
        """Is it in vain to call this host now?"""
        return self.down and (not is_this_machine(host) or host in self._witnesses)

    def failed(self, host: str, now: float, *, detail: str = "", at_once: bool = False) -> bool:
        """A host could not be connected to.

        Args:
            host: as `host_of` names it.
            now: monotonic seconds.
            detail: what happened, for people.
            at_once: the failure names this machine by itself.

        Returns:
            True if that is this machine's trouble and not the host's.
        """
        if self.down:
            return at_once or self.refuses(host)
        self._forget(now)
        if host in self._failed or len(self._failed) < HOSTS:
            self._failed[host] = now
        self.uneasy = True
        if at_once:
            if self._alone.get(host, -inf) < now:
                self._at_once.add(host)
                self._fall(now, detail or "no way out")
            return True
        if len({relation(one) for one in self._failed}) < 2:
            return False
        hosts = sorted(self._failed)
        shown = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
        self._fall(now, f"connections failed to {shown}, and nothing was heard meanwhile")
        return True

    def distrusted(self, host: str, now: float) -> bool:
        """A host's certificate was issued by nobody that is known here.

        Returns:
            True if that is this machine's trouble: its bundle knows the issuers of no host.
        """
        self._distrusted = {one: at for one, at in self._distrusted.items() if now - at <= WITHIN}
        if len(self._distrusted) < HOSTS:
            self._distrusted[host] = now
        self.uneasy = True
        return len({relation(one) for one in self._distrusted}) >= 2

    def reached(self, host: str, now: float) -> None:
        """Bytes came from a host, or a connection to it was made."""
        if not self.uneasy:
            return
        if is_this_machine(host):
            self._failed.pop(host, None)
            self._distrusted.pop(host, None)
            if self.down and host in self._witnesses:
                self._witnesses -= {host}
                if len({relation(one) for one in self._witnesses}) < 2 - bool(self._at_once):
                    self._rise(now, host)
            return
        for other in self._at_once - {host}:
            self._alone[other] = now + ALONE_FOR
        self._rise(now, host)

    def judged(self, outcome: Outcome, host: str | None) -> Outcome:
        """What a breaker is to hear of a call that ended now.

        Args:
            outcome: how it ended.
            host: where; None where that is not known (a dependency's).
        """
        if not self.down or outcome.verdict is not Verdict.FAILURE:
            return outcome
        theirs = outcome.kind not in _KINDS if host is None else not self.refuses(host)
        if theirs:
            return outcome
        return Outcome(Verdict.NEUTRAL, kind=outcome.kind, code=outcome.code, status=outcome.status)

    # -- the probe --------------------------------------------------------------------------

    @property
    def probe_at(self) -> float:
        """When the next probe is due; infinite while the network is up."""
        return self._probe_at

    def probing(self, now: float) -> None:
        """A probe begins; the next one is due after this one, whatever it finds."""
        self._probe_at = now + PROBE_EVERY if self.down else inf

    def targets(self, hosts: Collection[str], most: int) -> list[str]:
        """Which of the known hosts a probe should ask: first who failed, then others outside.

        Where that are more than it may ask, the next probe asks the next ones: those that a
        firewall keeps away for ever must not be all that is asked.
        """
        asked = [host for host in hosts if host in self._witnesses]
        asked += [
            host for host in hosts if host not in self._witnesses and not is_this_machine(host)
        ]
        if len(asked) <= most:
            return asked
        first = self._asked % len(asked)
        self._asked += most
        return (asked + asked)[first : first + most]

    # -- inside -----------------------------------------------------------------------------

    def _forget(self, now: float) -> None:
        for host in [host for host, at in self._failed.items() if now - at > WITHIN]:
            del self._failed[host]
        for host in [host for host, until in self._alone.items() if until < now]:
            del self._alone[host]

    def _fall(self, now: float, reason: str) -> None:
        self.down = True
        self.reason = reason
        self.since = now
        self._probe_at = now
        self._asked = 0
        self._witnesses = frozenset(self._failed)
        self._on_change(
            NetworkChange(
                down=True, reason=reason, at=now, since=now - WITHIN, hosts=self._witnesses
            )
        )

    def _rise(self, now: float, host: str) -> None:
        was_down, since = self.down, self.since
        self.down = self.uneasy = False
        self.reason = self.since = None
        self._probe_at = inf
        self._failed.clear()
        self._at_once.clear()
        self._distrusted.clear()
        self._witnesses = frozenset()
        if was_down and since is not None:
            self._on_change(
                NetworkChange(down=False, reason=f"{host} was reached", at=now, since=since)
            )


def host_of(name: str) -> str:
    """How a host is called here: in lower case, the usual names of this machine as one."""
    name = name.lower().strip("[]").rstrip(".")
    return THIS_MACHINE if name in {"127.0.0.1", "::1", "0.0.0.0", "::"} else name  # noqa: S104 - compared, not bound


def is_this_machine(host: str) -> bool:
    """Is it a loopback address or name?"""
    if host == THIS_MACHINE or host.endswith(".localhost"):
        return True
    return host.startswith("127.") and relation(host) == host


def relation(host: str) -> str:
    """What two hosts share that are likely to fail together: the end of their names.

    The last two labels are near enough to who runs them. Where they are a public suffix, hosts are
    held to be related that are not, and it takes one more failure to know.
    """
    try:
        ip_address(host)
    except ValueError:
        return ".".join(host.split(".")[-2:])
    return host
