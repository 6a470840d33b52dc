"""SDKs of model providers with errors of their own make: LiteLLM, Mistral, Cohere, Hugging Face.

Mistral and Cohere keep a status and a body; LiteLLM dresses all providers in OpenAI's classes; the
hub of Hugging Face tells what is missing by a header, and by a class for each.
"""

from __future__ import annotations

from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.family import (
    CONFLICT,
    FINAL,
    INVALID,
    NO_ANSWER,
    NO_CREDENTIALS,
    OUTAGE,
    REFUSED,
    THROTTLE,
    Facts,
    Family,
    because,
    changed,
    classes,
    seconds,
    statuses,
    worded,
    words,
)
from sidecar.envelope.sdks.models import generated, inner


def _litellm(raised: Raised, facts: Facts) -> Facts:
    """LiteLLM puts the status into `code` as text; a router says how long it cools down."""
    wait = seconds(raised.attrs.get("cooldown_time"))
    return changed(inner(raised, facts), wait=wait if wait is not None else facts.wait)


_LITELLM = "litellm.exceptions"
LITELLM = Family(
    name="litellm",
    packages=("litellm",),
    sdks=("litellm",),
    dialect="litellm",
    statuses={
        **generated(_LITELLM),
        **statuses(_LITELLM, Timeout=408, ServiceUnavailableError=503, BadGatewayError=502),
        **statuses(_LITELLM, APIConnectionError=500, APIError=500),
    },
    classes={
        **classes(
            _LITELLM,
            (
                "a model that the provider does not have",
                worded(FINAL, "model_not_found"),
                "NotFoundError",
            ),
            (
                "the same prompt will never fit",
                worded(INVALID, "context_length_exceeded"),
                "ContextWindowExceededError",
            ),
            (
                "a policy refused this content",
                worded(INVALID, "content_filtered"),
                """
                ContentPolicyViolationError RejectedRequestError GuardrailRaisedException
                GuardrailInterventionNormalStringError BlockedPiiEntityError
                """,
            ),
            (
                "the cap that the caller set",
                worded(FINAL, "spend_limit_reached"),
                "BudgetExceededError",
            ),
            (
                "the request is at fault",
                INVALID,
                """
                UnsupportedParamsError JSONSchemaValidationError LiteLLMUnknownProvider
                InvalidRequestError UnprocessableEntityError
                """,
            ),
            (
                "the answer does not have the form it should",
                NO_ANSWER,
                "APIResponseValidationError",
            ),
        ),
        **classes(
            "litellm.types.router",
            (
                "every deployment cools down",
                THROTTLE,
                "RouterRateLimitError RouterRateLimitErrorBasic",
            ),
        ),
    },
    invents=True,
    read=_litellm,
)

_SPEAKEASY = "mistralai.client.errors"
MISTRAL = Family(
    name="mistralai",
    packages=("mistralai",),
    sdks=("mistralai", "mistral"),
    dialect="mistral",
    classes={
        f"{module}.{name}": meaning
        for module in (f"{_SPEAKEASY}.responsevalidationerror", "mistralai.models")
        for name, meaning in (
            (
                "ResponseValidationError",
                because(NO_ANSWER, "the answer does not have the form it should"),
            ),
        )
    },
    statuses={
        f"{_SPEAKEASY}.httpvalidationerror.HTTPValidationError": 422,
        "mistralai.models.HTTPValidationError": 422,
    },
    words={f"{_SPEAKEASY}.no_response_error.NoResponseError": "connection_error"},
)

_COHERE = "cohere.errors"
COHERE = Family(
    name="cohere",
    packages=("cohere",),
    sdks=("cohere",),
    dialect="cohere",
    statuses={
        f"{_COHERE}.bad_request_error.BadRequestError": 400,
        f"{_COHERE}.unauthorized_error.UnauthorizedError": 401,
        f"{_COHERE}.forbidden_error.ForbiddenError": 403,
        f"{_COHERE}.not_found_error.NotFoundError": 404,
        f"{_COHERE}.unprocessable_entity_error.UnprocessableEntityError": 422,
        f"{_COHERE}.too_many_requests_error.TooManyRequestsError": 429,
        f"{_COHERE}.invalid_token_error.InvalidTokenError": 498,
        f"{_COHERE}.client_closed_request_error.ClientClosedRequestError": 499,
        f"{_COHERE}.internal_server_error.InternalServerError": 500,
        f"{_COHERE}.not_implemented_error.NotImplementedError": 501,
        f"{_COHERE}.service_unavailable_error.ServiceUnavailableError": 503,
        f"{_COHERE}.gateway_timeout_error.GatewayTimeoutError": 504,
    },
    by_status={409: because(CONFLICT, "the SDK repeats every conflict")},
    says=(("must be instantiated be either passing in token", NO_CREDENTIALS),),
)


def _huggingface(raised: Raised, facts: Facts) -> Facts:
    code = facts.headers.get("x-error-code") or facts.code
    message = facts.headers.get("x-error-message") or raised.attrs.get("server_message")
    told = message if isinstance(message, str) and message else facts.message
    return changed(facts, code=code, message=told)


_HUB = "huggingface_hub.errors"
_GONE = "a repository, or a part of it, that is not there or not for this caller"
HUGGINGFACE = Family(
    name="huggingface_hub",
    packages=("huggingface_hub",),
    sdks=("huggingface_hub", "huggingface"),
    dialect="huggingface",
    classes={
        # It stands for whatever kept the file from being asked for; the cause tells.
        f"{_HUB}.LocalEntryNotFoundError": None,
        **classes(
            _HUB,
            (
                "the repository asks for its terms to be accepted",
                worded(REFUSED, "GatedRepo"),
                "GatedRepoError",
            ),
            ("the repository was disabled", FINAL, "DisabledRepoError"),
            (_GONE, worded(FINAL, "RepoNotFound"), "RepositoryNotFoundError BucketNotFoundError"),
            (_GONE, worded(FINAL, "RevisionNotFound"), "RevisionNotFoundError"),
            (_GONE, worded(FINAL, "EntryNotFound"), "RemoteEntryNotFoundError EntryNotFoundError"),
            ("no token on this machine", NO_CREDENTIALS, "LocalTokenNotFoundError"),
            (
                "refused before sending",
                INVALID,
                "HFValidationError HfUriError OfflineModeIsEnabled ValidationError",
            ),
            ("the inference server is overloaded", worded(OUTAGE, "overloaded"), "OverloadedError"),
            (
                "the inference server failed",
                OUTAGE,
                "GenerationError IncompleteGenerationError InferenceEndpointError XetDownloadError",
            ),
        ),
    },
    words=words(
        _HUB,
        timeout="InferenceTimeoutError InferenceEndpointTimeoutError",
        connection_error="LocalEntryNotFoundError",
    ),
    read=_huggingface,
)

HUBS = (LITELLM, MISTRAL, COHERE, HUGGINGFACE)
