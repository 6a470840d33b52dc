"""What metrics say of the gates and of this machine's network, read when somebody asks."""

from __future__ import annotations

from sidecar import clock
from sidecar.breaker.gating import GateState
from sidecar.breaker.network import Network
from sidecar.breaker.registry import Registry
from sidecar.telemetry.readings import Pacing

_ORDER = list(GateState)


class GatePacing:
    """Reads the gates of the registry.

    Args:
        registry: whose gates they are.
        network: the detector.
    """

    def __init__(self, registry: Registry, network: Network) -> None:
        self._registry = registry
        self._network = network

    def pacing(self, provider: str) -> Pacing:
        """How a provider's calls are paced at this moment."""
        gates = self._registry.gates(provider)
        if not gates:
            return Pacing()
        shown = gates.gate_snapshots(clock.monotonic())
        worst = max((gate.state for gate in shown), key=_ORDER.index, default=GateState.IDLE)
        return Pacing(
            state=worst.value,
            rate=min((gate.rate for gate in shown if gate.rate is not None), default=0.0),
            queued=sum(gate.queued for gate in shown),
            quota_spent=len(gates.quota_snapshots()),
        )

    @property
    def network_up(self) -> bool:
        """Is this machine's own network up?"""
        return not self._network.down
