"""The boxes in the path: CDNs, load balancers, firewalls and proxies in front of any provider.

Their answers are pages and short texts, recognised by a header or a number, never by a word in
the middle of a page. What is not listed here follows from the status, which such boxes set
honestly.
"""

from __future__ import annotations

import re

import msgspec

from sidecar.envelope.dialects.edges_aws import AWS_EDGES, error_type
from sidecar.envelope.dialects.rule import FIVE, Rule, statuses
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import as_word, is_prose, normal, status_like
from sidecar.envelope.headers import Headers
from sidecar.envelope.model import ErrorClass, Verdict

_CLOUDFLARE_ERROR = re.compile(r"\bError (?:code:? )?(1\d{3})\b", re.IGNORECASE)
_CLOUDFLARE_TEXT = re.compile(r"error code: (1\d{3})")
_MARKUP = re.compile(r"(?:<[^>]{0,200}>|\s)+")


def cloudflare_code(evidence: Evidence) -> str | None:
    """The four-digit number of a Cloudflare error page or JSON, or None."""
    headers = evidence.headers
    stated = as_word(evidence.error.get("error_code")) if evidence.error else None
    if stated and evidence.error.get("cloudflare_error"):
        return stated
    if "cf-ray" not in headers and (headers.get("server") or "").lower() != "cloudflare":
        return None
    if stated and "error_name" in evidence.error:
        return stated
    if evidence.html:
        # Word and number stand in elements of their own.
        page = _MARKUP.sub(" ", evidence.seen.body[:16384].decode("utf-8", "replace"))
        found = _CLOUDFLARE_ERROR.search(page)
    elif evidence.body is None:
        found = _CLOUDFLARE_TEXT.fullmatch(evidence.text.strip())
    else:
        return None
    return found.group(1) if found else None


def with_edges(evidence: Evidence) -> Evidence:
    """Add the code that a box in the path gives in a header, a page or a JSON of its own."""
    named = _named(evidence)
    if named is None:
        return evidence
    word, code = named
    own = evidence.code
    headers = evidence.headers
    if evidence.error.get("cloudflare_error") and evidence.error.get("retryable") is False:
        # Its way of saying so; what it calls retryable follows from the status as well.
        headers = Headers((*headers.pairs, ("x-should-retry", "false")))
    vague = own is None or "://" in own or is_prose(own) or status_like(own) is not None
    return msgspec.structs.replace(
        evidence,
        words={**evidence.words, word: code},
        code=code if vague else own,
        headers=headers,
    )


def _named(evidence: Evidence) -> tuple[str, str] | None:
    """The word that rules know a box's code by, and its spelling."""
    number = cloudflare_code(evidence)
    if number is not None:
        return f"cloudflare:{number}", number
    type_ = error_type(evidence.headers)
    if type_ is not None:
        return normal(type_), type_
    for name in ("x-amzn-waf-action", "x-vercel-mitigated"):
        action = evidence.headers.get(name)
        if action:
            return f"{name}:{normal(action)}", action
    return None


def _cloudflare(*codes: str) -> frozenset[str]:
    return frozenset(f"cloudflare:{code}" for code in codes)


def _is_refused_by_cloudflare(evidence: Evidence) -> bool:
    if cloudflare_code(evidence) is not None:
        return True
    return evidence.html and evidence.text.startswith("attention required! | cloudflare")


def _says(evidence: Evidence, text: str) -> bool:
    """Whether this short text is all that the body holds."""
    return evidence.body is None and not evidence.html and evidence.text == text


def _server(evidence: Evidence) -> str:
    return (evidence.headers.get("server") or "").lower()


def _page_holds(evidence: Evidence, mark: bytes) -> bool:
    """Whether a page holds what only the box writes, near its beginning."""
    return evidence.html and mark in evidence.seen.body[:8192]


