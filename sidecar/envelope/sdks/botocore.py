"""Amazon's SDK for Python: boto3, botocore, aiobotocore, and what is built on them.

`Error.Code` is the type. Throttles come under 400 and 403, a missing table under 400, and where
botocore knows no class for a code it raises the bare `ClientError`: status and class mislead, the
code does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sidecar.envelope.fields import as_word
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.botocore_codes import CODES, KINDS
from sidecar.envelope.sdks.family import (
    INVALID,
    NO_ANSWER,
    NO_CREDENTIALS,
    OUTAGE,
    THROTTLE,
    Facts,
    Family,
    because,
    changed,
    classes,
    decoded,
    member,
    seconds,
    words,
)

# Spellings that protocols add around a code: a namespace, a URL, the side that is at fault.
_SIDE = re.compile(r"^(?:Client|Server|Sender|Receiver)\.")


def bare(code: str) -> str:
    """A code without what a protocol put around it (`ns#Code`, `Code:http://…`, `Client.Code`)."""
    return _SIDE.sub("", code.rpartition("#")[2].partition(":")[0])


def _read(raised: Raised, facts: Facts) -> Facts:
    """`response["Error"]` in the form that dialects read, and what `ResponseMetadata` holds."""
    body = facts.body if isinstance(facts.body, Mapping) else {}
    error = body.get("Error") if isinstance(body.get("Error"), Mapping) else {}
    code = as_word(member(error, "Code")) or facts.code or as_word(body.get("__type"))
    code = None if code is None else bare(code)
    message = member(error, "Message") or body.get("message") or body.get("Message")
    told = message if isinstance(message, str) and message else facts.message
    told_more = body.get("Reason") or body.get("reason")
    metadata = member(body, "ResponseMetadata")
    status = facts.status or _number(member(metadata, "HTTPStatusCode"))
    request_id = member(metadata, "RequestId") or facts.request_id or raised.attrs.get("request_id")
    # Bedrock passes on how the model itself failed; its dialect reads that.
    behind = {name: body[name] for name in ("originalStatusCode",) if name in body}
    known = {"error": {"code": code, "message": told, **behind}}
    shown: Any = known if error or code else facts.body
    wait = seconds(body.get("retryAfterSeconds") or body.get("RetryAfterSeconds"))
    return changed(
        facts,
        status=status,
        code=code,
        body=shown,
        message=told,
        wait=wait,
        request_id=request_id if isinstance(request_id, str) else None,
        codes=(told_more,) if code is None and isinstance(told_more, str) else (),
    )


def _number(value: Any) -> int | None:
    return value if type(value) is int and 100 <= value <= 999 else None


# `Transaction cancelled, please refer cancellation reasons for specific reasons [None, Code]`
_REASONS = re.compile(r"\[([A-Za-z]+(?:, ?[A-Za-z]+){0,99})\]")


def _cancelled(raised: Raised) -> tuple[Raised, ...]:
    """The reasons of a cancelled transaction: each may be a failure of its own."""
    code = bare(as_word(raised.code) or "")
    if "TransactionCanceled" not in f"{raised.name} {code}":
        return ()
    reasons = member(decoded(raised.body), "CancellationReasons") or raised.attrs.get(
        "CancellationReasons"
    )
    told: list[tuple[str, str]] = []
    if isinstance(reasons, list | tuple):
        for reason in reasons[:100]:
            word, message = as_word(member(reason, "Code")), member(reason, "Message")
            told.append((word or "None", message if isinstance(message, str) else ""))
    elif (found := _REASONS.search(raised.message[:8192])) is not None:
        told = [(word.strip(), "") for word in found.group(1).split(",")]
    return tuple(
        Raised(
            type="botocore.exceptions.ClientError",
            code=word,
            headers=raised.headers,
            message=message or raised.message,
        )
        for word, message in told
        if word != "None"
    )


_EXCEPTIONS = "botocore.exceptions"

BOTOCORE = Family(
    name="botocore",
    packages=("botocore", "boto3", "aiobotocore", "s3transfer"),
    sdks=("boto3", "botocore", "aiobotocore", "aws"),
    dialect="bedrock",
    codes=CODES,
    kinds=KINDS,
    classes={
        **classes(
            _EXCEPTIONS,
            (
                "nothing was sent for want of credentials",
                NO_CREDENTIALS,
                """
                NoCredentialsError PartialCredentialsError CredentialRetrievalError
                NoAuthTokenError TokenRetrievalError SSOTokenLoadError
                UnauthorizedSSOTokenError LoginError LoginRefreshRequired
                RefreshWithMFAUnsupportedError UnknownCredentialError
                """,
            ),
            (
                "refused before sending",
                INVALID,
                """
                ParamValidationError ValidationError MissingParametersError NoRegionError
                UnknownServiceError UnknownRegionError ProfileNotFound ConfigParseError
                ConfigNotFound InvalidConfigError InvalidDNSNameError InvalidHostLabelError
                InvalidS3AddressingStyleError UnsupportedS3ArnError UnknownClientMethodError
                OperationNotPageableError PaginationError InvalidExpressionError
                BaseEndpointResolverError EndpointProviderError MissingDependencyException
                WaiterConfigError InvalidRetryConfigurationError
                UnknownSignatureVersionError InvalidEndpointConfigurationError
                InvalidDefaultsMode InvalidProxiesConfigError
                UnsupportedS3ConfigurationError UnsupportedS3AccesspointConfigurationError
                UnsupportedSignatureVersionError InvalidIMDSEndpointError
                UnseekableStreamError
                """,
            ),
            (
                "the body does not match its checksum",
                NO_ANSWER,
                "ChecksumError FlexibleChecksumError",
            ),
            ("the instance's metadata service did not answer", OUTAGE, "MetadataRetrievalError"),
        ),
        **classes(
            "botocore.parsers",
            ("what came back cannot be parsed", NO_ANSWER, "ResponseParserError"),
        ),
    },
    words=words(
        _EXCEPTIONS,
        connection_error="HTTPClientError ConnectionError EndpointConnectionError"
        " ProxyConnectionError",
        connection_reset="ConnectionClosedError ResponseStreamingError IncompleteReadError",
        connect_timeout="ConnectTimeoutError",
        read_timeout="ReadTimeoutError",
        tls_failure="SSLError",
    ),
    by_status={
        424: because(OUTAGE, "a model behind Bedrock failed, and nothing tells with which status"),
        509: because(THROTTLE, "bandwidth limit exceeded: on botocore's older list of limits"),
    },
    read=_read,
    members=_cancelled,
    sternest=True,
)
