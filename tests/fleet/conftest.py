"""Daemons that end and come back, in the test's loop or as processes."""

from tests.field.conftest import _plain_environment, clocks, log, process
from tests.proxy.conftest import start, upstream

__all__ = ["_plain_environment", "clocks", "log", "process", "start", "upstream"]
