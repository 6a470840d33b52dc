"""Any other HTTP API: the shapes that standards and habit give to errors.

RFC 9457, OAuth and bearer challenges, flat and nested JSON, pages of the boxes in the path. Codes
whose meaning nobody contradicts count as everywhere; for an unknown host OpenAI's meaning of its
codes is assumed. Prose counts only inside a 2xx that calls itself an error.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.cloudflare_api import CLOUDFLARE_API
from sidecar.envelope.dialects.edges_aws import API_GATEWAY
from sidecar.envelope.dialects.exhausted import MESSAGE_TOO_LARGE, MONTH_SPENT
from sidecar.envelope.dialects.meta import META
from sidecar.envelope.dialects.oauth import OAUTH, polling_interval
from sidecar.envelope.dialects.openai import NUMBERED_MODEL, REQUEST_TOO_LARGE
from sidecar.envelope.dialects.rule import TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    COMMON,
    PERMANENT,
    RATE_LIMIT,
    REFUSED_CREDENTIALS,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import is_reference, normal, status_like
from sidecar.envelope.locate import Found, is_graphql
from sidecar.envelope.model import Seen

# A word under `name` that is a code by its looks: names of people and things have no underscore.
_CODE_NAME = re.compile(r"[A-Za-z]{2,32}(?:_[A-Za-z]{1,32}){1,8}")
_WORD = re.compile(r"[A-Za-z]{2,32}(?:[_-][A-Za-z]{1,32}){0,8}")
# What a `status` says that names no error: how it went, or the status of HTTP in words.
_OUTCOMES = frozenset(
    {"error", "errors", "fail", "failed", "failure", "ko", "nok", "ok", "success"}
)
_STATUS_WORDS = frozenset(normal(status.phrase) for status in HTTPStatus)


def _is_problem(evidence: Evidence) -> bool:
    return evidence.problem or any(is_reference(spelt) for spelt in evidence.words.values())


def _may_be_renewed(evidence: Evidence) -> bool:
    """Nothing says that the credential is a key, was revoked or is refused for good."""
    said = evidence.text
    return (
        not any(word in said for word in ("api key", "api-key", "revoked"))
        and not evidence.words.keys() & REFUSED_CREDENTIALS
    )


def _names_itself(evidence: Evidence) -> Evidence:
    """With the word that stands under `id` or `status`, where nothing better is a code.

    An `id` of mere letters is no identifier of a request. A `name` is a person's or a thing's,
    unless the error is in the form of Resend's or of PayPal's.
    """
    if evidence.code is not None and status_like(evidence.code) is None:
        return evidence
    named = evidence.error.get("name")
    if (
        isinstance(named, str)
        and isinstance(evidence.error.get("message"), str)
        and ("statusCode" in evidence.error or "debug_id" in evidence.error)
        and _CODE_NAME.fullmatch(named)
    ):
        return _with_code(evidence, named)
    for place, no_codes in (("id", _OUTCOMES), ("status", _OUTCOMES | _STATUS_WORDS)):
        word = evidence.error.get(place)
        if isinstance(word, str) and _WORD.fullmatch(word) and normal(word) not in no_codes:
            return _with_code(evidence, word)
    return evidence


def _with_code(evidence: Evidence, word: str) -> Evidence:
    known = {normal(word): word, **evidence.words}
    return msgspec.structs.replace(evidence, code=word, words=known)


EXPIRED_TOKEN = Rule(
    name="a signed token has expired",
    why="a renewable credential; servers that verify tokens say it in a sentence only",
    says=(
        "jwt expired",
        "jwt is expired",
        "token has expired",
        "token is expired",
        "token expired",
        "signature has expired",
    ),
    statuses=statuses(401),
    when=_may_be_renewed,
    class_=AUTHENTICATION,
    code="token_expired",
    retryable=True,
    terminal=True,
)

GENERIC_RULES = (
    Rule(
        name="a price, not a spent quota",
        why="x402: the answer is an offer to pay",
        statuses=statuses(402),
        when=lambda evidence: isinstance(evidence.body, dict) and "x402Version" in evidence.body,
        class_=PERMANENT,
    ),
    Rule(
        name="a quota policy is exceeded",
        why="a registered problem type: the quota of a rate policy",
        codes=words("quota-exceeded temporary-reduced-capacity abnormal-usage-detected"),
        when=_is_problem,
        class_=RATE_LIMIT,
    ),
    EXPIRED_TOKEN,
    *CLOUDFLARE_API,
    *META,
    Rule(
        name="throttled inside a success",
        why="the body calls itself an error and a sentence is all there is",
        says=("rate limit exceeded", "rate limit reached", "too many requests"),
        statuses=TWO,
        class_=RATE_LIMIT,
    ),
)


BLOCKED_INDEX = Rule(
    name="an index or a cluster is blocked",
    why="Elasticsearch: a full disk, under 429, or an index that is read-only or closed, under 403"
    " and 400: somebody has to lift that",
    codes=words("cluster_block_exception index_closed_exception"),
    statuses=statuses(400, 403, 429),
    class_=PERMANENT,
)

WITHOUT_CODE = Rule(
    name="a GraphQL error without a code",
    why="nothing says whether it will pass: it is neither repeated nor counted",
    statuses=TWO,
    when=lambda evidence: evidence.code is None and is_graphql(evidence.error),
    class_=PERMANENT,
    code="graphql_error",
)


# Under a host that nobody named only the full routes of model APIs are taken for such: any API may
# have `messages` or `responses`.
_MODEL_ROUTES = (
    "/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/responses",
)


class Generic(Dialect):
    """An API of which nothing is known but HTTP and the habits of JSON."""

    name = "generic"
    rules: ClassVar[tuple[Rule, ...]] = (
        *API_GATEWAY,
        *OAUTH,
        *GENERIC_RULES,
        REQUEST_TOO_LARGE,
        MESSAGE_TOO_LARGE,
        MONTH_SPENT,
        NUMBERED_MODEL,
        BLOCKED_INDEX,
        *COMMON,
        WITHOUT_CODE,
    )
    code_places: ClassVar[tuple[str, ...]] = (
        "extensions.code",
        "code",
        "error_code",
        "errorCode",
        "type",
        "error_type",
        "errorType",
        "reason",
        "category",
        "errcode",
        "err_code",
        "tag",
        # The member that names the variant of a tagged union.
        ".tag",
    )
    word_places: ClassVar[tuple[str, ...]] = ("details.error_code", "innererror.code")
    quota_may_be_a_rate: ClassVar[bool] = True

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The evidence, with a code also from where only habit puts one."""
        return _names_itself(super().read(found, seen, stream=stream))

    def is_model_route(self, method: str, path: str) -> bool:
        """Whether the route is one of a model API, whatever the host."""
        return method == "POST" and path.partition("?")[0].rstrip("/").endswith(_MODEL_ROUTES)

    def wait_in_body(self, evidence: Evidence) -> tuple[float, str] | None:
        """As everywhere, and the interval of a device flow."""
        interval = polling_interval(evidence)
        return (interval, f"{interval:g}") if interval else super().wait_in_body(evidence)
