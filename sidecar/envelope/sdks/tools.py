"""SDKs of the tools that agents call: Stripe, Slack, GitHub, Twilio.

Their codes are those of the answers and belong to the dialects of these providers. Here stands what
the SDK adds: classes for what was refused on this side, and a status that is hidden in a number.
"""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.envelope.fields import as_word
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.family import (
    CONFLICT,
    FINAL,
    INVALID,
    NO_ANSWER,
    NO_CREDENTIALS,
    REFUSED,
    THROTTLE,
    Facts,
    Family,
    because,
    changed,
    classes,
    statuses,
    worded,
    words,
)


def _stripe(raised: Raised, facts: Facts) -> Facts:
    body = facts.body
    if not isinstance(body, Mapping) or "error" not in body:
        # Of an answer that is no JSON this SDK keeps the headers where the body should be.
        body = None if isinstance(body, Mapping) else body
    told = raised.attrs.get("_message") or raised.attrs.get("user_message")
    return changed(
        facts,
        body=body,
        message=told if isinstance(told, str) and told else facts.message,
    )


_STRIPE = {
    "BadRequest": 400,
    "AuthenticationError": 401,
    "PermissionError": 403,
    "InvalidRequestError": 400,
    "IdempotencyError": 400,
    "CardError": 402,
    "RateLimitError": 429,
    "APIError": 500,
}

STRIPE = Family(
    name="stripe",
    packages=("stripe",),
    sdks=("stripe",),
    dialect="stripe",
    statuses={
        f"{module}.{name}": status
        for module in ("stripe._error", "stripe.error", "stripe")
        for name, status in _STRIPE.items()
    },
    classes={
        **{
            f"{module}.SignatureVerificationError": worded(
                because(INVALID, "a webhook was checked on this side; no call was made"),
                "signature_verification_failed",
            )
            for module in ("stripe._error", "stripe.error", "stripe")
        },
    },
    words={
        f"{module}.APIConnectionError": "connection_error"
        for module in ("stripe._error", "stripe.error", "stripe")
    },
    by_status={409: because(CONFLICT, "the SDK repeats every conflict: of keys, and of locks")},
    says=(("no api key provided", NO_CREDENTIALS),),
    read=_stripe,
)


_SLACK = "slack_sdk.errors"
SLACK = Family(
    name="slack_sdk",
    packages=("slack_sdk", "slack", "slack_bolt"),
    sdks=("slack_sdk", "slack"),
    dialect="slack",
    classes=classes(
        _SLACK,
        ("the token is of the wrong kind", REFUSED, "BotUserAccessError"),
        (
            "refused before sending",
            INVALID,
            "SlackRequestError SlackObjectFormationError SlackClientConfigurationError",
        ),
    ),
    words={
        **words(_SLACK, connection_closed="SlackClientNotConnectedError"),
        # It asks with urllib: a bare timeout came while it was reading.
        "TimeoutError": "read_timeout",
    },
)


_GITHUB = "github.GithubException"
GITHUB = Family(
    name="PyGithub",
    packages=("github",),
    sdks=("pygithub", "github"),
    dialect="github",
    statuses=statuses(
        _GITHUB,
        BadCredentialsException=401,
        TwoFactorException=401,
        UnknownObjectException=404,
        BadUserAgentException=403,
    ),
    classes=classes(
        _GITHUB,
        (
            "PyGithub documents it as a rate limit, under 403",
            THROTTLE,
            "RateLimitExceededException",
        ),
        ("the client names itself in no way that GitHub takes", INVALID, "BadUserAgentException"),
        ("the answer does not have the form it should", NO_ANSWER, "BadAttributeException"),
        ("nothing to complete the object from", FINAL, "IncompletableObject"),
    ),
)


# Numbers of Twilio's own API whose last three digits are the status they go with.
_TWILIO = {
    "20001": 400,
    "20002": 400,
    "20003": 401,
    "20004": 405,
    "20005": 403,
    "20006": 403,
    "20008": 403,
    "20009": 400,
    "20400": 400,
    "20401": 401,
    "20403": 403,
    "20404": 404,
    "20405": 405,
    "20409": 409,
    "20422": 422,
    "20426": 426,
    "20429": 429,
    "20500": 500,
    "20502": 502,
    "20503": 503,
    "20504": 504,
    "30001": 429,
}


def _twilio(raised: Raised, facts: Facts) -> Facts:
    told = raised.attrs.get("msg")
    status = facts.status or _TWILIO.get(as_word(raised.code) or "")
    return changed(
        facts,
        status=status,
        message=told if isinstance(told, str) and told else facts.message,
    )


TWILIO = Family(
    name="twilio",
    packages=("twilio",),
    sdks=("twilio",),
    dialect="twilio",
    says=(("credentials are required to create a twilioclient", NO_CREDENTIALS),),
    read=_twilio,
)

TOOLS = (STRIPE, SLACK, GITHUB, TWILIO)
