"""What a guard adds to a call: with the daemon up, with nobody there, and with one that is silent.

Measured in this process around a call that does nothing. The daemon is a process of its own with
one dependency, under the rules that ship.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from bench import machine
from sidecar.client import close, guard

if TYPE_CHECKING:
    from bench.scenarios import Bench

NAME = "orders-db"


def measure(bench: Bench) -> None:
    """One caller, call after call."""
    peer = bench.lab.daemon("guarded")
    address = f"http://127.0.0.1:{peer.admin}"
    (unused,) = machine.free_ports(1)
    with _silent() as silent:
        kinds: dict[str, Callable[[int], list[float]]] = {
            "up": lambda times: _timed(_good(address), times),
            "up, in a loop": lambda times: asyncio.run(_timed_async(address, times)),
            "up, the call fails": lambda times: _timed(_failing(address), times),
            "nobody there": lambda times: _timed(_good(f"http://127.0.0.1:{unused}"), times),
            "silent": lambda times: _timed(_good(silent), times),
        }
        for name, run in kinds.items():
            run(50)
            found = bench.results.setdefault("guard", {}).setdefault(name, {})
            for _ in range(bench.plan.rounds):
                took = sorted(run(100 if bench.plan.quick else 2000))
                for key, share in (("guard_p50", 0.5), ("guard_p99", 0.99), ("guard_max", 1.0)):
                    place = min(len(took) - 1, int(share * len(took)))
                    found.setdefault(key, []).append(took[place] * 1e6)
    close()
    assert peer.process is not None
    bench.lab.end(peer.process)
    bench.say("  guard: done")


def _good(address: str) -> Callable[[], None]:
    def call() -> None:
        with guard(NAME, admin=address):
            pass

    return call


def _failing(address: str) -> Callable[[], None]:
    """The caller's own mistake: it opens no breaker, and is judged and reported all the same."""

    def call() -> None:
        with suppress(KeyError), guard(NAME, admin=address):
            raise KeyError("x")

    return call


def _timed(call: Callable[[], None], times: int) -> list[float]:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return took


async def _timed_async(address: str, times: int) -> list[float]:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        async with guard(NAME, admin=address):
            pass
        took.append(time.perf_counter() - began)
    return took


@contextmanager
def _silent() -> Iterator[str]:
    """The address of one that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
