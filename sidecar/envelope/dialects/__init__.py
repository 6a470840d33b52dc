"""The dialects by name: one file a family, one line of registration each."""

from __future__ import annotations

import re

from sidecar.envelope.dialects.airtable import Airtable
from sidecar.envelope.dialects.anthropic import Anthropic
from sidecar.envelope.dialects.auto import Auto
from sidecar.envelope.dialects.azure_openai import AzureOpenAI
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.bedrock import Bedrock
from sidecar.envelope.dialects.cerebras import Cerebras
from sidecar.envelope.dialects.cohere import Cohere
from sidecar.envelope.dialects.compatible import Compatible
from sidecar.envelope.dialects.dashscope import DashScope
from sidecar.envelope.dialects.deepseek import DeepSeek
from sidecar.envelope.dialects.discord import Discord
from sidecar.envelope.dialects.fireworks import Fireworks
from sidecar.envelope.dialects.gemini import Gemini, Vertex
from sidecar.envelope.dialects.generic import Generic
from sidecar.envelope.dialects.github import GitHub
from sidecar.envelope.dialects.github_copilot import GitHubCopilot
from sidecar.envelope.dialects.google_apis import GoogleApis
from sidecar.envelope.dialects.graphql import GraphQL
from sidecar.envelope.dialects.groq import Groq
from sidecar.envelope.dialects.grpc_web import GrpcWeb
from sidecar.envelope.dialects.hubspot import HubSpot
from sidecar.envelope.dialects.huggingface import HuggingFace
from sidecar.envelope.dialects.jira import Jira
from sidecar.envelope.dialects.linear import Linear
from sidecar.envelope.dialects.litellm import LiteLLM
from sidecar.envelope.dialects.llama_cpp import LlamaCpp
from sidecar.envelope.dialects.lmstudio import LMStudio
from sidecar.envelope.dialects.mcp import MCP
from sidecar.envelope.dialects.minimax import MiniMax
from sidecar.envelope.dialects.mistral import Mistral
from sidecar.envelope.dialects.moonshot import Moonshot
from sidecar.envelope.dialects.msgraph import MSGraph
from sidecar.envelope.dialects.notion import Notion
from sidecar.envelope.dialects.ollama import Ollama
from sidecar.envelope.dialects.openai import OpenAI
from sidecar.envelope.dialects.openai_codex import OpenAICodex
from sidecar.envelope.dialects.openrouter import OpenRouter
from sidecar.envelope.dialects.perplexity import Perplexity
from sidecar.envelope.dialects.salesforce import Salesforce
from sidecar.envelope.dialects.sendgrid import SendGrid
from sidecar.envelope.dialects.shopify import Shopify
from sidecar.envelope.dialects.sidecar import Sidecar
from sidecar.envelope.dialects.slack import Slack
from sidecar.envelope.dialects.stripe import Stripe
from sidecar.envelope.dialects.together import Together
from sidecar.envelope.dialects.twilio import Twilio
from sidecar.envelope.dialects.vllm import VLLM
from sidecar.envelope.dialects.xai import XAI
from sidecar.envelope.dialects.zai import ZAI
from sidecar.envelope.dialects.zendesk import Zendesk

__all__ = ["NAMES", "Dialect", "get", "guess"]

_BUILT: tuple[type[Dialect], ...] = (
    Airtable,
    Anthropic,
    Auto,
    AzureOpenAI,
    Bedrock,
    Cerebras,
    Cohere,
    Compatible,
    DashScope,
    DeepSeek,
    Discord,
    Fireworks,
    Gemini,
    Generic,
    GitHub,
    GitHubCopilot,
    GoogleApis,
    GraphQL,
    Groq,
    GrpcWeb,
    HubSpot,
    HuggingFace,
    Jira,
    Linear,
    LiteLLM,
    LlamaCpp,
    LMStudio,
    MCP,
    MiniMax,
    Mistral,
    Moonshot,
    MSGraph,
    Notion,
    Ollama,
    OpenAI,
    OpenAICodex,
    OpenRouter,
    Perplexity,
    Salesforce,
    SendGrid,
    Shopify,
    Sidecar,
    Slack,
    Stripe,
    Together,
    Twilio,
    Vertex,
    VLLM,
    XAI,
    ZAI,
    Zendesk,
)

# Names that are legal and share the file of another until they need one of their own.
_ALIASES: dict[type[Dialect], str] = {
    Generic: "aws-edge cloudflare envoy nginx oauth problem-json",
    GrpcWeb: "connect",
}

# Upstream hosts that speak a dialect: the host itself and everything below it.
_HOSTS = {
    "aiplatform.googleapis.com": "vertex",
    "api.airtable.com": "airtable",
    "api.anthropic.com": "anthropic",
    "api.atlassian.com": "jira",
    "api.cerebras.ai": "cerebras",
    "api.cohere.ai": "cohere",
    "api.cohere.com": "cohere",
    "api.deepseek.com": "deepseek",
    "api.eu.sendgrid.com": "sendgrid",
    "api.fireworks.ai": "fireworks",
    "api.github.com": "github",
    "api.groq.com": "groq",
    "api.hubapi.com": "hubspot",
    "api.kimi.com": "moonshot",
    "api.linear.app": "linear",
    "api.minimax.io": "minimax",
    "api.minimaxi.com": "minimax",
    "api.mistral.ai": "mistral",
    "api.moonshot.ai": "moonshot",
    "api.moonshot.cn": "moonshot",
    "api.notion.com": "notion",
    "api.openai.com": "openai",
    "api.perplexity.ai": "perplexity",
    "api.sendgrid.com": "sendgrid",
    "api.stripe.com": "stripe",
    "api.together.ai": "together",
    "api.together.xyz": "together",
    "api.x.ai": "xai",
    "api.z.ai": "zai",
    "atlassian.net": "jira",
    "chatgpt.com": "openai-codex",
    "cloudcode-pa.googleapis.com": "vertex",
    "cognitiveservices.azure.com": "azure-openai",
    "connect.stripe.com": "stripe",
    "dashscope-intl.aliyuncs.com": "dashscope",
    "dashscope-us.aliyuncs.com": "dashscope",
    "dashscope.aliyuncs.com": "dashscope",
    "discord.com": "discord",
    "discordapp.com": "discord",
    "files.stripe.com": "stripe",
    "generativelanguage.googleapis.com": "gemini",
    "githubcopilot.com": "github-copilot",
    "googleapis.com": "google-apis",
    "graph.microsoft.com": "msgraph",
    "graph.microsoft.us": "msgraph",
    "huggingface.cloud": "huggingface",
    "huggingface.co": "huggingface",
    "myshopify.com": "shopify",
    "ollama.com": "ollama",
    "open.bigmodel.cn": "zai",
    "openai.azure.com": "azure-openai",
    "openrouter.ai": "openrouter",
    "salesforce.com": "salesforce",
    "slack.com": "slack",
    "twilio.com": "twilio",
    "webhook.office.com": "msgraph",
    "zendesk.com": "zendesk",
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
