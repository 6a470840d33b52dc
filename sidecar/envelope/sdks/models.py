"""SDKs of model providers: OpenAI and those made by the same generator, Mistral, Cohere and others.

What they raise holds the whole answer, which the dialect of the provider reads. Their own classes
add little: a conflict that the SDK repeats, a missing key, a connection that was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.family import (
    CONFLICT,
    INVALID,
    NO_ANSWER,
    NO_CREDENTIALS,
    OUTAGE,
    Facts,
    Family,
    changed,
    classes,
    statuses,
    worded,
    words,
)

_LOCK = "the SDK documents it as a lock that timed out, and repeats it"
_NO_KEY = "refused by the constructor: nothing was sent"


def generated(module: str) -> dict[str, int]:
    """Classes that Stainless generates alike for all its SDKs."""
    return statuses(
        module,
        BadRequestError=400,
        AuthenticationError=401,
        PermissionDeniedError=403,
        NotFoundError=404,
        ConflictError=409,
        UnprocessableEntityError=422,
        RateLimitError=429,
        InternalServerError=500,
    )


def _lost(module: str) -> dict[str, str]:
    return words(module, connection_error="APIConnectionError", timeout="APITimeoutError")


def inner(_: Raised, facts: Facts) -> Facts:
    """The SDK keeps the inner error object alone; around it the dialect finds it."""
    body = facts.body
    if isinstance(body, Mapping) and body and "error" not in body:
        return changed(facts, body={"error": body})
    return facts


_OPENAI: dict[str, Any] = {
    "statuses": generated("openai"),
    "classes": classes(
        "openai",
        (_LOCK, CONFLICT, "ConflictError"),
        ("the answer does not have the form it should", NO_ANSWER, "APIResponseValidationError"),
        (
            "a signature that does not match",
            worded(INVALID, "signature_verification_failed"),
            "InvalidWebhookSignatureError",
        ),
        ("the answer ended at the limit of its length", INVALID, "LengthFinishReasonError"),
        (
            "the answer was refused by a filter",
            worded(INVALID, "content_filtered"),
            "ContentFilterFinishReasonError",
        ),
    ),
    "words": {
        **_lost("openai"),
        **words(
            "openai",
            connection_reset="WebSocketConnectionClosedError",
            local_resource="WebSocketQueueFullError",
        ),
    },
    "says": (
        ("missing credentials", NO_CREDENTIALS),
        ("api_key client option must be set", NO_CREDENTIALS),
    ),
    "read": inner,
}

OPENAI = Family(
    name="openai",
    packages=("openai",),
    sdks=("openai",),
    dialect="openai",
    shared=True,
    **_OPENAI,
)
AZURE_OPENAI = Family(
    name="openai on Azure",
    packages=(),
    sdks=("openai-azure", "azure-openai"),
    dialect="azure-openai",
    **_OPENAI,
)

ANTHROPIC = Family(
    name="anthropic",
    packages=("anthropic",),
    sdks=("anthropic",),
    dialect="anthropic",
    shared=True,
    statuses={
        **generated("anthropic"),
        **statuses(
            "anthropic",
            PaymentRequiredError=402,
            RequestTimeoutError=408,
            PreconditionFailedError=412,
            ContentTooLargeError=413,
            RequestTooLargeError=413,
            RequestHeaderFieldsTooLargeError=431,
            ClientClosedRequestError=499,
            HTTPNotImplementedError=501,
            ServiceUnavailableError=503,
            GatewayTimeoutError=504,
            DeadlineExceededError=504,
            OverloadedError=529,
        ),
    },
    classes=classes(
        "anthropic",
        (_LOCK, CONFLICT, "ConflictError"),
        ("the answer does not have the form it should", NO_ANSWER, "APIResponseValidationError"),
        (
            "a signature that does not match",
            worded(INVALID, "signature_verification_failed"),
            "APIWebhookValidationError",
        ),
        (
            "no credentials could be loaded",
            NO_CREDENTIALS,
            "CredentialsError IdentityTokenFileError",
        ),
        ("raised to have the attempt repeated", OUTAGE, "RetryableError"),
    ),
    words=_lost("anthropic"),
    says=(("could not resolve authentication method", NO_CREDENTIALS),),
)

GROQ = Family(
    name="groq",
    packages=("groq",),
    sdks=("groq",),
    dialect="groq",
    statuses=generated("groq"),
    classes=classes(
        "groq",
        (_LOCK, CONFLICT, "ConflictError"),
        ("the answer does not have the form it should", NO_ANSWER, "APIResponseValidationError"),
    ),
    words=_lost("groq"),
    says=(("api_key client option must be set", NO_CREDENTIALS),),
    read=inner,
)

#: Others of the same generator, whose providers speak as OpenAI does.
GENERATED = tuple(
    Family(
        name=package,
        packages=(package,),
        sdks=tuple({package, dialect}),
        dialect=dialect,
        statuses=generated(package),
        classes=classes(package, (_LOCK, CONFLICT, "ConflictError")),
        words=_lost(package),
        says=(("api_key client option must be set", NO_CREDENTIALS),),
        read=inner,
    )
    for package, dialect in (
        ("cerebras.cloud.sdk", "cerebras"),
        ("together", "together"),
        ("perplexity", "perplexity"),
        ("fireworks", "fireworks"),
    )
)


GENERATED_ALIKE = (OPENAI, AZURE_OPENAI, ANTHROPIC, GROQ, *GENERATED)
