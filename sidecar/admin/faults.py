"""`/faults`: rules for a while, and the record of what they did.

Where `faults.allowed` is false nobody may add any; what the configuration injects is shown all the
same, so that nobody looks for a fault of the provider that is one of ours.
"""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from sidecar import clock
from sidecar.admin.answers import AdminError, json_answer
from sidecar.config.fault_rules import concerns_dependencies, read_order
from sidecar.config.problems import ConfigError
from sidecar.config.resolved import Config
from sidecar.faults.failures import misses
from sidecar.faults.injector import Faults

_MOST_PROBLEMS = 20
"""Problems that are told: a body may have thousands."""


class FaultsView(Protocol):
    """What is seen of the daemon here."""

    @property
    def config(self) -> Config:
        """The configuration in force."""

    @property
    def faults(self) -> Faults:
        """What is done to calls on purpose."""


def shown(daemon: FaultsView, *, record: bool = True) -> web.StreamResponse:
    """The rules in force, and the last injections unless only the rules are asked for."""
    return json_answer(daemon.faults.document(clock.monotonic(), record=record))


def added(daemon: FaultsView, body: bytes) -> web.StreamResponse:
    """Takes rules for a while; an empty list ends those that run.

    Raises:
        AdminError: 403 where it is not allowed, 400 with what is wrong with them.
    """
    if not daemon.faults.allowed:
        raise AdminError(403, "faults_off", "faults.allowed is false: nothing is injected by order")
    try:
        order = read_order(body)
    except ConfigError as error:
        told = "; ".join(problem.told for problem in error.problems[:_MOST_PROBLEMS])
        if len(error.problems) > _MOST_PROBLEMS:
            told += f"; and {len(error.problems) - _MOST_PROBLEMS} more"
        raise AdminError(400, "bad_request", told or "the body is no set of rules") from None
    known = daemon.config.providers
    unknown = {rule.provider for rule in order.rules if rule.provider is not None} - set(known)
    if unknown:
        names, there = ", ".join(sorted(unknown)), ", ".join(sorted(known)) or "none"
        message = f"no provider is called {names}: nothing is injected; configured: {there}"
        raise AdminError(400, "bad_request", message)
    dependencies = daemon.config.dependencies.values()
    told = "; ".join(
        misses(rule, dependencies) for rule in order.rules if concerns_dependencies(rule)
    ).strip("; ")
    if told:
        raise AdminError(400, "bad_request", told)
    daemon.faults.add(order.rules, order.seed, clock.monotonic() + order.for_)
    return shown(daemon)
