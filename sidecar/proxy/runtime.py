"""One provider as the data plane holds it: its configuration, its connections, its counters.

Made once from the configuration, so that a call finds plain values. A reload makes a new one only
where something changed; the old one lives until its last call is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from sidecar.breaker.bulkhead import Bulkhead
from sidecar.breaker.gates import Gates
from sidecar.breaker.gating import GateSettings, QuotaMode
from sidecar.breaker.model import Mode, ProviderSettings, Scope, Settings
from sidecar.breaker.retries import RetryBudget
from sidecar.config.resolved import Config, Provider
from sidecar.config.schema import SetHeader
from sidecar.dependencies import guard
from sidecar.envelope import dialects
from sidecar.proxy.signing import Signer
from sidecar.proxy.upstream import Upstream, tls_stamps

SECRET_REFRESH = 5.0
"""Seconds after which a file with a header's value is looked at again: secrets are rotated."""


class Runtime:
    """A provider at work.

    Attributes:
        heard: when a call of each key last got a byte, monotonic seconds.
        bulkhead: the places of calls under way, and who waits for one.
        gates: its rate limits and spent budgets; false while there is none.
        in_flight: calls that have begun and not ended.
        retry_budget: the calls that may be sent again; None where none are.
        retired: a reload took the provider away; its calls end as they are.
        keeps_own: the upstream is another of these daemons, whose own headers are passed on.
        signer: signs what leaves; None where callers' own signatures and keys pass.
    """

    def __init__(self, provider: Provider, loop: asyncio.AbstractEventLoop, gates: Gates) -> None:
        self._loop = loop
        self.gates = gates
        self.name = provider.name
        self.config = provider
        self.dialect = dialect_of(provider)
        self.keeps_own = provider.dialect == "sidecar"
        self.upstream = Upstream(provider, loop)
        self.signer = None if provider.sign.aws is None else Signer(provider, loop)
        self.bulkhead = Bulkhead(provider.limits.in_flight, provider.shedding.max_queue)
        self.retry_budget = _retry_budget(provider)
        self._connection_settings = connection_settings(provider)
        self.mark_lines = (
            f"x-sidecar-provider: {self.name}\r\nx-sidecar-decision: forwarded\r\n".encode()
        )
        self.heard: dict[str, float] = {}
        self.in_flight = 0
        self.retired = False
        self._secrets = [Secret(name, header) for name, header in provider.set_headers.items()]
        self._checked = loop.time()

    def reconfigured(self, provider: Provider) -> bool:
        """Takes another configuration of the same connections.

        Returns:
            False if the connections themselves are different: a new runtime is needed.
        """
        if connection_settings(provider) != self._connection_settings:
            return False
        if provider.sign != self.config.sign:
            # Credentials that were found stay where nothing changed about them.
            self.signer = None if provider.sign.aws is None else Signer(provider, self._loop)
        if provider.retry != self.config.retry:
            self.retry_budget = _retry_budget(provider)
        self.bulkhead.configure(provider.limits.in_flight, provider.shedding.max_queue)
        self.config = provider
        self.dialect = dialect_of(provider)
        self.keeps_own = provider.dialect == "sidecar"
        self._secrets = [Secret(name, header) for name, header in provider.set_headers.items()]
        return True

    @property
    def set_headers(self) -> Sequence[tuple[bytes, bytes]]:
        """The headers that the configuration sets, values from files as they are now."""
        if not self._secrets:
            return ()
        now = self._loop.time()
        if now - self._checked > SECRET_REFRESH:
            self._checked = now
            for secret in self._secrets:
                secret.refresh()
        return [secret.line for secret in self._secrets]

    def entered(self) -> None:
        """A call begins."""
        self.in_flight += 1
        if len(self.heard) > 1024:
            self.heard.pop(next(iter(self.heard)))

    def left(self) -> None:
        """A call is done; the last one of a retired provider closes its connections."""
        self.in_flight -= 1
        if self.retired and not self.in_flight:
            self._loop.create_task(self.upstream.close())

    def retire(self) -> None:
        """No new calls will come."""
        self.retired = True
        if not self.in_flight:
            self._loop.create_task(self.upstream.close())


def _retry_budget(provider: Provider) -> RetryBudget | None:
    retry = provider.retry
    return RetryBudget(retry.budget, retry.attempts) if retry.attempts and retry.budget else None


class Secret:
    """A header whose value stands in a file or in the configuration."""

    def __init__(self, name: str, header: SetHeader) -> None:
        self._name = name.encode("latin-1")
        self._header = header
        self.line = (self._name, (header.prefix + (header.value or "")).encode("latin-1"))
        self.refresh()

    def refresh(self) -> None:
        """Reads the file again; one that has gone keeps its last value."""
        if self._header.file is None:
            return
        try:
            value = Path(self._header.file).read_text("latin-1").rstrip("\r\n")
        except OSError:
            return
        if "\n" not in value and "\r" not in value:
            self.line = (self._name, (self._header.prefix + value).encode("latin-1"))


def dialect_of(provider: Provider) -> dialects.Dialect:
    """The configured dialect; `auto` goes by the upstream's host first."""
    if provider.dialect == "auto":
        return dialects.guess(urlsplit(provider.upstream).hostname or "")
    return dialects.get(provider.dialect)


def connection_settings(provider: Provider) -> tuple[object, ...]:
    """What a provider's connections depend on."""
    return (
        provider.upstream,
        provider.tls,
        tls_stamps(provider),
        provider.proxy,
        provider.timeouts.connect,
        provider.timeouts.keep_alive,
    )


def breakers_of(config: Config) -> dict[str, ProviderSettings]:
    """Everything that has breakers, by name: what is called through the daemon, and what is not."""
    return {
        **{name: breaker_settings(one) for name, one in config.providers.items()},
        **{name: guard.breaker_settings(one) for name, one in config.dependencies.items()},
    }


def breaker_settings(provider: Provider) -> ProviderSettings:
    """What the registry needs to know of a provider."""
    breaker = provider.breaker
    return ProviderSettings(
        upstream=provider.upstream,
        scope=Scope(provider.scope),
        settings=Settings(
            mode=Mode(provider.mode),
            consecutive_failures=breaker.consecutive_failures,
            window=breaker.window,
            minimum_calls=breaker.minimum_calls,
            failure_ratio=breaker.failure_ratio,
            repeat_window=breaker.repeat_window,
            open_for=breaker.open_for,
            open_max=breaker.open_max,
            jitter=breaker.jitter,
            probes=breaker.probes,
            successes=breaker.successes,
            retry_after_max=provider.retry_after_max,
            first_byte=provider.timeouts.first_byte,
        ),
        shedding=gate_settings(provider),
    )


def gate_settings(provider: Provider) -> GateSettings:
    """What the gates of a provider need to know of it."""
    shedding = provider.shedding
    return GateSettings(
        sustained_count=shedding.sustained.count,
        sustained_window=shedding.sustained.window,
        sustained_ratio=shedding.sustained.ratio,
        max_wait=shedding.max_wait,
        max_queue=shedding.max_queue,
        min_rate=shedding.min_rate,
        quota_mode=QuotaMode(shedding.quota.mode),
        recheck=shedding.quota.recheck,
        open_after=shedding.open_after,
        retry_after_max=shedding.retry_after_max,
    )
