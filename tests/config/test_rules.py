"""The operator's rules: their grammar, what follows from a class, and matching."""

import pytest

from sidecar.envelope.headers import Headers
from sidecar.envelope.model import ErrorClass, Verdict
from sidecar.envelope.rules import ABSENT, Condition, OperatorRule


@pytest.fixture
def rule(load_provider):
    def reads(text):
        (only,) = load_provider(f"rules:\n  - {text}\n").rules
        return only

    return reads


def test_the_example_of_the_contract(rule):
    found = rule(
        '{name: proxy says quota for a burst, when: {status: 429, "body.error": "INSUFFICIENT QUOTA"},'
        " class: rate_limit, code: burst}"
    )
    assert found == OperatorRule(
        name="proxy says quota for a burst",
        when=(
            Condition("status", "", "equals", (429,)),
            Condition("body", "error", "equals", ("INSUFFICIENT QUOTA",)),
        ),
        class_=ErrorClass.RATE_LIMIT,
        code="burst",
        retryable=True,
        verdict=Verdict.THROTTLE,
    )


@pytest.mark.parametrize(
    ("given", "retryable", "verdict"),
    [
        ("class: validation", False, "alive"),
        ("class: authentication", False, "alive"),
        ("class: authentication, code: token_expired", True, "alive"),
        ("class: rate_limit", True, "throttle"),
        ("class: transient", True, "failure"),
        ("class: permanent", False, "alive"),
        ("class: transient, retryable: false", False, "failure"),
        ("class: transient, verdict: alive", True, "alive"),
        ("class: transient, verdict: neutral", True, "neutral"),
        ("class: rate_limit, verdict: alive, retryable: null, code: null", True, "alive"),
    ],
)
def test_what_follows_from_the_class(given, retryable, verdict, rule):
    found = rule(f"{{when: {{status: 500}}, {given}}}")
    assert (found.retryable, found.verdict) == (retryable, verdict)
    assert found.name == "rule 1"


@pytest.mark.parametrize(
    "given",
    [
        "class: validation, retryable: true",
        "class: permanent, retryable: true",
        "class: authentication, retryable: true",
        "class: validation, verdict: failure",
        "class: rate_limit, verdict: failure",
        "class: permanent, verdict: throttle",
        "class: transient, verdict: throttle",
        "class: transient, verdict: success",
        "class: transient, code: 'not a code'",
        "class: transient, code: ''",
        "class: outage",
        "code: burst",
    ],
)
def test_contradictions(given, provider_problems):
    assert provider_problems(f"rules: [{{when: {{status: 500}}, {given}}}]")


@pytest.mark.parametrize(
    "when",
    [
        "{}",
        "null",
        "[]",
        "429",
        "{status: 99}",
        "{status: 600}",
        "{status: 6xx}",
        "{status: 5x}",
        "{status: []}",
        "{status: {contains: 5}}",
        "{status: 429.0}",
        "{header: x}",
        "{header.: x}",
        '{"header.a b": x}',
        "{body: x}",
        "{body.: x}",
        "{body..a: x}",
        "{body.a.: x}",
        "{'body.a[x]': x}",
        "{body.a: {}}",
        "{body.a: {contains: x, empty: true}}",
        "{body.a: {contains: ''}}",
        "{body.a: {equals: x}}",
        "{body.a: {missing: 1}}",
        "{body.a: {empty: [true]}}",
        "{body.a: []}",
        "{body.a: [[x]]}",
        "{method: GET}",
    ],
)
def test_conditions_that_cannot_be(when, provider_problems):
    assert provider_problems(f"rules: [{{when: {when}, class: transient}}]")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("body", "body.PATH"),
        ("body.", "body.PATH"),
        ("Body", "body.PATH"),
        ("bdy.error.code", "body.error.code"),
        ("header", "header.NAME"),
        ("headers.x-kind", "header.x-kind"),
        ("headers", "header.NAME"),
        ("header.a b", "header.NAME"),
        ("Status", "status"),
        ("status.code", "status"),
        ("method", None),
    ],
)
def test_a_hint_names_what_can_be_written(key, meant, provider_problems):
    (line,) = provider_problems(f"rules: [{{when: {{'{key}': x}}, class: transient}}]")
    assert "a condition is status, header.NAME or body.PATH" in line
    assert line.partition("did you mean ")[2] == ("" if meant is None else f'"{meant}"?')


def test_rules_must_be_a_list(provider_problems):
    (line,) = provider_problems("rules: {when: {status: 500}}")
    assert "a list of rules is needed" in line


