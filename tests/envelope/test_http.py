"""The order of evidence, and what an envelope holds."""

import json

import pytest

from sidecar.envelope.decode import decode_cut
from sidecar.envelope.dialects import NAMES, get, guess
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import ErrorClass, Seen, Verdict
from sidecar.envelope.rules import Condition, OperatorRule
from tests.cases import NOW, all_cases

CHAT = "/v1/chat/completions"


def seen(status, body=b"", headers=None, path=CHAT, **more):
    if not isinstance(body, bytes):
        body = (body if isinstance(body, str) else json.dumps(body)).encode()
    pairs = Headers((headers or {}).items())
    return Seen(status=status, headers=pairs, body=body, path=path, now=NOW, **more)


def error(code=None, type_=None, message="M", param=None):
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}


@pytest.mark.parametrize("status", [200, 400, 403, 429, 500, 503])
@pytest.mark.parametrize(
    ("code", "class_", "own"),
    [
        ("model_not_found", "permanent", "model_not_found"),
        ("context_length_exceeded", "validation", "context_length_exceeded"),
        ("content_filter", "validation", "content_filtered"),
        ("insufficient_quota", "permanent", "quota_exhausted"),
        ("credit_balance_exhausted", "permanent", "credits_exhausted"),
        ("invalid_api_key", "authentication", "invalid_api_key"),
        ("rate_limit_exceeded", "rate_limit", "rate_limit_exceeded"),
    ],
)
def test_a_code_of_the_body_decides_under_any_status(status, code, class_, own):
    envelope = classify(seen(status, error(code)), get("openai")).envelope
    assert (envelope.class_, envelope.code) == (class_, own)


def test_an_overload_under_a_clients_status_is_passing_and_not_counted():
    counted = classify(seen(502, error(None, "overloaded_error")), get("openai"))
    assert (counted.envelope.code, counted.verdict) == ("overloaded", "failure")
    spared = classify(seen(400, error(None, "overloaded_error")), get("openai"))
    assert (spared.envelope.class_, spared.verdict) == ("transient", "alive")
    assert spared.envelope.raw["code"] == "overloaded_error"


@pytest.mark.parametrize(
    "status", [400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422, 428, 451]
)
def test_client_mistakes_are_never_counted(status):
    for name in ("openai", "anthropic", "generic", "auto"):
        assert classify(seen(status), get(name)).verdict == "alive"


def test_a_message_is_one_line_with_head_tail_and_length():
    text = "the beginning\n" + "x" * 20000 + "\nthe one line that explains it"
    envelope = classify(seen(500, error("c", message=text)), get("openai")).envelope
    assert len(envelope.message) <= 500
    assert envelope.message.startswith("the beginning xxx")
    assert envelope.message.endswith("the one line that explains it")
    assert "characters]" in envelope.message
    long = classify(seen(500, error("c", message="a" * 50000 + " END")), get("openai")).envelope
    assert long.message.endswith(" END")


def test_the_message_names_the_field_at_fault():
    envelope = classify(seen(400, error("x", param="tools[0].name")), get("openai")).envelope
    assert envelope.message == "M (at tools[0].name)"


def test_errors_in_errors_are_unwrapped():
    inner = json.dumps(error("C", "T"))
    envelope = classify(seen(400, {"error": {"message": inner}}), get("auto")).envelope
    assert envelope.message == "M"
    prefixed = {"error": {"message": f"Upstream said: {inner}"}}
    assert classify(seen(400, prefixed), get("auto")).envelope.message == "Upstream said: M"


def test_a_wrapped_terminal_error_decides_and_a_passing_one_does_not():
    spent = {"error": {"message": json.dumps(error("insufficient_quota")), "type": "api_error"}}
    assert classify(seen(429, spent), get("openai")).envelope.code == "quota_exhausted"
    busy = {"error": {"message": json.dumps(error("overloaded_error")), "type": "upstream_error"}}
    assert classify(seen(500, busy), get("openai")).envelope.code == "upstream_error"