# Each answers 403 by itself for its firewall only, and new credentials do not pass it.
FIREWALLS = (
    Rule(
        name="HAProxy: forbidden by a rule",
        why="its own page for a request that its rules deny",
        statuses=statuses(403),
        when=lambda evidence: (
            _page_holds(evidence, b"Request forbidden by administrative rules.")
            and len(evidence.seen.body) < 1024
        ),
        class_=ErrorClass.PERMANENT,
    ),
    Rule(
        name="Akamai: access denied",
        why="its edge made this page itself",
        statuses=statuses(403),
        when=lambda evidence: evidence.html and _server(evidence).startswith("akamaighost"),
        class_=ErrorClass.PERMANENT,
    ),
    Rule(
        name="Azure firewall",
        why="the page of Front Door's or of Application Gateway's firewall",
        statuses=statuses(403),
        when=lambda evidence: (
            _page_holds(evidence, b"Microsoft-Azure-Application-Gateway")
            or (
                "x-azure-ref" in evidence.headers
                and _page_holds(evidence, b"The request is blocked.")
            )
        ),
        class_=ErrorClass.PERMANENT,
    ),
    Rule(
        name="Imperva: blocked",
        why="its header, and a page that loads its own script",
        statuses=statuses(403),
        when=lambda evidence: (
            "x-iinfo" in evidence.headers and _page_holds(evidence, b"_Incapsula_Resource")
        ),
        class_=ErrorClass.PERMANENT,
    ),
    Rule(
        name="Vercel firewall",
        why="x-vercel-mitigated: denied, or a robot check",
        statuses=statuses(403, 429),
        when=lambda evidence: evidence.headers.get("x-vercel-mitigated") is not None,
        class_=ErrorClass.PERMANENT,
    ),
    Rule(
        name="Fastly: no such site",
        why="the host is not set up there: a wrong address, whatever the status says",
        statuses=FIVE | statuses(404, 421),
        when=lambda evidence: evidence.text.startswith("fastly error: unknown domain"),
        class_=ErrorClass.PERMANENT,
    ),
)

EDGES = (
    *AWS_EDGES,
    *FIREWALLS,
    Rule(
        name="Envoy: rate limited",
        why="its own limiter, which may be told to answer with another status than 429",
        when=lambda evidence: (
            _says(evidence, "local_rate_limited")
            or evidence.headers.get("x-envoy-ratelimited") is not None
        ),
        class_=ErrorClass.RATE_LIMIT,
    ),
    Rule(
        name="Envoy: the token has expired",
        why="the whole text of its filter for signed tokens",
        statuses=statuses(401),
        when=lambda evidence: _says(evidence, "jwt is expired"),
        class_=ErrorClass.AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="Cloudflare challenge",
        why="cf-mitigated: a robot check, which new credentials do not pass",
        when=lambda evidence: (
            evidence.headers.get("cf-mitigated") is not None and evidence.status in {403, 429, 503}
        ),
        class_=ErrorClass.PERMANENT,
        code="challenge",
    ),
    Rule(
        name="Cloudflare: the site's day is spent",
        why="1025 and 1027: the owner's daily allowance, whatever the page says of a moment",
        codes=_cloudflare("1025", "1027"),
        class_=ErrorClass.PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="Cloudflare: rate limited",
        why="error 1015, the rate limiting of the site's owner",
        codes=_cloudflare("1015"),
        statuses=statuses(403, 429, 503),
        class_=ErrorClass.RATE_LIMIT,
    ),
    Rule(
        name="Cloudflare: access denied",
        why="a firewall or the set-up of the site: new credentials do not help",
        statuses=statuses(403),
        when=_is_refused_by_cloudflare,
        class_=ErrorClass.PERMANENT,
    ),
    Rule(
        name="a bad certificate at the origin",
        why="526: it stays bad until somebody renews it",
        statuses=statuses(526),
        class_=ErrorClass.TRANSIENT,
        retryable=False,
    ),
    Rule(
        name="Envoy is overloaded",
        why="x-envoy-overloaded, or a reset for overflow: its circuit to the service is full",
        statuses=FIVE,
        when=lambda evidence: (
            evidence.headers.get("x-envoy-overloaded") is not None
            or evidence.headers.get("x-envoy-local-overloaded") is not None
            or _says(evidence, "envoy overloaded")
            or (
                evidence.text.startswith("upstream connect error")
                and "reset reason: overflow" in evidence.text
            )
        ),
        class_=ErrorClass.TRANSIENT,
        code="overloaded",
        verdict=Verdict.FAILURE,
    ),
)
