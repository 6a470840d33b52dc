"""What becomes of the variables that lead a program to its APIs."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest

from sidecar.cli.variables import adopt, straight, without_proxy

BASE = "http://127.0.0.1:7"
PROVIDERS = {
    "openai": {"OPENAI_BASE_URL": "/v1", "OPENAI_API_BASE": "/v1"},
    "anthropic": {"ANTHROPIC_BASE_URL": ""},
    "azure": {"AZURE_ENDPOINT": ""},
    "groq": {"GROQ_URL": "/openai/v1/"},
}
ENABLED = ("openai", "anthropic", "groq")


def where_it_lands(variable: str, plan_upstreams: Mapping[str, str], rest: str) -> str:
    """What the daemon would call when a client appends `rest` to the variable."""
    split = urlsplit(variable)
    provider, _, path = split.path.lstrip("/").partition("/")
    path = f"/{path}" if "/" in split.path.lstrip("/") else ""
    query = f"?{split.query}" if split.query else ""
    return f"{plan_upstreams[provider]}{path}{rest}{query}"


def test_without_any_variable_all_enabled_providers_lead_to_the_daemon() -> None:
    plan = adopt(PROVIDERS, ENABLED, BASE, {"OPENAI_BASE_URL": " "})
    assert plan.variables == {
        "OPENAI_BASE_URL": f"{BASE}/openai/v1",
        "OPENAI_API_BASE": f"{BASE}/openai/v1",
        "ANTHROPIC_BASE_URL": f"{BASE}/anthropic",
        "GROQ_URL": f"{BASE}/groq/openai/v1/",
    }
    assert plan.upstreams == {}
    assert plan.notices == []


@pytest.mark.parametrize(
    ("name", "value", "rest", "lands"),
    [
        ("OPENAI_BASE_URL", "https://gw.example/v1", "/chat", "https://gw.example/v1/chat"),
        ("OPENAI_BASE_URL", "https://gw.example/v1/", "chat", "https://gw.example/v1/chat"),
        ("OPENAI_BASE_URL", "https://gw.example:8443/a/v1", "/c", "https://gw.example:8443/a/v1/c"),
        ("OPENAI_BASE_URL", "https://gw.example", "/chat", "https://gw.example/chat"),
        ("OPENAI_BASE_URL", "https://gw.example/", "chat", "https://gw.example/chat"),
        ("OPENAI_BASE_URL", "https://gw.example/my/own", "/c", "https://gw.example/my/own/c"),
        ("OPENAI_BASE_URL", "https://gw.example//v1", "/c", "https://gw.example//v1/c"),
        ("OPENAI_BASE_URL", "https://gw.example/a%2Fb/v1", "/c", "https://gw.example/a%2Fb/v1/c"),
        ("OPENAI_BASE_URL", "https://gw.example/a/../v1", "/c", "https://gw.example/a/../v1/c"),
        ("OPENAI_BASE_URL", "https://gw.example/xv1", "/c", "https://gw.example/xv1/c"),
        ("ANTHROPIC_BASE_URL", "http://[::1]:9/x", "/v1", "http://[::1]:9/x/v1"),
        (
            "AZURE_ENDPOINT",
            "https://me.azure.example/",
            "openai",
            "https://me.azure.example/openai",
        ),
        ("GROQ_URL", "https://gw.example/openai/v1/", "c", "https://gw.example/openai/v1/c"),
    ],
)
def test_calls_land_at_exactly_what_the_variable_said(
    name: str, value: str, rest: str, lands: str
) -> None:
    plan = adopt(PROVIDERS, ENABLED, BASE, {name: value})
    assert plan.variables[name].startswith(BASE)
    assert where_it_lands(plan.variables[name] + rest, plan.upstreams, "") == lands
    assert len(plan.notices) == 1
    assert name in plan.notices[0]


def test_the_usual_path_keeps_its_place_behind_the_provider() -> None:
    plan = adopt(PROVIDERS, ENABLED, BASE, {"OPENAI_BASE_URL": "https://gw.example/team/v1"})
    assert plan.upstreams == {"openai": "https://gw.example/team"}
    assert plan.variables["OPENAI_BASE_URL"] == f"{BASE}/openai/v1"
    assert plan.variables["OPENAI_API_BASE"] == f"{BASE}/openai/v1"


def test_an_unusual_path_holds_for_the_other_variable_too() -> None:
    plan = adopt(PROVIDERS, ENABLED, BASE, {"OPENAI_BASE_URL": "https://gw.example/own"})
    assert plan.upstreams == {"openai": "https://gw.example/own"}
    assert plan.variables["OPENAI_API_BASE"] == f"{BASE}/openai"


def test_two_paths_on_one_server_both_hold() -> None:
    plan = adopt(
        PROVIDERS,
        ENABLED,
        BASE,
        {"OPENAI_BASE_URL": "https://gw.example/v1", "OPENAI_API_BASE": "https://gw.example/old"},
    )
    assert plan.upstreams == {"openai": "https://gw.example"}
    assert plan.variables["OPENAI_BASE_URL"] == f"{BASE}/openai/v1"
    assert plan.variables["OPENAI_API_BASE"] == f"{BASE}/openai/old"
    assert len(plan.notices) == 2


def test_a_second_server_is_left_alone_and_said() -> None:
    environ = {"OPENAI_BASE_URL": "https://a.example/v1", "OPENAI_API_BASE": "https://b.example/v1"}
    plan = adopt(PROVIDERS, ENABLED, BASE, environ)
    assert plan.upstreams == {"openai": "https://a.example"}
    assert "OPENAI_API_BASE" not in plan.variables
    assert any("OPENAI_API_BASE" in notice and "left" in notice for notice in plan.notices)


def test_query_and_user_info_stay_in_the_variable_and_out_of_the_notice() -> None:
    environ = {"OPENAI_BASE_URL": "https://me:secret@gw.example/v1?key=hidden"}
    plan = adopt(PROVIDERS, ENABLED, BASE, environ)
    assert plan.upstreams == {"openai": "https://gw.example"}
    assert plan.variables["OPENAI_BASE_URL"] == "http://me:secret@127.0.0.1:7/openai/v1?key=hidden"
    assert "secret" not in plan.notices[0]
    assert "hidden" not in plan.notices[0]


@pytest.mark.parametrize(
    "value", ["gw.example", "ftp://gw.example", "http://", "http://a@b@c/", "::"]
)
def test_what_is_no_url_is_left_alone_and_said(value: str) -> None:
    plan = adopt(PROVIDERS, ENABLED, BASE, {"ANTHROPIC_BASE_URL": value})
    assert "ANTHROPIC_BASE_URL" not in plan.variables
    assert plan.upstreams == {}
    assert "left as it is" in plan.notices[0]


def test_a_variable_enables_a_provider_without_an_upstream() -> None:
    assert "AZURE_ENDPOINT" not in adopt(PROVIDERS, ENABLED, BASE, {}).variables
    plan = adopt(PROVIDERS, ENABLED, BASE, {"AZURE_ENDPOINT": "https://me.azure.example"})
    assert plan.upstreams == {"azure": "https://me.azure.example"}
    assert plan.variables["AZURE_ENDPOINT"] == f"{BASE}/azure"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_the_daemon_never_becomes_its_own_upstream(host: str) -> None:
    plan = adopt(PROVIDERS, ENABLED, BASE, {"OPENAI_BASE_URL": f"http://{host}:7/openai/v1"})
    assert plan.upstreams == {}
    assert plan.variables["OPENAI_BASE_URL"] == f"{BASE}/openai/v1"


def test_in_a_shell_a_variable_is_replaced_and_said() -> None:
    plan = straight({"openai": PROVIDERS["openai"]}, BASE, {"OPENAI_API_BASE": "https://x/v1"})
    assert plan.variables["OPENAI_API_BASE"] == f"{BASE}/openai/v1"
    assert len(plan.notices) == 1
    again = straight({"openai": PROVIDERS["openai"]}, BASE, plan.variables)
    assert again.notices == []


@pytest.mark.parametrize(
    ("environ", "upper", "lower"),
    [
        ({}, "127.0.0.1,localhost,::1", "127.0.0.1,localhost,::1"),
        (
            {"NO_PROXY": "corp.example, LOCALHOST"},
            "corp.example,LOCALHOST,127.0.0.1,::1",
            "corp.example,LOCALHOST,127.0.0.1,::1",
        ),
        (
            {"NO_PROXY": "a.example", "no_proxy": "b.example"},
            "a.example,127.0.0.1,localhost,::1",
            "b.example,127.0.0.1,localhost,::1",
        ),
        ({"no_proxy": "*"}, "*", "*"),
    ],
)
def test_loopback_passes_by_every_proxy(environ: dict[str, str], upper: str, lower: str) -> None:
    assert without_proxy(environ) == {"NO_PROXY": upper, "no_proxy": lower}
