"""For the agent's own process: guards around its database and SDK calls, and retries by class.

Nothing of a third party is imported until something has failed.
"""

from sidecar.client.daemon import Counts, close, counts
from sidecar.client.errors import BreakerOpen, SidecarError
from sidecar.client.guard import Entry, Guard, guard
from sidecar.client.workflow import correlation_id, workflow

__all__ = [
    "BreakerOpen",
    "Counts",
    "Entry",
    "Guard",
    "SidecarError",
    "close",
    "correlation_id",
    "counts",
    "guard",
    "workflow",
]
