"""What an audit needs to know of a provider: its routes, its key, one request of each kind.

Data, a plan for each dialect. Every body is the smallest that its route takes; `{name}` stands
where the name that cannot exist goes, `{prompt}` where the prompt does. Nothing in a plan changes
anything at the upstream: where a route writes, what it needs to write is always left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

PROMPT = "Audit."
WRONG = "breaker-sidecar-audit-wrong-key-0000000000000000"


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """Where a provider looks for its key.

    Attributes:
        header: the header that carries it, in lower case.
        prefix: what stands before it there.
        variables: where its official clients find it in the environment.
        wrong: one that has the form of a key, and opens nothing.
    """

    header: str = "authorization"
    prefix: str = "Bearer "
    variables: tuple[str, ...] = ()
    wrong: str = f"sk-{WRONG}"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    Attributes:
        path: behind the base path of the plan, a slash first.
        method: the method.
        body: sent as JSON; None for none.
        absolute: the path does not stand behind the base path.
    """

    path: str
    method: str = "GET"
    body: dict[str, Any] | None = None
    absolute: bool = False


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A route that takes a JSON body.

    Attributes:
        name: what the report calls it.
        path: behind the base path of the plan; with `{name}` where the model stands in it.
        body: the smallest right body.
        needed: the member without which the upstream can do nothing.
        headers: what this route needs beside the headers of the plan.
        absolute: the path does not stand behind the base path.
        form: what is right is sent as a form, not as JSON.
    """

    name: str
    path: str
    body: dict[str, Any]
    needed: str
    headers: Mapping[str, str] = {}
    absolute: bool = False
    form: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How one dialect is audited.

    Attributes:
        base: the path that all others stand behind; left out where the upstream ends with it.
        key: where the key goes.
        routes: which ask a model, or take a record; an upstream need not have all of them.
        models: the routes ask models, so a name that cannot exist belongs into each of them.
        account: needs a key and nothing else; None where a route of a model serves for it.
        record: asks for a record that cannot exist; None where a model serves for it.
        headers: what every request needs.
        wrong_method: one that the first route, or the account, does not have.
    """

    base: str = ""
    key: Key = Key()
    routes: tuple[Route, ...] = ()
    models: bool = True
    account: Request | None = None
    record: Request | None = None
    headers: Mapping[str, str] = {}
    wrong_method: str = "PUT"


_MESSAGES = [{"role": "user", "content": "{prompt}"}]

CHAT = Route(
    name="chat",
    path="/chat/completions",
    body={"model": "{name}", "messages": _MESSAGES, "max_tokens": 1},
    needed="messages",
)
NEW_CHAT = msgspec.structs.replace(
    CHAT, body={"model": "{name}", "messages": _MESSAGES, "max_completion_tokens": 1}
)
COMPLETIONS = Route(
    name="completions",
    path="/completions",
    body={"model": "{name}", "prompt": "{prompt}", "max_tokens": 1},
    needed="prompt",
)
RESPONSES = Route(
    name="responses",
    path="/responses",
    body={"model": "{name}", "input": "{prompt}", "max_output_tokens": 16},
    needed="input",
)
MESSAGES = Route(
    name="messages",
    path="/messages",
    body={"model": "{name}", "max_tokens": 1, "messages": _MESSAGES},
    needed="messages",
    headers={"anthropic-version": "2023-06-01"},
)
GRAPHQL = Route(
    name="query",
    path="/graphql",
    body={"query": "query { __typename }"},
    needed="query",
)


def compatible(*variables: str, base: str = "/v1", routes: tuple[Route, ...] = (CHAT,)) -> Plan:
    """The plan of a provider that speaks OpenAI's shape.

    Args:
        variables: where its clients find the key.
        base: the path that its clients are given.
        routes: those of OpenAI's that it has.
    """
    return Plan(base=base, key=Key(variables=variables), routes=routes)


def tool(
    *,
    key: Key,
    base: str = "",
    account: str,
    record: str,
    route: Route | None = None,
    headers: Mapping[str, str] = {},
) -> Plan:
    """The plan of an API that holds records.

    Args:
        key: where the key goes.
        base: the path that all others stand behind.
        account: the path that tells who asks.
        record: the path of a record that cannot exist.
        route: one that takes a body; what it needs is left out in all cases.
        headers: what every request needs.
    """
    return Plan(
        base=base,
        key=key,
        models=False,
        routes=() if route is None else (route,),
        account=Request(path=account),
        record=Request(path=record),
        headers=headers,
    )
