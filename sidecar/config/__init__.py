"""`breakers.yaml`: one schema that validates, documents and resolves it."""

from sidecar.config.addresses import Listen
from sidecar.config.load import default_path, find, load
from sidecar.config.overrides import Overrides
from sidecar.config.problems import ConfigError, Problem
from sidecar.config.resolved import Admin, Config, Provider
from sidecar.config.schema import (
    BreakerConfig,
    ClientTls,
    Drain,
    Limits,
    Log,
    SetHeader,
    Shedding,
    Timeouts,
)

__all__ = [
    "Admin",
    "BreakerConfig",
    "ClientTls",
    "Config",
    "ConfigError",
    "Drain",
    "Limits",
    "Listen",
    "Log",
    "Overrides",
    "Problem",
    "Provider",
    "SetHeader",
    "Shedding",
    "Timeouts",
    "default_path",
    "find",
    "load",
]
