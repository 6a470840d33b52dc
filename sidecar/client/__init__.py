"""For the agent's own process: guards around its database and SDK calls, and retries by class.

Nothing of a third party is imported until something has failed.
"""

from sidecar.client.attempt import Attempt
from sidecar.client.budget import Budget
from sidecar.client.daemon import Counts, close, counts
from sidecar.client.errors import BreakerOpen, SidecarError
from sidecar.client.explain import envelope_of, for_model, preload
from sidecar.client.guard import Entry, Guard, guard
from sidecar.client.policy import Policy
from sidecar.client.retry import Retry, retry
from sidecar.client.workflow import correlation_id, workflow

__all__ = [
    "Attempt",
    "BreakerOpen",
    "Budget",
    "Counts",
    "Entry",
    "Guard",
    "Policy",
    "Retry",
    "SidecarError",
    "close",
    "correlation_id",
    "counts",
    "envelope_of",
    "for_model",
    "guard",
    "preload",
    "retry",
    "workflow",
]
