"""What only one provider's answers have: a header of its own, or a form that nobody else uses.

For a host that nobody named. A private gateway, a proxy of a company or a test double changes the
host; what comes back still tells who speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sidecar.envelope.dialects.azure_openai import AzureOpenAI
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.bedrock import Bedrock
from sidecar.envelope.dialects.gemini import Gemini
from sidecar.envelope.dialects.generic import Generic
from sidecar.envelope.dialects.github import GitHub
from sidecar.envelope.dialects.google_apis import GoogleApis
from sidecar.envelope.dialects.hubspot import HubSpot
from sidecar.envelope.dialects.huggingface import HuggingFace
from sidecar.envelope.dialects.jira import Jira
from sidecar.envelope.dialects.litellm import LiteLLM
from sidecar.envelope.dialects.meta import is_metas
from sidecar.envelope.dialects.msgraph import MSGraph
from sidecar.envelope.dialects.notion import Notion
from sidecar.envelope.dialects.openrouter import OpenRouter
from sidecar.envelope.dialects.salesforce import Salesforce
from sidecar.envelope.dialects.slack import Slack
from sidecar.envelope.dialects.stripe import Stripe
from sidecar.envelope.dialects.twilio import Twilio
from sidecar.envelope.fields import at
from sidecar.envelope.headers import Headers

_AWS = Bedrock()
_GITHUB = GitHub()
_HUBSPOT = HubSpot()
_JIRA = Jira()
_STRIPE = Stripe()
_TWILIO = Twilio()

_HEADERS: tuple[tuple[str, Dialect], ...] = (
    ("apim-request-id", AzureOpenAI()),
    ("x-litellm-call-id", LiteLLM()),
    ("x-slack-req-id", Slack()),
    ("x-github-request-id", _GITHUB),
    ("stripe-version", _STRIPE),
    ("stripe-should-retry", _STRIPE),
    ("stripe-rate-limited-reason", _STRIPE),
    ("twilio-request-id", _TWILIO),
    ("x-hubspot-correlation-id", _HUBSPOT),
    ("atl-traceid", _JIRA),
    ("sforce-limit-info", Salesforce()),
)


def by_header(headers: Headers) -> Dialect | None:
    """The dialect of the provider that alone sends one of these headers, or None."""
    for name, dialect in _HEADERS:
        if name in headers:
            return dialect
    return None


def _first(value: Any) -> dict[str, Any]:
    first = value[0] if isinstance(value, list) and value else None
    return first if isinstance(first, dict) else {}


def _is_salesforce(body: Any) -> bool:
    return isinstance(body, list) and _first(body).keys() >= {"errorCode", "message"}


def _is_notion(body: Any) -> bool:
    return at(body, "object") == "error" and isinstance(at(body, "status"), int)


def _is_graph(body: Any) -> bool:
    return isinstance(at(body, "error.innerError"), dict)


def _is_google(body: Any) -> bool:
    return _first(at(body, "error.errors")).keys() >= {"domain", "reason"}


def _is_google_rpc(body: Any) -> bool:
    error = at(_first(body) or body, "error")
    status = at(error, "status")
    return isinstance(at(error, "code"), int) and isinstance(status, str) and status.isupper()


def _is_aws(body: Any) -> bool:
    return isinstance(at(body, "__type"), str)


def _is_jira(body: Any) -> bool:
    return isinstance(at(body, "errorMessages"), list)


def _is_hubspot(body: Any) -> bool:
    return at(body, "status") == "error" and isinstance(at(body, "correlationId"), str)


def _is_twilio(body: Any) -> bool:
    return isinstance(at(body, "more_info"), str) and isinstance(at(body, "code"), int)


def _is_meta(body: Any) -> bool:
    return is_metas(at(body, "error"))


def _is_github(body: Any) -> bool:
    return str(at(body, "documentation_url")).startswith("https://docs.github.com/")


def _is_openrouter(body: Any) -> bool:
    told = at(body, "error.metadata")
    return isinstance(told, dict) and isinstance(at(body, "error.code"), int)


def _is_huggingface(body: Any) -> bool:
    if not isinstance(at(body, "error"), str):
        return False
    return "estimated_time" in body or body.keys() == {"error", "error_type"}


# Every one of these is a form; no word of a message decides.
_BODIES: tuple[tuple[Callable[[Any], bool], Dialect], ...] = (
    (_is_salesforce, Salesforce()),
    (_is_notion, Notion()),
    (_is_graph, MSGraph()),
    (_is_google, GoogleApis()),
    # In a list of one where its OpenAI skin is asked.
    (_is_google_rpc, Gemini()),
    (_is_aws, _AWS),
    (_is_jira, _JIRA),
    (_is_hubspot, _HUBSPOT),
    (_is_twilio, _TWILIO),
    (_is_github, _GITHUB),
    (_is_meta, Generic()),
    (_is_openrouter, OpenRouter()),
    (_is_huggingface, HuggingFace()),
)


def by_body(body: Any, text: bytes) -> Dialect | None:
    """The dialect of the provider that alone gives its errors this form, or None.

    Args:
        body: the decoded body of an error; None where it is no JSON.
        text: its bytes.
    """
    if body is None:
        # S3 and the older services of AWS speak XML.
        start = text[:512]
        return _AWS if b"<Error><Code>" in start or b"<Error>\n<Code>" in start else None
    for fits, dialect in _BODIES:
        if fits(body):
            return dialect
    return None
