"""F126: zero and negative numbers turn nothing off by accident."""

import pytest
from msgspec import inspect

from sidecar.config.schema import Root
from sidecar.config.suggest import unwrap


def numbers(kind, path=()):
    """Every numeric key below `defaults` and `drain`: path, type, whether whole, description."""
    kind = unwrap(kind)
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            if isinstance(unwrap(field.type), inspect.IntType | inspect.FloatType):
                yield (*path, field.encode_name), unwrap(field.type), description(field.type)
            elif field.encode_name not in ("rules", "providers", "listen"):
                yield from numbers(field.type, (*path, field.encode_name))


def description(kind):
    found = ""
    while isinstance(kind, inspect.Metadata):
        found = found or (kind.extra_json_schema or {}).get("description", "")
        kind = kind.type
    return found


ALL = list(numbers(inspect.type_info(Root)))
HEAD = "providers: {a: {upstream: https://api.example}}\n"
MAY_BE_ZERO = {
    "drain.delay",
    "drain.timeout",
    "defaults.breaker.consecutive_failures",
    "defaults.breaker.failure_ratio",
    "defaults.breaker.repeat_window",
    "defaults.breaker.jitter",
    "defaults.shedding.sustained.ratio",
    "defaults.shedding.max_wait",
    "defaults.shedding.max_queue",
    "defaults.shedding.open_after",
    "defaults.retry.attempts",
    "defaults.retry.budget",
}


def text(path, value):
    inner = str(value)
    for part in reversed(path):
        inner = f"{{{part}: {inner}}}"
    return HEAD + inner[1:-1]


def test_they_are_all_here():
    assert len(ALL) == 38


@pytest.mark.parametrize(("path", "kind", "words"), ALL, ids=[".".join(path) for path, _, _ in ALL])
class TestEach:
    @pytest.mark.parametrize(
        "value", ["-1", "-0.5", "1e308", "1e999", ".nan", ".inf", "-.inf", "true", "9" * 400, "''"]
    )
    def test_refused(self, path, kind, words, value, problems_of):
        lines = problems_of(text(path, value))
        assert f": {'.'.join(path)}: " in lines[0]

    def test_zero(self, path, kind, words, load_text, problems_of):
        if ".".join(path) in MAY_BE_ZERO:
            assert "0 = " in words
            load_text(text(path, 0))
        else:
            assert "0 = " not in words
            assert "at least" in problems_of(text(path, 0))[0]

    def test_a_ten_thousandth(self, path, kind, words, load_text, problems_of):
        if ".".join(path) in MAY_BE_ZERO and isinstance(kind, inspect.FloatType):
            load_text(text(path, "0.0001"))
        else:
            assert problems_of(text(path, "0.0001"))

    def test_bounds(self, path, kind, words, load_text, problems_of):
        assert kind.le is not None
        assert problems_of(text(path, kind.le * 2))


@pytest.mark.parametrize("value", ["1.0001", "2", "50", "-0.1"])
def test_a_ratio_lies_between_zero_and_one(value, provider_problems):
    assert provider_problems(f"breaker: {{failure_ratio: {value}}}")


@pytest.mark.parametrize("value", ["1", "1.0", "0.0001", "0.5"])
def test_ratios(value, load_provider):
    assert 0 < load_provider(f"breaker: {{failure_ratio: {value}}}").breaker.failure_ratio <= 1


def test_total_null_is_no_limit(load_text):
    config = load_text(
        "defaults: {timeouts: {total: 5m}}\n"
        "providers: {a: {upstream: http://a}, b: {upstream: http://b, timeouts: {total: null}}}"
    )
    assert config.providers["a"].timeouts.total == 300
    assert config.providers["b"].timeouts.total is None


def test_both_rules_off_in_enforce(provider_problems, load_provider):
    both = "breaker: {consecutive_failures: 0, failure_ratio: 0}"
    (line,) = provider_problems(both)
    assert "both rules are off" in line
    assert "mode: off" in line
    for mode in ("observe", "off"):
        assert load_provider(f"mode: {mode}\n{both}").mode == mode


def test_one_rule_may_be_off(load_provider):
    assert load_provider("breaker: {consecutive_failures: 0}").breaker.consecutive_failures == 0
    assert load_provider("breaker: {failure_ratio: 0}").breaker.failure_ratio == 0


def test_one_rule_off_here_and_one_there(problems_of):
    lines = problems_of(
        "defaults: {breaker: {failure_ratio: 0}}\n"
        "providers:\n  a: {upstream: http://a, breaker: {consecutive_failures: 0}}\n  b: {upstream: http://b}\n"
    )
    assert len(lines) == 1
    assert lines[0].startswith(
        "breakers.yaml:3: providers.a.breaker.consecutive_failures: both rules"
    )


def test_open_max_below_open_for(problems_of):
    lines = problems_of(
        "defaults: {breaker: {open_max: 10s}}\nproviders: {a: {upstream: http://a}, b: {upstream: http://b}}"
    )
    assert lines == [
        "breakers.yaml:1: defaults.breaker.open_max: open_max must not be less than open_for"
    ]


def test_no_follow_up_problem(provider_problems):
    """A wrong open_max is one problem, though its default is less than this open_for."""
    assert len(provider_problems("breaker: {open_for: 10m, open_max: never}")) == 1