def matches(rule, when, status=500, headers=(), body=ABSENT):
    return rule(f"{{when: {when}, class: transient}}").matches(status, Headers(headers), body)


@pytest.mark.parametrize(
    ("when", "status", "expected"),
    [
        ("{status: 503}", 503, True),
        ("{status: 503}", 500, False),
        ("{status: 5xx}", 599, True),
        ("{status: 5xx}", 499, False),
        ("{status: [401, 5xx]}", 401, True),
        ("{status: [401, 5xx]}", 502, True),
        ("{status: [401, 5xx]}", 200, False),
        ("{status: '429'}", 429, True),
        ("{status: 2xx}", 200, True),
    ],
)
def test_status(when, status, expected, rule):
    assert matches(rule, when, status) is expected


@pytest.mark.parametrize(
    ("when", "headers", "expected"),
    [
        ("{header.X-Kind: quota}", [("x-kind", "quota")], True),
        ("{header.x-kind: quota}", [("X-Kind", "quota"), ("x-kind", "other")], True),
        ("{header.x-kind: quota}", [("x-kind", "other"), ("x-kind", "quota")], True),
        ("{header.x-kind: quota}", [("x-kind", "Quota")], False),
        ("{header.x-kind: {contains: uot}}", [("x-kind", "a quota")], True),
        ("{header.x-kind: {contains: [a, b]}}", [("x-kind", "xbx")], True),
        ("{header.x-kind: {missing: true}}", [], True),
        ("{header.x-kind: {missing: false}}", [], False),
        ("{header.x-kind: {missing: true}}", [("x-kind", "")], False),
        ("{header.x-kind: {empty: true}}", [("x-kind", "")], True),
        ("{header.x-remaining: 0}", [("x-remaining", "0")], True),
    ],
)
def test_headers(when, headers, expected, rule):
    assert matches(rule, when, headers=headers) is expected


BODY = {
    "error": {
        "code": 1302,
        "text": "out of quota",
        "list": [{"reason": "x"}],
        "none": None,
        "ok": False,
        "f": 1.0,
    },
    "empty": {},
    "blank": "",
    "models": [],
}


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("{body.error.code: 1302}", True),
        ("{body.error.code: '1302'}", True),
        ("{body.error.code: 13020}", False),
        ("{body.error.f: 1}", True),
        ("{body.error.text: [a, out of quota]}", True),
        ("{body.error.text: {contains: quota}}", True),
        ("{body.error.text: {contains: QUOTA}}", False),
        ("{'body.error.list[0].reason': x}", True),
        ("{body.error.list.0.reason: x}", True),
        ("{'body.error.list[1].reason': x}", False),
        ("{body.error.ok: false}", True),
        ("{body.error.none: null}", True),
        ("{body.error.none: {empty: true}}", True),
        ("{body.error.none: {missing: true}}", False),
        ("{body.empty: {empty: true}}", True),
        ("{body.blank: {empty: true}}", True),
        ("{body.models: {empty: true}}", True),
        ("{body.error: {empty: true}}", False),
        ("{body.error.ok: {empty: true}}", False),
        ("{body.nowhere: {empty: true}}", True),
        ("{body.nowhere: {missing: true}}", True),
        ("{body.error.code.deep: {missing: true}}", True),
        ("{body.error.code: {missing: false}}", True),
        ("{status: 500, body.error.code: 1302}", True),
        ("{status: 400, body.error.code: 1302}", False),
        ("{body.error: {contains: reason}}", True),
    ],
)
def test_body(when, expected, rule):
    assert matches(rule, when, body=BODY) is expected


@pytest.mark.parametrize("body", [ABSENT, None, "text", 5, [], [{"error": "x"}]])
def test_bodies_of_any_shape(body, rule):
    assert matches(rule, "{body.error: x}", body=body) is False
    assert matches(rule, "{body.0.error: x}", body=body) is (body == [{"error": "x"}])
    assert matches(rule, "{body.error: {missing: true}}", body=body) is True


def test_they_are_written_as_read(load_provider, load_text):
    text = """
        rules:
          - {name: n, when: {status: [401, 5xx], header.X-A: {contains: [a, "${b}"]}, body.c: {missing: false}}, class: transient}
          - {when: {body.d: ["1", 2, true, "true", null, "null", 007, 1.5]}, class: authentication, code: token_expired}
        """
    provider = load_provider(text, {"b": "$x"})
    assert provider.rules[1].when[0].values == ("1", 2, True, "true", None, "null", "007", "1.5")