def test_raw_holds_what_was_seen():
    body = json.dumps(error("x")) + " " * 70000
    classified = classify(
        seen(500, body, {"x-request-id": "req_1", "Set-Cookie": "a=b"}, truncated=True),
        get("openai"),
        correlation_id="corr-1",
    )
    raw = classified.envelope.raw
    assert raw["status"] == 500
    assert raw["headers"] == {"x-request-id": "req_1", "set-cookie": "[redacted]"}
    assert len(raw["body"]) == 65536
    assert raw["body_cut"] is True
    assert raw["upstream_request_id"] == "req_1"
    assert classified.envelope.correlation_id == "corr-1"
    assert "code" not in raw


def test_an_error_body_that_was_cut_is_still_read():
    body = json.dumps(error("model_not_found"))[:-2] + ', "trace": "' + "x" * 1000
    cut = classify(seen(503, body, truncated=True), get("openai"))
    assert cut.envelope.code == "model_not_found"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b" \n", "application/json"),
        (b"<!doctype html><html></html>", "text/html"),
        (b'{"choices": [{"message"', "application/json"),
        (b'{"choices": [{"message": {}}', "application/json"),
    ],
)
def test_a_model_routes_2xx_must_be_an_answer(body, kind):
    given = seen(200, body, {"content-type": kind})
    for name in ("openai", "anthropic", "auto", "generic"):
        classified = classify(given, get(name))
        assert classified.envelope.code == "invalid_upstream_response"
        assert classified.verdict == "failure"
    elsewhere = seen(200, body, {"content-type": kind}, path="/files/x", method="GET")
    assert classify(elsewhere, get("generic")).verdict == "success"


@pytest.mark.parametrize(
    "given",
    [
        seen(200, b'{"a": NaN}'),
        seen(200, b'{"choices": [', truncated=True),
        seen(200, b"", {"content-encoding": "br"}),
        seen(200, b"", method="HEAD"),
        seen(200, b"", {"content-type": "audio/mpeg"}),
        seen(204),
        seen(304),
        seen(200, b"plain text"),
    ],
)
def test_what_may_be_an_answer_is_one(given):
    assert classify(given, get("openai")).verdict == "success"


def test_a_cut_body_is_a_failure_whatever_the_route():
    for path, code in ((CHAT, "invalid_upstream_response"), ("/files/x", "stream_truncated")):
        classified = classify(seen(200, b'{"a":1}', path=path, complete=False), get("openai"))
        assert (classified.envelope.code, classified.verdict) == (code, "failure")
    denied = classify(seen(403, b"", complete=False), get("openai"))
    assert denied.verdict == "alive"


def test_half_a_code_is_none_wherever_the_body_breaks_off():
    whole = (
        b'{"error": {"message": "no such model", "type": "invalid_request_error", "param": null,'
        b' "code": "model_not_found", "status": 404}}'
    )
    for end in range(len(whole)):
        cut = decode_cut(whole[:end])
        error = (cut or {}).get("error") or {}
        assert error.get("code") in {None, "model_not_found"}
        assert error.get("type") in {None, "invalid_request_error"}
        assert error.get("status") in {None, 404}
        # Half of the words still tells a person something.
        assert "no such model".startswith(error.get("message", ""))
        classified = classify(seen(503, whole[:end], complete=False), get("openai"))
        assert classified.envelope.code in {"503", "invalid_request_error", "model_not_found"}


@pytest.mark.parametrize(
    "path", ["/v1/responses/resp_1", "/v1/batches/b", "/v1/fine_tuning/jobs/f", "/v1/videos/v"]
)
def test_a_stored_failure_is_a_good_answer(path):
    body = {"id": "x", "object": "y", "status": "failed", "error": {"code": "server_error"}}
    assert classify(seen(200, body, path=path, method="GET"), get("openai")).verdict == "success"


