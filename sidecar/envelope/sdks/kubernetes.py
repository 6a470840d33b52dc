"""Kubernetes: the `reason` of a `Status` object, which stands in the JSON of the body.

The exception itself has nothing but the phrase of the status. A stale version is a conflict that
the same request never wins; a server that was too slow says how long to wait.
"""

from __future__ import annotations

from sidecar.envelope.fields import as_word
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.family import (
    FINAL,
    INVALID,
    NO_CREDENTIALS,
    OUTAGE,
    REFUSED,
    THROTTLE,
    Facts,
    Family,
    changed,
    classes,
    member,
    named,
    seconds,
)


def _kubernetes(raised: Raised, facts: Facts) -> Facts:
    """The body is a `Status` object: its `reason` is the code; an exception has the phrase only."""
    told = member(facts.body, "message")
    reason = as_word(member(facts.body, "reason"))
    told_more = raised.attrs.get("reason")
    message = told if isinstance(told, str) and told else facts.message
    if facts.status is None and isinstance(told_more, str) and told_more:
        # A status of zero: the reason is what the transport said.
        message = f"{message} {told_more}"
    return changed(
        facts,
        code=reason,
        codes=(),
        body={"error": {"code": reason, "message": told}} if told or reason else facts.body,
        message=message,
        wait=seconds(member(facts.body, "details", "retryAfterSeconds")),
    )


KUBERNETES = Family(
    name="kubernetes",
    packages=("kubernetes", "kubernetes_asyncio"),
    sdks=("kubernetes",),
    dialect="generic",
    kinds=named(
        ("the API server paces its callers", THROTTLE, "TooManyRequests"),
        (
            "the API server, or what stands behind it, was too slow",
            OUTAGE,
            "ServerTimeout Timeout InternalError ServiceUnavailable StoreReadError",
        ),
        (
            "stale, or there already: the identical request can never succeed",
            FINAL,
            """
            Conflict AlreadyExists Expired Gone NotFound MethodNotAllowed NotAcceptable
            UnsupportedMediaType RequestEntityTooLarge
            """,
        ),
        ("the request is at fault", INVALID, "Invalid BadRequest"),
        ("the caller is not who he says, or may not", REFUSED, "Unauthorized Forbidden"),
    ),
    statuses={
        f"{package}.client.{module}.{name}": status
        for package in ("kubernetes", "kubernetes_asyncio")
        for module in ("exceptions", "rest")
        for name, status in {
            "UnauthorizedException": 401,
            "ForbiddenException": 403,
            "NotFoundException": 404,
            "ConflictException": 409,
            "UnprocessableEntityException": 422,
            "ServiceException": 500,
        }.items()
    },
    classes={
        **classes(
            "kubernetes.config.config_exception",
            ("no configuration of a cluster on this machine", NO_CREDENTIALS, "ConfigException"),
        ),
        **classes(
            "kubernetes.client.exceptions",
            (
                "refused before sending",
                INVALID,
                "ApiTypeError ApiValueError ApiKeyError ApiAttributeError",
            ),
        ),
    },
    read=_kubernetes,
)
