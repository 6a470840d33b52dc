"""From a plan to the requests that are sent.

A request names no model that exists unless the operator allowed what may be billed: an upstream
that forgives a missing field, or a key, then still has nothing that it could run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from sidecar.audit.cases import NAME, Case
from sidecar.audit.plans import PROMPT, Plan, Request, Route

_JSON = "application/json"
_WORD = "word "
_ABOVE = 1.2
"""How far a prompt that is to be too long goes beyond the context; a word is a token or more."""


class Identity(StrEnum):
    """Whose key a request carries."""

    OWN = "own"
    NONE = "none"
    WRONG = "wrong"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One request of an audit.

    Attributes:
        case: what is the matter with it.
        route: the route of the plan; empty where it concerns the whole upstream.
        method: the method.
        path: path and query, behind the path of the upstream.
        headers: names in lower case; without the key.
        body: empty for none.
        identity: whose key it carries.
    """

    case: Case
    route: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""
    identity: Identity = Identity.OWN

    @property
    def id(self) -> str:
        """Names the question in reports and baselines: `chat/malformed_json`, `no_key`."""
        return f"{self.route}/{self.case.value}" if self.route else self.case.value


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator lets an audit spend.

    Attributes:
        model: a model that exists.
        context: tokens that it takes.
    """

    model: str
    context: int


class Questions:
    """The requests of one plan.

    Args:
        plan: of the dialect.
        base: the path that all others stand behind, in place of the plan's.

    Attributes:
        nameless: the upstream answers to any model's name, so that a name keeps nothing from being
            run: no further body is whole.
    """

    def __init__(self, plan: Plan, base: str | None = None) -> None:
        self.nameless = False
        self._plan = plan
        self._base = plan.base if base is None else base.rstrip("/")

    def of_paths(self) -> Question:
        """A path that no server has."""
        route = self._plan.routes[0] if self._plan.routes and self._plan.models else None
        path = f"{_filled(self._base)}/breaker-sidecar-audit-no-such-path"
        if route is None:
            return self._question(Case.UNKNOWN_PATH, "", "GET", path)
        return self._question(Case.UNKNOWN_PATH, "", "POST", path, route, self._body(route))

    def of_route(self, route: Route) -> Iterator[Question]:
        """What is asked of one route."""
        path = self._path(route)
        whole = _json(_named(route.body))
        if self._plan.models and not self.nameless:
            yield self._question(Case.UNKNOWN_MODEL, route.name, "POST", path, route, whole)
        yield self._question(Case.MALFORMED, route.name, "POST", path, route, whole[:-2])
        yield self._incomplete(route, path, _named(_without(route)))

    def of_upstream(self, route: Route | None) -> Iterator[Question]:
        """What is asked once.

        Args:
            route: one that is there; None if the plan has none.
        """
        plan = self._plan
        if plan.record is not None:
            yield self._request(Case.UNKNOWN_RECORD, plan.record)
        for case, identity in (
            (Case.NO_KEY, Identity.NONE),
            (Case.WRONG_KEY, Identity.WRONG),
        ):
            if plan.account is not None:
                question = self._request(case, plan.account)
            elif route is not None:
                path, body = self._path(route), self._body(route)
                question = self._question(case, "", "POST", path, route, body)
            else:
                continue
            yield msgspec.structs.replace(question, identity=identity)
        yield from self._of_methods(route)

    def _of_methods(self, route: Route | None) -> Iterator[Question]:
        method, case = self._plan.wrong_method, Case.WRONG_METHOD
        if route is not None and (self._plan.models or self._plan.account is None):
            yield self._question(case, "", method, self._path(route), route, self._body(route))
        elif self._plan.account is not None:
            path = self._of(self._plan.account)
            yield self._question(case, "", method, path, None, b"{}")

    def of_context(self, route: Route, allowed: Allowance) -> Question:
        """A prompt that a model which exists cannot take; an upstream may bill for it."""
        prompt = _WORD * int(allowed.context * _ABOVE)
        body = _json(_named(route.body, allowed.model, prompt))
        path = self._path(route, allowed.model)
        return self._question(Case.TOO_LONG, route.name, "POST", path, route, body)

    def _body(self, route: Route) -> bytes:
        """A body that is right but for the name in it; without what it needs where that runs."""
        return _json(_named(_without(route) if self.nameless else route.body))

    def _request(self, case: Case, request: Request) -> Question:
        body = b"" if request.body is None else _json(request.body)
        return self._question(case, "", request.method, self._of(request), None, body)

    def _incomplete(self, route: Route, path: str, body: dict[str, Any]) -> Question:
        if not route.form:
            return self._question(Case.MISSING, route.name, "POST", path, route, _json(body))
        sent = urlencode(body).encode()
        form = {"content-type": "application/x-www-form-urlencoded"}
        question = self._question(Case.MISSING, route.name, "POST", path, route, sent)
        return msgspec.structs.replace(question, headers={**question.headers, **form})

    def _question(
        self,
        case: Case,
        name: str,
        method: str,
        path: str,
        route: Route | None = None,
        body: bytes = b"",
    ) -> Question:
        headers = {"accept": _JSON, **self._plan.headers, **(route.headers if route else {})}
        if body:
            headers["content-type"] = _JSON
        return Question(case=case, route=name, method=method, path=path, headers=headers, body=body)

    def _of(self, request: Request) -> str:
        return request.path if request.absolute else _filled(self._base) + request.path

    def _path(self, route: Route, model: str = NAME) -> str:
        base = "" if route.absolute else self._base
        return _filled(base + route.path, model)


def _without(route: Route) -> dict[str, Any]:
    return {name: value for name, value in route.body.items() if name != route.needed}


def _filled(path: str, model: str = NAME) -> str:
    return path.replace("{name}", quote(model, safe=":"))


def _json(document: dict[str, Any]) -> bytes:
    return msgspec.json.encode(document)


def _named(body: dict[str, Any], model: str = NAME, prompt: str = PROMPT) -> dict[str, Any]:
    """A body with its marks filled in."""
    filled: dict[str, Any] = _fill(body, {"{name}": model, "{prompt}": prompt})
    return filled


def _fill(value: Any, marks: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return marks.get(value, value)
    if isinstance(value, dict):
        return {name: _fill(item, marks) for name, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, marks) for item in value]
    return value