# --- X-Should-Retry -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "wish", "expected"),
    [
        (503, b"", "false", ("transient", False, "failure")),
        (429, b"", "false", ("rate_limit", False, "throttle")),
        (409, b"", "true", ("transient", True, "alive")),
        (409, b"", "TRUE", ("permanent", False, "alive")),
        (400, b"", "true", ("validation", True, "alive")),
        (401, b"", "true", ("authentication", True, "alive")),
        (404, b"", "true", ("permanent", False, "alive")),
        (508, b"", "true", ("transient", True, "failure")),
        (429, error("insufficient_quota"), "true", ("permanent", False, "alive")),
        (400, error("context_length_exceeded"), "true", ("validation", False, "alive")),
        (401, error("invalid_api_key"), "true", ("authentication", False, "alive")),
    ],
)
def test_should_retry(status, body, wish, expected):
    classified = classify(seen(status, body, {"x-should-retry": wish}), get("generic"))
    envelope = classified.envelope
    assert (envelope.class_, envelope.retryable, classified.verdict) == expected


def test_not_to_repeat_as_it_is_leaves_the_refresh_of_an_expired_token():
    given = seen(401, error("token_expired"), {"x-should-retry": "false"})
    envelope = classify(given, get("generic")).envelope
    assert (envelope.code, envelope.retryable) == ("token_expired", True)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (503, "SlowDown", ("rate_limit", "SlowDown", "throttle")),
        (503, "ServerBusy", ("transient", "ServerBusy", "failure")),
        (404, "NoSuchKey", ("permanent", "NoSuchKey", "alive")),
        (403, "AccessDenied", ("authentication", "AccessDenied", "alive")),
        (400, "ExpiredToken", ("authentication", "token_expired", "alive")),
    ],
)
@pytest.mark.parametrize("dialect", ["generic", "aws-edge", "cloudflare", "auto", "bedrock"])
@pytest.mark.parametrize("begin", ["", '\ufeff<?xml version="1.0" encoding="utf-8"?>\n'])
def test_the_xml_of_object_stores(dialect, begin, status, code, expected):
    body = f"{begin}<Error><Code>{code}</Code><Message>Not &quot;now&quot;</Message></Error>"
    given = seen(status, body.encode(), {"content-type": "application/xml"})
    classified = classify(given, get(dialect))
    envelope = classified.envelope
    assert (envelope.class_, envelope.code, classified.verdict) == expected
    assert envelope.message == 'Not "now"'


@pytest.mark.parametrize("wrap", [dict, lambda body: [body]])
def test_googles_form_is_told_where_nobody_named_the_host(wrap):
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
    told = {"code": 400, "message": "no", "status": "INVALID_ARGUMENT", "details": details}
    given = seen(400, wrap({"error": told}), path="/v1beta/openai/chat/completions")
    envelope = classify(given, get("auto")).envelope
    assert (envelope.class_, envelope.code) == ("authentication", "API_KEY_INVALID")


def test_an_answer_that_says_it_is_not_ok_is_none_whatever_stands_beside_it():
    told = {"ok": False, "error": "missing_scope", "needed": "chat:write", "provided": "none"}
    envelope = classify(seen(200, told, path="/api/x"), get("generic")).envelope
    assert (envelope.class_, envelope.code) == ("authentication", "missing_scope")
    state = {"id": 7, "success": False, "error": "the build broke", "branch": "main"}
    assert classify(seen(200, state, path="/api/x"), get("generic")).envelope is None


def fault(code, message="M"):
    return {"fault": {"faultstring": message, "detail": {"errorcode": code}}}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (429, fault("policies.ratelimit.QuotaViolation"),
         ("rate_limit", "policies.ratelimit.QuotaViolation", True)),
        (401, fault("keymanagement.service.access_token_expired"),
         ("authentication", "token_expired", True)),
        (503, fault("messaging.adaptors.http.flow.ServiceUnavailable"),
         ("transient", "messaging.adaptors.http.flow.ServiceUnavailable", True)),
        (500, {"fault": {"code": 101503, "message": "M"}}, ("transient", "101503", True)),
        (400, {"odata.error": {"code": "Request_BadRequest", "message": {"value": "M"}}},
         ("validation", "Request_BadRequest", False)),
        (400, {"error": {"message": "M", "type": "OAuthException", "code": 190}},
         ("validation", "190", False)),
        (500, {"fault": "M"}, ("transient", "500", True)),
        (500, {"fault": {"detail": 7, "faultstring": 7}}, ("transient", "500", True)),
    ],
)  # fmt: skip
def test_an_error_under_another_name(status, body, expected):
    envelope = classify(seen(status, body, path="/api/x"), get("generic")).envelope
    assert (envelope.class_, envelope.code, envelope.retryable) == expected
    assert envelope.message == "M" or expected[1] == "500"


def test_other_xml_is_text():
    given = seen(500, b"<fault><Code>x</Code>it broke</fault>", {"content-type": "text/xml"})
    assert classify(given, get("generic")).envelope.code == "500"


def test_a_short_reset_settles_a_quota_word_of_an_unknown_gateway():
    given = seen(429, error("insufficient_quota"), {"retry-after": "20"})
    assert classify(given, get("openai-compatible")).verdict == "throttle"
    assert classify(given, get("openai")).verdict == "alive"


# --- the operator ---------------------------------------------------------------------------


def rule(*when, class_="rate_limit", code="burst", retryable=True, verdict="throttle"):
    return OperatorRule(
        name="mine",
        when=tuple(Condition(*condition) for condition in when),
        class_=ErrorClass(class_),
        code=code,
        retryable=retryable,
        verdict=Verdict(verdict),
    )


def test_the_operators_rule_comes_first():
    mine = rule(
        ("status", "", "equals", (429,)), ("body", "error", "equals", ("INSUFFICIENT QUOTA",))
    )
    given = seen(429, {"error": "INSUFFICIENT QUOTA"}, {"retry-after": "3"})
    classified = classify(given, get("openai"), rules=[mine], correlation_id="c")
    envelope = classified.envelope
    assert (envelope.class_, envelope.code, envelope.retry_after) == ("rate_limit", "burst", 3)
    assert classified.rule == "mine: the operator's own rule"
    other = seen(429, error("insufficient_quota"))
    assert classify(other, get("openai"), rules=[mine]).envelope.code == "quota_exhausted"


def test_the_operators_rule_reads_good_answers_too_and_beats_should_retry():
    mine = rule(("body", "state", "equals", ("broken",)), class_="permanent", code=None,
                retryable=False, verdict="alive")  # fmt: skip
    given = seen(200, {"state": "broken"}, {"x-should-retry": "true"})
    classified = classify(given, get("openai"), rules=[mine])
    assert (classified.envelope.class_, classified.verdict) == ("permanent", "alive")
    assert classified.envelope.retryable is False
    assert classify(seen(200, {"state": "fine"}), get("openai"), rules=[mine]).envelope is None


# --- dialects -------------------------------------------------------------------------------


def test_every_provider_of_the_cases_is_a_dialect():
    assert {case["provider"] for case in all_cases()} <= NAMES
    shipped = (
        "openai anthropic azure-openai gemini bedrock mistral cohere groq openrouter deepseek xai"
        " together fireworks ollama vllm github slack stripe auto generic sidecar"
    )
    assert set(shipped.split()) <= NAMES
    assert all(get(name).name == name for name in NAMES)
    assert get("no such dialect").name == "auto"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.openai.com", "openai"),
        ("API.Anthropic.com.", "anthropic"),
        ("eu.api.openai.com", "openai"),
        ("mine.openai.azure.com", "azure-openai"),
        ("www.googleapis.com", "google-apis"),
        ("generativelanguage.googleapis.com", "gemini"),
        ("europe-west4-aiplatform.googleapis.com", "vertex"),
        ("x.atlassian.net", "jira"),
        ("verify.twilio.com", "twilio"),
        ("hooks.slack.com", "slack"),
        ("llm.example", "auto"),
        ("notopenrouter.ai", "auto"),
        ("127.0.0.1", "auto"),
        ("", "auto"),
    ],
)
def test_guess(host, name):
    assert guess(host).name == name


def test_auto_goes_by_route_then_by_shape():
    body = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long"},
    }
    for path in ("/v1/messages", "/elsewhere"):
        envelope = classify(seen(400, body, path=path), get("auto")).envelope
        assert envelope.code == "context_length_exceeded"
    envelope = classify(
        seen(404, error(None, "x", "The model `y` does not exist")), get("auto")
    ).envelope
    assert envelope.code == "model_not_found"


def test_an_event_stream_under_an_error_status_is_read():
    body = b'event: error\ndata: {"error": {"code": "insufficient_quota"}}\n\n'
    given = seen(429, body, {"content-type": "text/event-stream"})
    assert classify(given, get("openai")).envelope.code == "quota_exhausted"


def test_any_api_may_have_messages():
    generic = get("github")
    assert not generic.is_model_route("POST", "/channels/1/messages")
    assert classify(seen(200, b"", path="/x/messages"), generic).verdict == "success"
    assert not get("openai").repeatable("POST", "/v1/threads/t/messages")


def test_routes():
    openai, azure = get("openai"), get("azure-openai")
    assert openai.is_model_route("POST", "/v1/chat/completions?x=1")
    assert openai.repeatable("POST", "/v1/embeddings")
    assert not openai.is_model_route("GET", "/v1/chat/completions")
    assert not openai.is_model_route("POST", "/v1/files")
    assert not openai.repeatable("POST", "/v1/batches")
    assert azure.model_of("/openai/deployments/my%20d/chat/completions?api-version=1") == "my d"
    assert azure.model_of("/openai/v1/chat/completions") is None
    assert openai.model_of("/v1/chat/completions") is None


@pytest.mark.parametrize(
    ("decision", "verdict"),
    [("breaker_open", "neutral"), ("forwarded", "alive"), ("connect_error", "neutral")],
)
def test_another_sidecar_is_believed(decision, verdict):
    told = {
        "class": "permanent", "source": "http", "code": "model_not_found", "message": "M",
        "retryable": False, "retry_after": None, "correlation_id": "theirs",
    }  # fmt: skip
    headers = {"x-error-envelope": json.dumps(told), "x-sidecar-decision": decision}
    classified = classify(seen(404, b"", headers), get("sidecar"), correlation_id="ours")
    assert classified.verdict == verdict
    assert classified.envelope.code == "model_not_found"
    assert classified.envelope.correlation_id == "ours"
    plain = classify(seen(503, error("model_not_found")), get("sidecar"))
    assert plain.envelope.code == "model_not_found"


@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}},
        {"jsonrpc": "2.0", "id": 1, "result": {"error": {"code": 1}}, "error": None},
        {"name": "a package", "dependencies": ["jsonrpc"], "jsonrpc": "2.0"},
        {"files": [{"content": '{"jsonrpc": "2.0", "error": {"code": -32603}}'}]},
    ],
)
def test_a_good_reply_of_json_rpc_is_one_for_whoever_was_not_named(body):
    told = json.dumps(body).encode()
    assert classify(seen(200, told, path="/rpc"), get("auto")).verdict == "success"


def test_a_type_without_an_end_costs_no_time():
    """Where a host begins is looked for at the beginning, and not at every letter."""
    body = json.dumps({"type": "a" * 1_000_000, "status": 500}).encode()
    classified = classify(
        seen(500, body, {"content-type": "application/problem+json"}), get("auto")
    )
    assert classified.envelope.class_ == "transient"
