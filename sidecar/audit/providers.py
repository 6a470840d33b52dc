"""The plans by the names of the dialects.

Paths, headers and variables are those of each provider's own reference and official clients. A
dialect that is not here says nothing of routes (`generic` and the boxes in front of others): there
an audit asks for what every server has.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sidecar.audit.plans import (
    CHAT,
    COMPLETIONS,
    GRAPHQL,
    MESSAGES,
    NEW_CHAT,
    RESPONSES,
    WRONG,
    Key,
    Plan,
    Request,
    Route,
    compatible,
    tool,
)

_PARTS = [{"text": "{prompt}"}]
_UUID = "00000000-0000-4000-8000-000000000000"

_GENERATE = Route(
    name="generate",
    path="/models/{name}:generateContent",
    body={
        "contents": [{"role": "user", "parts": _PARTS}],
        "generationConfig": {"maxOutputTokens": 1},
    },
    needed="contents",
)
_CONVERSE = Route(
    name="converse",
    path="/model/{name}/converse",
    body={
        "messages": [{"role": "user", "content": _PARTS}],
        "inferenceConfig": {"maxTokens": 1},
    },
    needed="messages",
)
_DEPLOYMENT = Route(
    name="chat",
    path="/openai/deployments/{name}/chat/completions?api-version=2024-10-21",
    body={"messages": [{"role": "user", "content": "{prompt}"}], "max_completion_tokens": 1},
    needed="messages",
)
_AZURE_RESPONSES = Route(
    name="responses",
    path="/openai/v1/responses",
    body=RESPONSES.body,
    needed=RESPONSES.needed,
)
# A model without messages is loaded, and answered 200; without a model nothing can be done.
_OLLAMA_CHAT = Route(
    name="native",
    path="/api/chat",
    body={
        "model": "{name}",
        "messages": [{"role": "user", "content": "{prompt}"}],
        "stream": False,
        "options": {"num_predict": 1},
    },
    needed="model",
    absolute=True,
)
_RPC = Route(
    name="rpc",
    path="/mcp",
    body={"jsonrpc": "2.0", "id": 1, "method": "breaker-sidecar/no-such-method"},
    needed="method",
    headers={"accept": "application/json, text/event-stream"},
)

_AUTO = (CHAT, RESPONSES, MESSAGES)

PLANS: Mapping[str, Plan] = {
    # -- models ------------------------------------------------------------------------------
    "anthropic": Plan(
        base="/v1",
        key=Key(
            header="x-api-key", prefix="", variables=("ANTHROPIC_API_KEY",), wrong=f"sk-ant-{WRONG}"
        ),
        routes=(MESSAGES,),
        headers={"anthropic-version": "2023-06-01"},
    ),
    "auto": compatible(routes=_AUTO),
    "azure-openai": Plan(
        key=Key(header="api-key", prefix="", variables=("AZURE_OPENAI_API_KEY",)),
        routes=(_DEPLOYMENT, _AZURE_RESPONSES),
    ),
    "bedrock": Plan(
        key=Key(variables=("AWS_BEARER_TOKEN_BEDROCK",), wrong=f"bedrock-api-key-{WRONG}"),
        routes=(_CONVERSE,),
    ),
    "cerebras": compatible("CEREBRAS_API_KEY"),
    "cohere": Plan(
        base="/v2",
        key=Key(variables=("CO_API_KEY", "COHERE_API_KEY"), wrong=WRONG),
        routes=(Route(name="chat", path="/chat", body=CHAT.body, needed="messages"),),
    ),
    "dashscope": compatible("DASHSCOPE_API_KEY", base="/compatible-mode/v1"),
    "deepseek": compatible("DEEPSEEK_API_KEY"),
    "fireworks": compatible("FIREWORKS_API_KEY", base="/inference/v1"),
    "gemini": Plan(
        base="/v1beta",
        key=Key(
            header="x-goog-api-key",
            prefix="",
            variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            wrong=f"AIza{WRONG}",
        ),
        routes=(_GENERATE,),
    ),
    "github-copilot": compatible(base=""),
    "groq": compatible("GROQ_API_KEY", base="/openai/v1"),
    "huggingface": compatible("HF_TOKEN"),
    "litellm": compatible("LITELLM_API_KEY", routes=_AUTO),
    "llama.cpp": compatible("LLAMA_API_KEY", routes=(*_AUTO, COMPLETIONS)),
    "lmstudio": compatible(routes=(CHAT, COMPLETIONS, RESPONSES)),
    "minimax": compatible("MINIMAX_API_KEY"),
    "mistral": compatible("MISTRAL_API_KEY"),
    "moonshot": compatible("MOONSHOT_API_KEY"),
    "ollama": compatible("OLLAMA_API_KEY", routes=(_OLLAMA_CHAT, CHAT)),
    "openai": compatible("OPENAI_API_KEY", routes=(NEW_CHAT, RESPONSES)),
    "openai-codex": compatible(base="/backend-api/codex", routes=(RESPONSES,)),
    "openai-compatible": compatible(routes=(CHAT, RESPONSES)),
    "openrouter": compatible("OPENROUTER_API_KEY", base="/api/v1"),
    "perplexity": compatible("PERPLEXITY_API_KEY", "PPLX_API_KEY", base=""),
    "together": compatible("TOGETHER_API_KEY"),
    "vertex": Plan(
        base="/v1/projects/{name}/locations/us-central1/publishers/google",
        routes=(_GENERATE,),
    ),
    "vllm": compatible("VLLM_API_KEY", routes=(CHAT, COMPLETIONS, RESPONSES)),
    "xai": compatible("XAI_API_KEY", routes=(CHAT, RESPONSES)),
    "zai": compatible("ZAI_API_KEY", base="/api/paas/v4"),
    # -- tools -------------------------------------------------------------------------------
    "airtable": tool(
        base="/v0",
        key=Key(variables=("AIRTABLE_API_KEY",), wrong=f"pat{WRONG}"),
        account="/meta/whoami",
        record="/appAAAAAAAAAAAAAA/tblAAAAAAAAAAAAAA/recAAAAAAAAAAAAAA",
        route=Route(name="bases", path="/meta/bases", body={"tables": []}, needed="tables"),
    ),
    "discord": tool(
        base="/api/v10",
        key=Key(prefix="Bot ", variables=("DISCORD_TOKEN", "DISCORD_BOT_TOKEN"), wrong=WRONG),
        account="/users/@me",
        record="/channels/100000000000000000",
        route=Route(
            name="direct",
            path="/users/@me/channels",
            body={"recipient_id": ""},
            needed="recipient_id",
        ),
    ),
    "github": tool(
        key=Key(variables=("GITHUB_TOKEN", "GH_TOKEN"), wrong=f"ghp_{'0' * 36}"),
        account="/user",
        record="/repos/breaker-sidecar-audit/no-such-repository",
        route=Route(name="markdown", path="/markdown", body={"text": ""}, needed="text"),
        headers={"accept": "application/vnd.github+json"},
    ),
    "graphql": Plan(models=False, routes=(GRAPHQL,)),
    "hubspot": tool(
        key=Key(variables=("HUBSPOT_ACCESS_TOKEN",), wrong=f"pat-na1-{_UUID}"),
        account="/account-info/v3/details",
        record="/crm/v3/objects/contacts/999999999999999",
        route=Route(
            name="read",
            path="/crm/v3/objects/contacts/batch/read",
            body={"inputs": [], "properties": []},
            needed="inputs",
        ),
    ),
    "jira": tool(
        key=Key(prefix="Basic ", wrong="YXVkaXRAZXhhbXBsZS5jb206d3Jvbmc="),
        base="/rest/api/3",
        account="/myself",
        record="/issue/AUDIT-0",
        route=Route(name="issue", path="/issue", body={"fields": {}}, needed="fields"),
    ),
    "linear": Plan(
        models=False,
        key=Key(prefix="", variables=("LINEAR_API_KEY",), wrong=f"lin_api_{WRONG}"),
        routes=(GRAPHQL,),
        account=Request(path="/graphql", method="POST", body={"query": "{ viewer { id } }"}),
    ),
    "mcp": Plan(models=False, routes=(_RPC,)),
    "msgraph": tool(
        base="/v1.0",
        key=Key(wrong=WRONG),
        account="/me",
        record=f"/users/{_UUID}",
        route=Route(name="search", path="/search/query", body={"requests": []}, needed="requests"),
    ),
    "notion": tool(
        base="/v1",
        key=Key(variables=("NOTION_TOKEN", "NOTION_API_KEY"), wrong=f"ntn_{WRONG}"),
        account="/users/me",
        record=f"/pages/{_UUID}",
        route=Route(name="pages", path="/pages", body={"parent": {}}, needed="parent"),
        headers={"notion-version": "2022-06-28"},
    ),
    "salesforce": tool(
        base="/services/data/v60.0",
        key=Key(wrong=f"00D000000000000!{WRONG}"),
        account="/limits",
        record="/sobjects/Account/000000000000000AAA",
        route=Route(
            name="composite",
            path="/composite",
            body={"compositeRequest": []},
            needed="compositeRequest",
        ),
    ),
    "sendgrid": tool(
        base="/v3",
        key=Key(variables=("SENDGRID_API_KEY",), wrong=f"SG.{WRONG}"),
        account="/scopes",
        record=f"/templates/{_UUID}",
        route=Route(
            name="send", path="/mail/send", body={"personalizations": []}, needed="personalizations"
        ),
    ),
    "shopify": Plan(
        base="/admin/api/2025-01",
        models=False,
        key=Key(
            header="x-shopify-access-token",
            prefix="",
            variables=("SHOPIFY_ACCESS_TOKEN",),
            wrong=f"shpat_{'0' * 32}",
        ),
        routes=(Route(name="query", path="/graphql.json", body=GRAPHQL.body, needed="query"),),
        account=Request(path="/shop.json"),
        record=Request(path="/products/999999999999.json"),
    ),
    "slack": Plan(
        base="/api",
        models=False,
        key=Key(variables=("SLACK_BOT_TOKEN",), wrong="xoxb-000000000000-000000000000-audit"),
        routes=(
            Route(name="message", path="/chat.postMessage", body={"channel": ""}, needed="channel"),
        ),
        account=Request(path="/auth.test", method="POST", body={}),
        record=Request(path="/conversations.info?channel=C0000000000"),
        wrong_method="PATCH",
    ),
    "stripe": tool(
        base="/v1",
        key=Key(variables=("STRIPE_API_KEY", "STRIPE_SECRET_KEY"), wrong=f"sk_test_{'0' * 24}"),
        account="/balance",
        record="/charges/ch_000000000000000000000000",
        route=Route(
            name="intent",
            path="/payment_intents",
            body={"amount": 0, "currency": "usd"},
            needed="amount",
            form=True,
        ),
    ),
    "twilio": tool(
        base="/2010-04-01",
        key=Key(prefix="Basic ", wrong="QUMwMDAwOndyb25n"),
        account="/Accounts.json",
        record=f"/Accounts/AC{'0' * 32}.json",
    ),
    "zendesk": tool(
        base="/api/v2",
        key=Key(prefix="Basic ", wrong="YXVkaXQvdG9rZW46d3Jvbmc="),
        account="/account/settings.json",
        record="/tickets/999999999999.json",
        route=Route(name="ticket", path="/tickets.json", body={"ticket": {}}, needed="ticket"),
    ),
}

GENERIC = Plan(models=False)


def plan_of(dialect: str, *, path: str | None = None) -> Plan:
    """The plan of a dialect.

    Args:
        dialect: its name.
        path: a path at the upstream that needs a key, where the dialect knows of none.
    """
    plan = PLANS.get(dialect, GENERIC)
    if path is None:
        return plan
    return msgspec.structs.replace(plan, account=Request(path=path, absolute=True))
