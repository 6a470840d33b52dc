"""The network detector at work: what calls see of it, and the probe that ends an outage.

While the network of this machine is down nothing is sent, so no call would notice its return. The
probe does: it opens connections to a few of the configured upstreams, sends nothing over them, and
asks nobody else, since where a machine may connect to is its owner's to say.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sidecar import clock
from sidecar.breaker.network import LOCAL_CODE, PROBE_EVERY, Network, NetworkChange
from sidecar.breaker.registry import Registry
from sidecar.envelope.model import Verdict
from sidecar.proxy.failures import Refused, UpstreamFailed
from sidecar.telemetry.observer import Observer

if TYPE_CHECKING:
    from sidecar.proxy.runtime import Runtime
    from sidecar.proxy.upstream import Upstream

PROBED = 8
"""Upstreams that a probe asks at most: one that answers is enough."""

PROBE_TIMEOUT = 3.0
"""Seconds that a probe waits; less than the time between two."""

NAMES_ANSWER = sys.platform != "darwin"
"""Is "no such name" an answer of a resolver that works? Without a network macOS says it too."""


class NetworkWatch:
    """Whether this machine has a way out, as the data plane lives with it.

    Args:
        loop: the running loop.
        registry: the breakers; what they hold against upstreams that were not to blame is undone.
        observer: hears when the network goes down and comes back.
        runtimes: the providers at the time of asking, by name.

    Attributes:
        network: what is known.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        registry: Registry,
        observer: Observer,
        runtimes: Callable[[], Mapping[str, Runtime]],
    ) -> None:
        self._loop = loop
        self._registry = registry
        self._observer = observer
        self._runtimes = runtimes
        self._probing: asyncio.Task[None] | None = None
        self.network = Network(self._changed)

    def check(self, runtime: Runtime) -> None:
        """Lets a call go on, unless it would be in vain.

        Raises:
            Refused: `local_network`.
        """
        host, network = runtime.upstream.host, self.network
        if host is None or runtime.config.mode != "enforce" or not network.refuses(host):
            return
        raise Refused(
            "local_network",
            f"this machine has no way out: {network.reason}",
            retry_after=self.wait(),
        )

    def wait(self) -> float | None:
        """Seconds until the next probe; None while the network is up."""
        if not self.network.down:
            return None
        wait = self.network.probe_at - clock.monotonic()
        return wait if wait > 0 else PROBE_EVERY

    def judge(self, runtime: Runtime, failure: UpstreamFailed) -> UpstreamFailed:
        """What a failure to reach a provider is: the provider's, or this machine's."""
        host = runtime.upstream.host
        if host is not None and failure.unknown_issuer:
            return self._judge_trust(host, failure)
        if (
            host is None
            or failure.decision != "connect_error"
            or failure.verdict is not Verdict.FAILURE
            or failure.code == "tls_failure"
            or (failure.code == "dns_failure" and not failure.names_this_machine and NAMES_ANSWER)
        ):
            return failure
        detail = f"{runtime.name}: {failure.detail}"
        if not self.network.failed(
            host, clock.monotonic(), detail=detail, at_once=failure.names_this_machine
        ):
            return failure
        return UpstreamFailed(
            "local_network",
            LOCAL_CODE,
            f"this machine has no way out: {failure.detail}",
            kind=failure.kind,
            verdict=Verdict.NEUTRAL,
        )

    def _judge_trust(self, host: str, failure: UpstreamFailed) -> UpstreamFailed:
        alone = not self.network.distrusted(host, clock.monotonic())
        if alone and not failure.names_this_machine:
            return failure
        return UpstreamFailed(
            "connect_error",
            "untrusted_ca",
            f"{failure.detail}; the authorities that this machine trusts know the issuers of no "
            "host: install its CA certificates, or name a bundle (tls.ca, SSL_CERT_FILE)",
            kind=failure.kind,
            verdict=Verdict.NEUTRAL,
        )

    def close(self) -> None:
        """Ends the probe."""
        if self._probing is not None:
            self._probing.cancel()
            self._probing = None

    # -- changes ----------------------------------------------------------------------------

    def _changed(self, change: NetworkChange) -> None:
        runtimes = self._runtimes()
        if change.down:
            blamed = [
                name for name, runtime in runtimes.items() if runtime.upstream.host in change.hosts
            ]
            reason = "the network of this machine was down"
            self._registry.pardon(blamed, change.since, change.at, reason)
            if self._probing is None or self._probing.done():
                self._probing = self._loop.create_task(self._probe())
        else:
            # What was open before leads nowhere now, and would cost a call each to find out.
            for runtime in runtimes.values():
                if runtime.upstream.host is not None:
                    runtime.upstream.drop_idle()
        self._observer.emit(change)

    # -- the probe --------------------------------------------------------------------------

    async def _probe(self) -> None:
        network = self.network
        while network.down:
            await asyncio.sleep(max(network.probe_at - clock.monotonic(), 0))
            network.probing(clock.monotonic())
            await self._ask()

    async def _ask(self) -> None:
        known: dict[str, Upstream] = {}
        for runtime in self._runtimes().values():
            if runtime.upstream.host is not None:
                known.setdefault(runtime.upstream.host, runtime.upstream)
        asked = self.network.targets(known, PROBED)
        tasks = [self._loop.create_task(self._reach(host, known[host])) for host in asked]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, timeout=PROBE_TIMEOUT)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _reach(self, host: str, upstream: Upstream) -> None:
        try:
            (await upstream.connect()).close()
        except UpstreamFailed as failure:
            if failure.code != "tls_failure":
                return
        self.network.reached(host, clock.monotonic())
