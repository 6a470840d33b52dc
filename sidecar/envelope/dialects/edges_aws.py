"""AWS in the path: load balancers, CloudFront, its firewall, API Gateway.

Their own answers name a type in `x-amzn-ErrorType`, carry a header of the firewall, or are pages
that only the box itself writes. API Gateway says with 403 that there is no such route, and with
429 that a plan is used up.
"""

from __future__ import annotations

from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.headers import Headers
from sidecar.envelope.model import ErrorClass


def error_type(headers: Headers) -> str | None:
    """The type in `x-amzn-ErrorType`, without its namespace and the URL that may follow it."""
    stated = headers.get("x-amzn-errortype")
    if stated is None:
        return None
    return stated.partition(":")[0].rpartition("#")[2].strip() or None


def _server(evidence: Evidence) -> str:
    return (evidence.headers.get("server") or "").lower()


def _is_cloudfronts_block(evidence: Evidence) -> bool:
    if "error from cloudfront" not in (evidence.headers.get("x-cache") or "").lower():
        return False
    page = evidence.seen.body[:8192].decode("latin-1").lower()
    return evidence.html and ("request blocked" in page or "configured to block access" in page)


AWS_EDGES = (
    Rule(
        name="AWS WAF",
        why="x-amzn-waf-action: a robot check, which new credentials do not pass",
        when=lambda evidence: evidence.headers.get("x-amzn-waf-action") is not None,
        class_=ErrorClass.PERMANENT,
    ),
    Rule(
        name="AWS load balancer firewall",
        why="a load balancer answers 403 by itself for its firewall only",
        statuses=statuses(403),
        when=lambda evidence: evidence.html and _server(evidence).startswith("awselb"),
        class_=ErrorClass.PERMANENT,
    ),
    Rule(
        name="CloudFront firewall",
        why="x-cache says that CloudFront made this 403 page itself",
        statuses=statuses(403),
        when=_is_cloudfronts_block,
        class_=ErrorClass.PERMANENT,
    ),
)

# Not for AWS' own services, which mean some of these words literally.
API_GATEWAY = (
    Rule(
        name="API Gateway: no such route",
        why="it asks for a token wherever no method answers: the path or the verb is wrong",
        codes=words("MissingAuthenticationTokenException"),
        statuses=statuses(403),
        class_=ErrorClass.PERMANENT,
    ),
    Rule(
        name="API Gateway: the signature has expired",
        why="a signature lives minutes: signing again, with the clock right, mends it",
        codes=words("InvalidSignatureException SignatureDoesNotMatch RequestExpired"),
        says=("signature expired", "signature not yet current", "request has expired"),
        statuses=statuses(400, 401, 403),
        class_=ErrorClass.AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="API Gateway: the usage plan is spent",
        why="the quota of a day, a week or a month; its throttle has another type",
        codes=words("LimitExceededException"),
        statuses=statuses(429),
        class_=ErrorClass.PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="API Gateway: the usage plan is spent",
        why="the same where the type got lost: the whole text of its answer",
        statuses=statuses(429),
        when=lambda evidence: (
            evidence.body == {"message": "Limit Exceeded"} and is_api_gateway(evidence.headers)
        ),
        class_=ErrorClass.PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="API Gateway: no such route",
        why="the same where the type got lost: the whole text of its answer",
        statuses=statuses(403),
        when=lambda evidence: (
            evidence.body == {"message": "Missing Authentication Token"}
            and is_api_gateway(evidence.headers)
        ),
        class_=ErrorClass.PERMANENT,
    ),
)


def is_api_gateway(headers: Headers) -> bool:
    """Whether a header says that API Gateway handled the call."""
    return any(name in headers for name in ("x-amz-apigw-id", "apigw-requestid"))
