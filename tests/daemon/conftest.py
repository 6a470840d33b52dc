"""The daemon's own life: started, signalled, reloaded and stopped as a process."""

from tests.field.conftest import _plain_environment, clocks, log, process
from tests.proxy.conftest import start, upstream

__all__ = ["_plain_environment", "clocks", "log", "process", "start", "upstream"]
