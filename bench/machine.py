"""What the benchmark asks of the machine: cores, CPU time, memory, descriptors, free ports.

Linux only, from /proc: the CPU time that a process really got is the one figure that other work on
the same machine does not spoil.
"""

from __future__ import annotations

import os
import platform
import random
import resource
import socket
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Cores(NamedTuple):
    """The core of the proxy under test, and the one that load and upstream share."""

    proxy: int
    load: int

    @property
    def apart(self) -> bool:
        return self.proxy != self.load


def cores() -> Cores:
    """The last core for the proxy: the first one serves most interrupts."""
    usable = sorted(os.sched_getaffinity(0))
    return Cores(proxy=usable[-1], load=usable[0])


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text("latin-1")
        except OSError:
            continue
        parent = int(stat.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def cpu_seconds(pids: list[int]) -> float:
    """CPU time of these processes, to the nanosecond where the kernel accounts it so."""
    spent = 0.0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            try:
                spent += int((task / "schedstat").read_text().split()[0]) / 1e9
            except (OSError, IndexError, ValueError):
                spent += _ticks(task)
    return spent


def _ticks(task: Path) -> float:
    try:
        fields = (task / "stat").read_text("latin-1").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pids: list[int]) -> float:
    """Resident memory of these processes in MiB; pages that they share count in each."""
    kib = 0
    for pid in pids:
        try:
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    kib += int(line.split()[1])
        except OSError:
            continue
    return kib / 1024


def descriptors(pid: int) -> int:
    """Open file descriptors of one process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def raise_descriptor_limit(wanted: int) -> int:
    """Lets this process and its children open `wanted` files, or as many as are allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        return limit
    return soft


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on just now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def lasting_ports(count: int) -> list[int]:
    """Loopback ports that are free, and that no outgoing connection is ever given.

    For who listens, goes and comes back: meanwhile the kernel might give a port to somebody else.
    """
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    found: list[int] = []
    for port in random.sample(range(10_000, int(given[0])), 1000):
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports")


def describe() -> dict[str, object]:
    """The class of machine, in general terms."""
    return {
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }
