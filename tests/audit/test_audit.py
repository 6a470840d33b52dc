"""An audit of upstreams that tell the truth, and of such that do not."""

import json
from pathlib import Path

import pytest

from sidecar.audit.audit import LONGEST_WAIT, AuditFailed
from sidecar.audit.cases import NAME
from sidecar.audit.findings import Result
from sidecar.audit.plans import CHAT, Key, Plan, Request
from sidecar.audit.questions import Allowance

from .conftest import audited, found
from .upstream import KEY, MODEL, Started, error

ALL = [
    "unknown_path",
    "chat/unknown_model",
    "chat/malformed_json",
    "chat/missing_field",
    "responses/unknown_model",
    "responses/malformed_json",
    "responses/missing_field",
    "no_key",
    "wrong_key",
    "wrong_method",
]


async def test_an_honest_upstream_is_right_in_every_case(tmp_path: Path, started: Started) -> None:
    upstream = await started()
    report = await audited(tmp_path, upstream)
    assert [one.id for one in report.findings] == ALL
    assert [one.result for one in report.findings] == [Result.RIGHT] * len(ALL)
    assert not report.misleads
    assert report.counts == {"right": 10, "misleads": 0, "accepted": 0, "unreached": 0}


async def test_nothing_that_could_be_billed_is_sent(tmp_path: Path, started: Started) -> None:
    upstream = await started()
    await audited(tmp_path, upstream)
    assert upstream.ran == 0
    for asked in upstream.asked:
        try:
            document = json.loads(asked.body)
        except ValueError:
            assert NAME.encode() in asked.body
        else:
            assert document["model"] == NAME


async def test_each_case_carries_the_key_that_it_is_about(tmp_path: Path, started: Started) -> None:
    upstream = await started()
    await audited(tmp_path, upstream)
    keys = [asked.key for asked in upstream.asked]
    assert keys.count(None) == 1
    assert len([key for key in keys if key not in (None, KEY)]) == 1


LIES = [
    ("model", (503, error("The model does not exist", "model_not_found")), "chat/unknown_model"),
    ("model", (200, error("The model does not exist", "model_not_found")), "chat/unknown_model"),
    ("model", (400, error("The model does not exist", "model_not_found")), "chat/unknown_model"),
    ("json", (500, error("Something went wrong", None, "server_error")), "chat/malformed_json"),
    ("json", (500, "<h1>Internal Server Error</h1>"), "responses/malformed_json"),
    ("missing", (502, "Bad Gateway"), "chat/missing_field"),
    ("missing", (0, None), "chat/missing_field"),
    ("no key", (500, "Internal Server Error"), "no_key"),
    ("no key", (404, error("not here", "no_such_thing")), "no_key"),
    ("key", (400, error("Incorrect API key provided", "invalid_api_key")), "wrong_key"),
    ("key", (429, error("slow down", "rate_limit_exceeded", "requests")), "wrong_key"),
    ("path", (200, "<html>Welcome</html>"), "unknown_path"),
    ("path", (503, "no healthy upstream"), "unknown_path"),
    ("method", (500, "oops"), "wrong_method"),
]


@pytest.mark.parametrize(("truth", "lie", "id_"), LIES)
async def test_a_lie_is_found_and_nothing_else(
    tmp_path: Path, started: Started, truth: str, lie: object, id_: str
) -> None:
    upstream = await started(lies={truth: lie})
    report = await audited(tmp_path, upstream)
    assert report.misleads
    wrong = [one for one in report.findings if one.result is Result.MISLEADS]
    assert id_ in [one.id for one in wrong]
    kinds = {one.case for one in wrong}
    assert len(kinds) == 1
    assert all(one.note for one in wrong)


async def test_what_a_lie_does_to_others(tmp_path: Path, started: Started) -> None:
    lie = (503, error("The model does not exist", "model_not_found"))
    upstream = await started(lies={"model": lie}, headers={"retry-after": "600"})
    one = found(await audited(tmp_path, upstream), "chat/unknown_model")
    assert (one.class_, one.code, one.class_right, one.status_right) == (
        "permanent",
        "model_not_found",
        True,
        False,
    )
    assert one.becomes == 404
    assert one.breaker == "failure"
    assert (one.openai.requests, one.openai.error) == (1, "InternalServerError")
    assert (one.anthropic.requests, one.anthropic.wait) == (3, 600)
    assert one.verdict == "alive"


async def test_a_lie_that_the_daemon_believes_too(tmp_path: Path, started: Started) -> None:
    upstream = await started(lies={"json": (500, "Internal Server Error")})
    one = found(await audited(tmp_path, upstream), "chat/malformed_json")
    assert (one.class_, one.class_right, one.status_right) == ("transient", False, False)
    assert one.repeated


async def test_a_moment_s_trouble_is_asked_about_again(tmp_path: Path, started: Started) -> None:
    def once(said: int) -> tuple[int, dict[str, object] | str]:
        return (503, "wait") if said == 1 else (400, error("no JSON", None))

    slept: list[float] = []
    upstream = await started(lies={"json": once}, headers={"retry-after": "2"})
    report = await audited(tmp_path, upstream, slept=slept)
    one = found(report, "chat/malformed_json")
    assert (one.status, one.result, one.repeated) == (400, Result.RIGHT, True)
    assert slept == [2.0]


async def test_a_long_wait_is_not_sat_out(tmp_path: Path, started: Started) -> None:
    slept: list[float] = []
    upstream = await started(lies={"json": (503, "wait")}, headers={"retry-after": "4000"})
    await audited(tmp_path, upstream, slept=slept)
    assert set(slept) == {LONGEST_WAIT}


async def test_without_a_key_what_is_behind_it_is_not_judged(
    tmp_path: Path, started: Started
) -> None:
    upstream = await started()
    report = await audited(tmp_path, upstream, key=None)
    assert not report.misleads
    results = {one.id: one.result for one in report.findings}
    assert results["no_key"] is results["wrong_key"] is results["unknown_path"] is Result.RIGHT
    assert results["chat/unknown_model"] is results["chat/malformed_json"] is Result.UNREACHED
    assert found(report, "chat/unknown_model").note == "a key is needed"


async def test_a_key_that_is_refused_hides_everything(tmp_path: Path, started: Started) -> None:
    upstream = await started(lies={"path": (401, error("no", "invalid_api_key"))})
    report = await audited(tmp_path, upstream, key="sk-old")
    for id_ in ("chat/unknown_model", "chat/malformed_json", "unknown_path"):
        one = found(report, id_)
        assert (one.result, one.note) == (Result.UNREACHED, "the key was not accepted")


async def test_a_missing_key_under_a_false_status_still_misleads(
    tmp_path: Path, started: Started
) -> None:
    lie = (500, error("Incorrect API key provided", "invalid_api_key"))
    upstream = await started(lies={"no key": lie})
    report = await audited(tmp_path, upstream, key=None)
    assert found(report, "chat/unknown_model").result is Result.MISLEADS


async def test_an_upstream_that_needs_no_key(tmp_path: Path, started: Started) -> None:
    upstream = await started(keyless=True)
    report = await audited(tmp_path, upstream, key=None)
    assert not report.misleads
    assert found(report, "no_key").result is Result.ACCEPTED
    assert found(report, "no_key").note == "no key is needed"
    assert found(report, "wrong_key").note == "no key is looked at"


async def test_a_server_of_one_model_runs_one_request_at_most(
    tmp_path: Path, started: Started
) -> None:
    upstream = await started(nameless=True, keyless=True)
    report = await audited(tmp_path, upstream, key=None)
    assert upstream.ran == 1
    assert found(report, "chat/unknown_model").result is Result.ACCEPTED
    assert "responses/unknown_model" not in [one.id for one in report.findings]
    assert found(report, "no_key").result is Result.ACCEPTED
    assert not report.misleads


async def test_a_route_that_is_not_there_is_left_out(tmp_path: Path, started: Started) -> None:
    upstream = await started(routes=("/v1/chat/completions",))
    report = await audited(tmp_path, upstream)
    assert report.absent == ("responses",)
    assert not any(one.id.startswith("responses/") for one in report.findings)
    assert not report.misleads


async def test_a_route_of_another_dialect_is_known_by_its_words(
    tmp_path: Path, started: Started
) -> None:
    """Whose dialect reads a code in it that another does not see is no other answer."""
    nowhere = (404, error("Unknown request URL", "unknown_url"))
    upstream = await started(routes=("/v1/chat/completions",), lies={"path": nowhere})
    report = await audited(tmp_path, upstream, config={"dialect": "auto"})
    assert "messages" in report.absent
    assert not report.misleads


async def test_no_route_at_all_is_said(tmp_path: Path, started: Started) -> None:
    upstream = await started(routes=("/api/v9/chat/completions",))
    with pytest.raises(AuditFailed, match="--base") as failed:
        await audited(tmp_path, upstream)
    assert failed.value.exit_code == 2
    report = await audited(tmp_path, upstream, base="/api/v9")
    assert not report.misleads


async def test_an_upstream_that_does_not_look_at_paths(tmp_path: Path, started: Started) -> None:
    gone = (404, error("The model does not exist", "model_not_found"))
    upstream = await started(lies={"path": gone}, routes=("/v1/chat/completions",))
    report = await audited(tmp_path, upstream)
    assert report.absent == ("responses",)
    assert not report.misleads
    everything = ("path", "model", "json", "missing", "no key", "key", "method")
    upstream = await started(lies=dict.fromkeys(everything, gone))
    report = await audited(tmp_path, upstream)
    assert found(report, "chat/unknown_model").result is Result.RIGHT
    assert not report.misleads
    lie = (503, error("The model does not exist", "model_not_found"))
    upstream = await started(lies=dict.fromkeys(everything, lie))
    assert (await audited(tmp_path, upstream)).misleads


async def test_an_outage_is_no_lie(tmp_path: Path, started: Started) -> None:
    down = (503, "no healthy upstream")
    names = ("path", "model", "json", "missing", "no key", "key", "method")
    upstream = await started(lies=dict.fromkeys(names, down))
    with pytest.raises(AuditFailed, match="nothing can be told"):
        await audited(tmp_path, upstream)


async def test_a_route_that_is_down_tells_nothing(tmp_path: Path, started: Started) -> None:
    """That the server still knows what it has not, and how its routes are asked, is no answer."""
    down = (500, error("internal error", None, "server_error"))
    names = ("model", "json", "missing", "no key", "key")
    upstream = await started(lies=dict.fromkeys(names, down))
    with pytest.raises(AuditFailed, match="nothing can be told"):
        await audited(tmp_path, upstream)
    lies = {name: (500, error(f"wrong: {name}", None, "server_error")) for name in names}
    upstream = await started(lies=lies)
    assert (await audited(tmp_path, upstream)).misleads


async def test_a_host_that_does_not_answer(tmp_path: Path, started: Started) -> None:
    upstream = await started()
    await upstream.stop()
    with pytest.raises(AuditFailed, match="connection refused"):
        await audited(tmp_path, upstream)
    await upstream.start()


async def test_a_name_that_is_looked_up_first_hides_the_body_s_faults(
    tmp_path: Path, started: Started
) -> None:
    lie = (404, error("The model does not exist", "model_not_found"))
    upstream = await started(lies={"missing": lie})
    report = await audited(tmp_path, upstream)
    assert found(report, "chat/missing_field").result is Result.UNREACHED
    assert not report.misleads


async def test_a_prompt_beyond_the_context_only_if_allowed(
    tmp_path: Path, started: Started
) -> None:
    upstream = await started()
    allowed = Allowance(model=MODEL, context=2000)
    report = await audited(tmp_path, upstream, allowed=allowed)
    one = found(report, "chat/context_too_long")
    assert (one.class_, one.code, one.result) == (
        "validation",
        "context_length_exceeded",
        Result.RIGHT,
    )
    longest = max(upstream.asked, key=lambda asked: len(asked.body))
    assert json.loads(longest.body)["messages"][0]["content"].count("word") == 2400
    assert upstream.ran == 0


async def test_a_prompt_that_is_cut_in_silence_misleads(tmp_path: Path, started: Started) -> None:
    cut = (200, {"choices": [{"message": {"content": "."}, "finish_reason": "stop"}]})
    upstream = await started(lies={"context": cut})
    allowed = Allowance(model=MODEL, context=2000)
    report = await audited(tmp_path, upstream, allowed=allowed)
    assert found(report, "chat/context_too_long").result is Result.MISLEADS


async def test_the_configured_key_is_sent_where_it_belongs_only(
    tmp_path: Path, started: Started
) -> None:
    upstream = await started()
    headers = {
        "authorization": {"value": KEY, "prefix": "Bearer "},
        "x-team": {"value": "blue"},
        "x-proxy-token": {"value": "hidden-token-1"},
    }
    report = await audited(tmp_path, upstream, key=None, config={"set_headers": headers})
    assert found(report, "no_key").result is Result.RIGHT
    assert found(report, "wrong_key").result is Result.RIGHT
    assert all(asked.headers["x-team"] == "blue" for asked in upstream.asked)
    foreign = [asked for asked in upstream.asked if asked.key != KEY]
    assert len(foreign) == 2
    assert not any("x-proxy-token" in asked.headers for asked in foreign)


async def test_a_key_that_is_echoed_is_not_shown(tmp_path: Path, started: Started) -> None:
    upstream = await started(lies={"model": (500, error(f"who is {KEY}?", None))})
    report = await audited(tmp_path, upstream)
    assert KEY not in str(report)


async def test_a_hanging_upstream_is_no_answer(tmp_path: Path, started: Started) -> None:
    upstream = await started(lies={"json": (0, None)})
    one = found(await audited(tmp_path, upstream), "chat/malformed_json")
    assert (one.status, one.result, one.breaker) == (None, Result.MISLEADS, "failure")
    assert one.openai.error == "APIConnectionError"


async def test_records_in_place_of_models(tmp_path: Path, started: Started) -> None:
    upstream = await started(routes=("/v1/me",))
    plan = Plan(
        base="/v1",
        models=False,
        key=Key(),
        account=Request(path="/me", method="POST"),
        record=Request(path="/records/none"),
    )
    report = await audited(tmp_path, upstream, plan=plan)
    assert [one.id for one in report.findings] == [
        "unknown_path",
        "unknown_record",
        "no_key",
        "wrong_key",
        "wrong_method",
    ]
    assert not report.misleads


async def test_an_account_path_that_is_not_there_says_nothing_of_keys(
    tmp_path: Path, started: Started
) -> None:
    upstream = await started()
    plan = Plan(models=False, account=Request(path="/whoami"))
    report = await audited(tmp_path, upstream, plan=plan)
    assert found(report, "no_key").result is Result.UNREACHED
    assert not report.misleads


async def test_a_route_behind_an_upstream_s_own_path(tmp_path: Path, started: Started) -> None:
    upstream = await started(routes=("/gateway/v1/chat/completions",))
    upstream.url += "/gateway"
    report = await audited(tmp_path, upstream, plan=Plan(base="/v1", routes=(CHAT,)))
    assert not report.misleads
