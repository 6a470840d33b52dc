"""The plans as data: complete, harmless, and read by the dialects that they belong to."""

import itertools
import json
import re
from pathlib import Path

import pytest

from sidecar.audit.cases import KINDS, NAME, Case
from sidecar.audit.plans import PROMPT, Plan
from sidecar.audit.providers import GENERIC, PLANS, plan_of
from sidecar.audit.questions import Allowance, Identity, Question, Questions
from sidecar.config.load import default_path, load
from sidecar.envelope import dialects
from sidecar.envelope.credentials import carries_credential

# What is in front of others, or passes on what another sidecar says, has no routes of its own.
WITHOUT_ROUTES = {
    "aws-edge",
    "cloudflare",
    "connect",
    "envoy",
    "generic",
    "google-apis",
    "grpc-web",
    "nginx",
    "oauth",
    "problem-json",
    "sidecar",
}


def questions(plan: Plan) -> list[Question]:
    asked = Questions(plan)
    of_routes = itertools.chain.from_iterable(asked.of_route(route) for route in plan.routes)
    first = plan.routes[0] if plan.routes else None
    return [asked.of_paths(), *of_routes, *asked.of_upstream(first)]


def test_every_dialect_has_a_plan() -> None:
    assert set(PLANS) == set(dialects.NAMES) - WITHOUT_ROUTES
    assert plan_of("nginx") is GENERIC


@pytest.mark.parametrize("name", PLANS)
def test_questions_are_well_formed(name: str) -> None:
    asked = questions(PLANS[name])
    ids = [one.id for one in asked]
    assert len(ids) == len(set(ids))
    for one in asked:
        assert one.path.startswith("/")
        assert re.fullmatch(r"[!-~]+", one.path)
        assert "{" not in one.path
        assert all(header == header.lower() for header in one.headers)
        assert not any(carries_credential(header) for header in one.headers)
        assert one.case is Case.MALFORMED or b"{name}" not in one.body
        assert one.case in KINDS


@pytest.mark.parametrize("name", PLANS)
def test_bodies_are_json_but_where_they_must_not_be(name: str) -> None:
    for one in questions(PLANS[name]):
        if not one.body or one.headers["content-type"] != "application/json":
            continue
        if one.case is Case.MALFORMED:
            with pytest.raises(json.JSONDecodeError):
                json.loads(one.body)
        else:
            json.loads(one.body)


@pytest.mark.parametrize("name", [name for name, plan in PLANS.items() if plan.models])
def test_a_model_is_asked_for_by_a_name_that_cannot_exist(name: str) -> None:
    plan = PLANS[name]
    assert plan.routes
    for one in questions(plan):
        if one.case in (Case.UNKNOWN_PATH, Case.MISSING) or not one.body:
            continue
        assert NAME in one.path or NAME.encode() in one.body


@pytest.mark.parametrize("name", PLANS)
def test_the_needed_member_is_left_out(name: str) -> None:
    for route in PLANS[name].routes:
        assert route.needed in route.body
        missing = next(
            one for one in Questions(PLANS[name]).of_route(route) if one.case is Case.MISSING
        )
        assert f'"{route.needed}"'.encode() not in missing.body


@pytest.mark.parametrize("name", [name for name, plan in PLANS.items() if plan.models])
def test_the_routes_are_those_that_the_dialect_knows(name: str) -> None:
    dialect = dialects.get(name)
    for one in questions(PLANS[name]):
        if one.case is Case.UNKNOWN_MODEL:
            assert dialect.is_model_route("POST", one.path), one.path


@pytest.mark.parametrize("name", ["gemini", "azure-openai", "bedrock", "vertex"])
def test_a_model_in_the_path_is_the_one_that_cannot_exist(name: str) -> None:
    asked = next(one for one in questions(PLANS[name]) if one.case is Case.UNKNOWN_MODEL)
    assert dialects.get(name).model_of(asked.path) == NAME


@pytest.mark.parametrize("name", PLANS)
def test_a_wrong_key_fits_into_a_header_and_looks_like_one(name: str) -> None:
    key = PLANS[name].key
    assert re.fullmatch(r"[!-~]{12,}", key.wrong)
    assert carries_credential(key.header)


@pytest.mark.parametrize("name", PLANS)
def test_who_asks_without_a_key_and_with_a_wrong_one(name: str) -> None:
    identities = [one.identity for one in questions(PLANS[name])]
    assert identities.count(Identity.NONE) == 1
    assert identities.count(Identity.WRONG) == 1


def test_shipped_providers_have_the_base_path_that_their_clients_are_given() -> None:
    config = load(default_path(), environ={"AZURE_OPENAI_RESOURCE": "x"})
    for name, provider in config.providers.items():
        paths = {path.rstrip("/") for path in provider.env.values()}
        plan = plan_of(name)
        if plan.models and any(paths):
            assert plan.base in paths or any(plan.base.startswith(path) for path in paths), name


def test_where_names_are_not_looked_at_no_further_body_is_whole() -> None:
    plan = PLANS["llama.cpp"]
    asked = Questions(plan)
    asked.nameless = True
    for route in plan.routes:
        for one in asked.of_route(route):
            assert one.case in (Case.MALFORMED, Case.MISSING)
    for one in asked.of_upstream(plan.routes[0]):
        assert b'"messages"' not in one.body


def test_a_prompt_is_as_long_as_it_must_be() -> None:
    plan = PLANS["openai"]
    allowed = Allowance(model="gpt/x y", context=100)
    one = Questions(plan).of_context(plan.routes[0], allowed)
    body = json.loads(one.body)
    assert body["model"] == "gpt/x y"
    assert len(body["messages"][0]["content"].split()) == 120
    gemini = Questions(PLANS["gemini"]).of_context(PLANS["gemini"].routes[0], allowed)
    assert gemini.path.endswith("/models/gpt%2Fx%20y:generateContent")
    assert PROMPT.encode() not in gemini.body


def test_a_path_of_the_caller_s_own(tmp_path: Path) -> None:
    plan = plan_of("generic", path="/api/me?x=1")
    asked = Questions(plan).of_upstream(None)
    assert [one.path for one in asked] == ["/api/me?x=1"] * 3
