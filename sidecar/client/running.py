"""One call inside a guard, from its permit to its report, and who makes it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.client.daemon import Daemon


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """One call inside a guard, until it is reported.

    Attributes:
        permit: what the report names; None where there is nobody to report to.
        daemon: who gave it.
        correlation_id: of the call.
        began: monotonic seconds.
        process: in which the permit was asked for: a fork's child leaves the report to its parent.
        owner: the task, else the thread, that entered.
    """

    permit: str | None
    daemon: Daemon | None
    correlation_id: str
    began: float
    process: int
    owner: int

    def report(self, name: str, outcome: Mapping[str, Any]) -> None:
        """Say how the call went, if anybody wants to know."""
        if self.permit is None or self.daemon is None or self.process != os.getpid():
            return
        document = {
            "permit": self.permit,
            "correlation_id": self.correlation_id,
            "duration": time.monotonic() - self.began,
            **outcome,
        }
        self.daemon.report(name, document)


def task_here() -> Any:
    """The task of asyncio that runs here, or None; who has none need not load it to be told."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def owner_here() -> int:
    """What tells those apart who are inside one guard at once: the task, else the thread."""
    task = task_here()
    return threading.get_ident() if task is None else id(task)
