"""Google's SDKs: google-api-core and what is built on it, google-auth, google-genai.

google-api-core speaks REST and gRPC with the same classes. The reason, where there is one, says
more than the class; the class says more than the status, for `Aborted` and `AlreadyExists` are both
a 409, and two of its classes have no status at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sidecar.envelope.fields import as_word
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.family import (
    INVALID,
    NO_ANSWER,
    NO_CREDENTIALS,
    OUTAGE,
    REFUSED,
    Facts,
    Family,
    changed,
    classes,
    member,
    named,
    seconds,
    statuses,
    words,
)
from sidecar.envelope.sdks.google_reasons import REASONS
from sidecar.envelope.sdks.grpc import STATUSES, name_of, reason_and_delay, wait_in

_CORE = "google.api_core.exceptions"

# Classes that stand for a status of gRPC's. `NotFound` and those for servers' errors carry it on
# answers of REST, too, as a constant of the class.
_STATUS_OF_CLASS = {
    f"{_CORE}.{name}": status
    for name, status in {
        "Aborted": "ABORTED",
        "AlreadyExists": "ALREADY_EXISTS",
        "Cancelled": "CANCELLED",
        "DataLoss": "DATA_LOSS",
        "DeadlineExceeded": "DEADLINE_EXCEEDED",
        "FailedPrecondition": "FAILED_PRECONDITION",
        "InternalServerError": "INTERNAL",
        "InvalidArgument": "INVALID_ARGUMENT",
        "MethodNotImplemented": "UNIMPLEMENTED",
        "NotFound": "NOT_FOUND",
        "OutOfRange": "OUT_OF_RANGE",
        "PermissionDenied": "PERMISSION_DENIED",
        "ResourceExhausted": "RESOURCE_EXHAUSTED",
        "ServiceUnavailable": "UNAVAILABLE",
        "Unauthenticated": "UNAUTHENTICATED",
        "Unknown": "UNKNOWN",
    }.items()
}


def _core(raised: Raised, facts: Facts) -> Facts:
    details = raised.attrs.get("details") or member(facts.body, "error", "details")
    reason = as_word(raised.attrs.get("reason")) or _reason(details)
    reason = reason or as_word(member(raised.attrs, "errors", "reason"))
    reason = reason or as_word(member(facts.body, "errors", "reason"))
    reason = reason or as_word(member(facts.body, "error", "errors", "reason"))
    packed, delay = reason_and_delay(facts.headers)
    status = (
        name_of(raised.attrs.get("grpc_status_code"))
        or name_of(facts.code)
        or next((_STATUS_OF_CLASS[name] for name in raised.names if name in _STATUS_OF_CLASS), None)
    )
    pushed, again = wait_in(facts.headers)
    return changed(
        facts,
        code=reason or packed or status or facts.code,
        codes=tuple(code for code in (reason, packed, status) if code),
        message=_message(raised, facts),
        wait=_delay(details) if details else pushed if pushed is not None else delay,
        again=again,
    )


def _message(raised: Raised, facts: Facts) -> str:
    told = raised.attrs.get("message")
    return told if isinstance(told, str) and told else facts.message


def _reason(details: Any) -> str | None:
    for detail in _details(details, "ErrorInfo"):
        reason = as_word(detail.get("reason"))
        if reason:
            return reason
    return None


def _delay(details: Any) -> float | None:
    """The delay of a `RetryInfo`, as JSON writes it (`1.5s`) or as an object of two numbers."""
    for detail in _details(details, "RetryInfo"):
        delay = detail.get("retryDelay", detail.get("retry_delay"))
        if isinstance(delay, Mapping):
            whole, nanos = seconds(delay.get("seconds")), seconds(delay.get("nanos"))
            return (whole or 0.0) + (nanos or 0.0) / 1e9
        if isinstance(delay, str):
            return seconds(delay.removesuffix("s"))
        return seconds(delay)
    return None


def _details(details: Any, kind: str) -> list[Mapping[str, Any]]:
    held = details if isinstance(details, list | tuple) else ()
    return [
        detail
        for detail in held[:64]
        if isinstance(detail, Mapping)
        and str(detail.get("@type") or "").rpartition("/")[2].rpartition(".")[2] == kind
    ]


API_CORE = Family(
    name="google-api-core",
    packages=("google.api_core", "google.cloud"),
    sdks=("google-api-core", "google-bigquery", "google-cloud", "google", "google-spanner"),
    dialect="google-apis",
    codes={**REASONS, "data_loss": STATUSES["data_loss"]},
    kinds=STATUSES,
    statuses={
        **statuses(
            _CORE,
            MovedPermanently=301,
            NotModified=304,
            TemporaryRedirect=307,
            ResumeIncomplete=308,
            BadRequest=400,
            Unauthorized=401,
            Forbidden=403,
            NotFound=404,
            MethodNotAllowed=405,
            Conflict=409,
            LengthRequired=411,
            PreconditionFailed=412,
            RequestRangeNotSatisfiable=416,
            TooManyRequests=429,
            Cancelled=499,
            InternalServerError=500,
            MethodNotImplemented=501,
            BadGateway=502,
            ServiceUnavailable=503,
            GatewayTimeout=504,
        )
    },
    classes=classes(
        _CORE,
        ("the transfer stalled or was cut", OUTAGE, "TransferStalledError"),
        (
            "the call cannot be made like this",
            INVALID,
            "DuplicateCredentialArgs AsyncRestUnsupportedParameterError UnseekableStreamError",
        ),
    ),
    read=_core,
)

# `('invalid_grant: Token has been expired.', {'error': 'invalid_grant'})`
_TOLD_BY_OAUTH = re.compile(r"""['"]error['"]: ['"]([a-z_]{3,40})['"]""")
_FIRST_WORD = re.compile(r"""^\(?['"]?([a-z]{3,20}(?:_[a-z]{2,20}){1,4}): """)


def _auth(raised: Raised, facts: Facts) -> Facts:
    """The answer of the token endpoint is among the arguments, or in the text only."""
    code = next(
        (as_word(member(one, "error")) for one in raised.args if member(one, "error")), None
    )
    if code is None:
        text = raised.message[:8192]
        found = _TOLD_BY_OAUTH.search(text) or _FIRST_WORD.search(text)
        code = found.group(1) if found else facts.code
    first = raised.args[0] if raised.args else None
    told = first if isinstance(first, str) and first else facts.message
    again = raised.attrs.get("retryable", raised.attrs.get("_retryable"))
    codes = ("retryable-refresh",) if again is True and code != "invalid_grant" else ()
    return changed(facts, code=code, codes=codes, message=told)


_AUTH = "google.auth.exceptions"
AUTH = Family(
    name="google-auth",
    packages=("google.auth", "google.oauth2"),
    sdks=("google-auth",),
    dialect="oauth",
    codes=named(
        (
            "the token endpoint failed and google-auth calls that retryable",
            OUTAGE,
            "retryable-refresh internal_failure server_error temporarily_unavailable",
        ),
        ("what could be refreshed was refused for good", REFUSED, "invalid_grant invalid_client"),
    ),
    classes=classes(
        _AUTH,
        ("transient, in spite of its family: api-core repeats it", OUTAGE, "TransportError"),
        ("no credentials on this machine", NO_CREDENTIALS, "DefaultCredentialsError"),
        ("what came back is no answer of a token endpoint", NO_ANSWER, "ResponseError"),
        (
            "a refresh that failed cannot be refreshed",
            REFUSED,
            """
            RefreshError UserAccessTokenError OAuthError ReauthFailError
            MutualTLSChannelError ClientCertError GoogleAuthError
            """,
        ),
    ),
    words=words(_AUTH, timeout="TimeoutError"),
    read=_auth,
)


def _genai(raised: Raised, facts: Facts) -> Facts:
    """`code` is the status, `status` the name of gRPC's, or a phrase of HTTP's that is no code.

    `details` is the whole answer.
    """
    told = raised.attrs.get("message")
    if facts.body is None and member(raised.attrs, "details", "error"):
        facts = changed(facts, body=raised.attrs["details"])
    return changed(
        facts,
        code=name_of(raised.attrs.get("status")) or name_of(facts.code),
        message=told if isinstance(told, str) and told else facts.message,
        wait=_delay(member(facts.body, "error", "details")),
    )


GENAI = Family(
    name="google-genai",
    packages=("google.genai", "google.generativeai"),
    sdks=("google-genai",),
    dialect="gemini",
    # What the SDK repeats keeps its name; the others have details that the dialect reads.
    codes={
        name: STATUSES[name]
        for name in (
            "unavailable",
            "internal",
            "unknown",
            "deadline_exceeded",
            "aborted",
            "cancelled",
        )
    },
    kinds=STATUSES,
    classes=classes(
        "google.genai.errors",
        (
            "the function of the caller does not fit",
            INVALID,
            "UnknownFunctionCallArgumentError UnsupportedFunctionError FunctionInvocationError",
        ),
        ("the answer does not have the form it should", NO_ANSWER, "UnknownApiResponseError"),
    ),
    says=(
        ("no api key was provided", NO_CREDENTIALS),
        ("missing key inputs argument", NO_CREDENTIALS),
    ),
    read=_genai,
)

GOOGLE = (API_CORE, AUTH, GENAI)
