"""AWS: the name of an exception, in a header, in the body or in XML.

`x-amzn-ErrorType` may be the bare name, `namespace#Name`, or `Name:http://…` with or without what
follows the colon; older JSON services put it into `__type`, S3 and the query services into
`<Code>`. Services of the older kind answer every fault of the caller with 400, so the name
decides, not the status.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.rule import FIVE, FOUR, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    COMMON,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import as_word
from sidecar.envelope.headers import Headers
from sidecar.envelope.locate import Found
from sidecar.envelope.model import ErrorClass, Seen, Verdict

# The union of what the SDKs take for a throttle.
THROTTLES = words(
    "Throttling ThrottlingException ThrottledException RequestThrottled RequestThrottledException"
    " TooManyRequestsException ProvisionedThroughputExceededException RequestLimitExceeded"
    " BandwidthLimitExceeded SlowDown PriorRequestNotComplete EC2ThrottledException"
)

AWS_RULES = (
    Rule(
        name="the window of a quota is spent",
        why="the exception of a throttle; only the text tells that it is a day's",
        codes=THROTTLES,
        says=("per day", "daily", "per month"),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="throttled",
        why="the name says so, under 400, 429 or 503",
        codes=THROTTLES,
        class_=RATE_LIMIT,
    ),
    Rule(
        name="a quota is reached",
        why="so many things and no more; asking again does not raise it",
        codes=words("ServiceQuotaExceededException ServiceQuotaExceeded LimitExceededException"),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="the security token has expired",
        why="the token of a session: a new one mends it, also under 400",
        codes=words("ExpiredToken ExpiredTokenException TokenRefreshRequired RequestExpired"),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the signature or the token has expired",
        why="a name for every refused credential; only the text tells that renewing it helps",
        codes=words(
            "InvalidSignatureException SignatureDoesNotMatch UnrecognizedClientException"
            " AccessDeniedException AccessDenied NotAuthorizedException UnauthorizedException"
        ),
        says=(
            "signature expired",
            "token has expired",
            "token is expired",
            "token expired",
            "token included in the request is expired",
        ),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the credential is refused",
        why="the name says so, whatever the status",
        codes=words(
            "AccessDeniedException AccessDenied UnrecognizedClientException InvalidClientTokenId"
            " InvalidSignatureException SignatureDoesNotMatch IncompleteSignature"
            " IncompleteSignatureException MissingAuthenticationToken"
            " MissingAuthenticationTokenException AuthFailure InvalidAccessKeyId InvalidToken"
            " NotAuthorized NotAuthorizedException UnauthorizedException OptInRequired"
            " ForbiddenException RequestTimeTooSkewed AccountProblem AllAccessDisabled"
        ),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the body came too slowly",
        why="S3: a 400 for a slow caller; the same request may pass",
        codes=words("RequestTimeout RequestTimeoutException"),
        statuses=statuses(400),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="a passing conflict",
        why="two requests met, and the same one may pass now",
        codes=words(
            "ConcurrentModificationException OperationAborted TransactionInProgressException"
            " TransactionConflictException"
        ),
        statuses=TWO | FOUR,
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="a conflict",
        why="with the state of a thing, under 400 or 409: asking again changes nothing",
        codes=words("ConflictException ResourceInUseException ResourceAlreadyExistsException"),
        class_=PERMANENT,
    ),
    Rule(
        name="nothing is there",
        why="older services say it with 400",
        codes=words(
            "ResourceNotFoundException NotFoundException NoSuchKey NoSuchBucket NoSuchEntity"
            " UnknownOperationException UnknownOperation InvalidAction QueueDoesNotExist"
        ),
        class_=PERMANENT,
    ),
    Rule(
        name="the request is at fault",
        why="the name says so where the status does not",
        codes=words("ValidationException ValidationError SerializationException"),
        statuses=TWO | FIVE,
        class_=VALIDATION,
    ),
    Rule(
        name="a server's fault",
        why="the name says so where the status does not",
        codes=words(
            "InternalServerException InternalServerError InternalFailure InternalError"
            " ServiceUnavailableException ServiceUnavailable ServiceFailure BadGatewayException"
            " DependencyFailedException RequestTimeout RequestTimeoutException"
        ),
        statuses=TWO | statuses(400, 424),
        class_=TRANSIENT,
        verdict=Verdict.FAILURE,
    ),
)


def exception_name(spelt: str) -> str:
    """The bare name of an exception: `Name` of `namespace#Name:http://internal…/`."""
    return spelt.partition(":")[0].rpartition("#")[2].strip()


class AWS(Dialect):
    """A service of AWS."""

    rules: ClassVar[tuple[Rule, ...]] = (*AWS_RULES, *COMMON)
    code_places: ClassVar[tuple[str, ...]] = ("exception", "type")
    request_id_headers: ClassVar[tuple[str, ...]] = (
        "x-amzn-requestid",
        "x-amz-request-id",
        *Dialect.request_id_headers,
    )

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The evidence in a located error, with the bare name of the exception as its code."""
        name = ""
        for source in (found.error, found.around):
            for member in ("__type", "code", "Code", "errorCode", "errorType"):
                spelt = as_word(source.get(member)) or ""
                name = name or ("" if spelt.isdecimal() else exception_name(spelt))
        name = name or self.code_in_headers(seen.headers)
        if name:
            found = msgspec.structs.replace(found, error={**found.error, "exception": name})
        return super().read(found, seen, stream=stream)

    def code_in_headers(self, headers: Headers) -> str:
        """The name of the exception."""
        query = (headers.get("x-amzn-query-error") or "").partition(";")[0].strip()
        return query or exception_name(headers.get("x-amzn-errortype") or "")


EXCEPTIONS = {
    ErrorClass.VALIDATION: "ValidationException",
    ErrorClass.AUTHENTICATION: "AccessDeniedException",
    ErrorClass.RATE_LIMIT: "ThrottlingException",
    ErrorClass.TRANSIENT: "ServiceUnavailableException",
}
"""The exceptions that most services have, by the class that they stand for."""
