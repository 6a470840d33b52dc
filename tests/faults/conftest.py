"""Daemons that do something to calls on purpose."""

from tests.field.conftest import _plain_environment, clocks, log
from tests.proxy.conftest import start, upstream

__all__ = ["_plain_environment", "clocks", "log", "start", "upstream"]
