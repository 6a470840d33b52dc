"""The dialects by name: one file a family, one line of registration each."""

from __future__ import annotations

import re

from sidecar.envelope.dialects.anthropic import Anthropic
from sidecar.envelope.dialects.auto import Auto
from sidecar.envelope.dialects.azure_openai import AzureOpenAI
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.bedrock import Bedrock
from sidecar.envelope.dialects.cohere import Cohere
from sidecar.envelope.dialects.compatible import Compatible
from sidecar.envelope.dialects.deepseek import DeepSeek
from sidecar.envelope.dialects.fireworks import Fireworks
from sidecar.envelope.dialects.gemini import Gemini, Vertex
from sidecar.envelope.dialects.generic import Generic
from sidecar.envelope.dialects.groq import Groq
from sidecar.envelope.dialects.huggingface import HuggingFace
from sidecar.envelope.dialects.llama_cpp import LlamaCpp
from sidecar.envelope.dialects.lmstudio import LMStudio
from sidecar.envelope.dialects.mistral import Mistral
from sidecar.envelope.dialects.ollama import Ollama
from sidecar.envelope.dialects.openai import OpenAI
from sidecar.envelope.dialects.openrouter import OpenRouter
from sidecar.envelope.dialects.perplexity import Perplexity
from sidecar.envelope.dialects.sidecar import Sidecar
from sidecar.envelope.dialects.together import Together
from sidecar.envelope.dialects.vllm import VLLM
from sidecar.envelope.dialects.xai import XAI

__all__ = ["NAMES", "Dialect", "get", "guess"]

_BUILT: tuple[type[Dialect], ...] = (
    Anthropic,
    Auto,
    AzureOpenAI,
    Bedrock,
    Cohere,
    Compatible,
    DeepSeek,
    Fireworks,
    Gemini,
    Generic,
    Groq,
    HuggingFace,
    LMStudio,
    LlamaCpp,
    Mistral,
    Ollama,
    OpenAI,
    OpenRouter,
    Perplexity,
    Sidecar,
    Together,
    VLLM,
    Vertex,
    XAI,
)

# Names that are legal and share the file of another until they need one of their own.
_ALIASES: dict[type[Dialect], str] = {
    Compatible: "cerebras dashscope github-copilot litellm minimax moonshot openai-codex zai",
    Generic: (
        "airtable aws-edge cloudflare discord envoy github google-apis"
        " graphql grpc-web hubspot jira linear mcp msgraph nginx notion oauth"
        " problem-json salesforce sendgrid shopify slack stripe twilio zendesk"
    ),
}

# Upstream hosts that speak a dialect: the host itself and everything below it.
_HOSTS = {
    "api.anthropic.com": "anthropic",
    "api.deepseek.com": "deepseek",
    "api.fireworks.ai": "fireworks",
    "api.github.com": "github",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "api.openai.com": "openai",
    "api.perplexity.ai": "perplexity",
    "api.stripe.com": "stripe",
    "api.together.ai": "together",
    "api.together.xyz": "together",
    "api.x.ai": "xai",
    "api.cohere.com": "cohere",
    "api.cohere.ai": "cohere",
    "api.cerebras.ai": "cerebras",
    "api.moonshot.ai": "moonshot",
    "api.moonshot.cn": "moonshot",
    "api.minimax.io": "minimax",
    "api.notion.com": "notion",
    "api.sendgrid.com": "sendgrid",
    "api.twilio.com": "twilio",
    "api.z.ai": "zai",
    "cognitiveservices.azure.com": "azure-openai",
    "dashscope.aliyuncs.com": "dashscope",
    "discord.com": "discord",
    "cloudcode-pa.googleapis.com": "vertex",
    "generativelanguage.googleapis.com": "gemini",
    "graph.microsoft.com": "msgraph",
    "huggingface.cloud": "huggingface",
    "huggingface.co": "huggingface",
    "ollama.com": "ollama",
    "openai.azure.com": "azure-openai",
    "openrouter.ai": "openrouter",
    "slack.com": "slack",
}

# Hosts that have a region in their name.
_HOST_SHAPES = (
    (re.compile(r"(?:[a-z0-9-]+-)?aiplatform\.googleapis\.com"), "vertex"),
    (
        re.compile(
            r"(?:[a-z0-9-]+\.)?bedrock[a-z-]*\.[a-z0-9-]+\.(?:vpce\.)?(?:amazonaws\.com|api\.aws)"
            r"(?:\.cn)?"
        ),
        "bedrock",
    ),
)


def _register() -> dict[str, Dialect]:
    named: dict[str, Dialect] = {}
    for built in _BUILT:
        named[built.name] = built()
    for built, aliases in _ALIASES.items():
        for alias in aliases.split():
            named[alias] = built()
            named[alias].name = alias
    return named


_DIALECTS = _register()

NAMES = frozenset(_DIALECTS)
"""Every name that a configuration may use."""


def get(name: str) -> Dialect:
    """The dialect of a name; of an unknown one the dialect that chooses by itself."""
    return _DIALECTS.get(name) or _DIALECTS["auto"]


def guess(host: str) -> Dialect:
    """The dialect of an upstream's host, without port; else the one that looks at what comes back.

    Args:
        host: a host name in any case; an address or an unknown name is no error.
    """
    host = host.lower().rstrip(".")
    for shape, name in _HOST_SHAPES:
        if shape.fullmatch(host):
            return get(name)
    while host:
        known = _HOSTS.get(host)
        if known is not None:
            return get(known)
        host = host.partition(".")[2]
    return get("auto")
