"""From what a database driver raised to an envelope and a verdict.

The key is (vendor, number), never the number: 1205 is a deadlock in one server and a lock wait in
another. The class of the exception is asked last: drivers disagree about it.
"""

from __future__ import annotations

from sidecar.envelope.meaning import Meaning, classified
from sidecar.envelope.model import Classified, ErrorClass, Source, Verdict
from sidecar.envelope.raised import Raised

_UNKNOWN = Meaning(
    class_=ErrorClass.PERMANENT,
    retryable=False,
    verdict=Verdict.ALIVE,
    rule="nothing known: permanent, with what was raised kept",
)


def classify(
    raised: Raised,
    *,
    vendor: str | None = None,
    driver: str | None = None,
    correlation_id: str = "",
    now: float = 0.0,
) -> Classified:
    """Classify what a database call raised. Never raises.

    Args:
        raised: the exception.
        vendor: `postgresql`, `mysql`, …; None to tell by driver and class.
        driver: `psycopg`, `sqlalchemy+asyncpg`, …; None to tell by class.
        correlation_id: goes into the envelope.
        now: when it was seen, seconds since the epoch.
    """
    del vendor, driver, now
    return classified(
        raised,
        _UNKNOWN,
        source=Source.DATABASE,
        code=None,
        message=raised.message,
        correlation_id=correlation_id,
    )
