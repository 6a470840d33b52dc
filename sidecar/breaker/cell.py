"""pybreaker, without what it would load beside itself.

It looks for Redis when it is imported, for a storage that is not used here, and the client for
Redis loads the SDK of OpenTelemetry: ten megabytes and a tenth of a second in every daemon. So that
import finds nothing, as where Redis is not installed; who needs the client imports it afterwards.
"""

from __future__ import annotations

import sys

_ABSENT = "redis" not in sys.modules
if _ABSENT:
    sys.modules["redis"] = None  # type: ignore[assignment] # the mark of what cannot be imported
try:
    from pybreaker import CircuitBreaker, CircuitBreakerListener, CircuitBreakerState
finally:
    if _ABSENT:
        del sys.modules["redis"]

__all__ = ["CircuitBreaker", "CircuitBreakerListener", "CircuitBreakerState"]
