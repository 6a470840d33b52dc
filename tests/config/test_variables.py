"""`${VAR}` in the values of the file."""

import pytest

from sidecar.config.variables import UnsetVariableError, expand


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("${A}", "one"),
        ("x${A}y${A}z", "xoneyonez"),
        ("${B:-two}", "two"),
        ("${A:-two}", "one"),
        ("${B:-}", ""),
        ("${EMPTY:-two}", "two"),
        ("$A $ {A} }", "$A $ {A} }"),
        ("$${A}", "${A}"),
        ("${INJECT}", "x\ny: ${A}"),
    ],
)
def test_expansion(text, expected):
    environ = {"A": "one", "EMPTY": "", "INJECT": "x\ny: ${A}"}
    assert expand(text, environ) == expected


@pytest.mark.parametrize("text", ["${B}", "${EMPTY}", "a${A}${B}"])
def test_unset(text):
    with pytest.raises(UnsetVariableError):
        expand(text, {"A": "1", "EMPTY": ""})


@pytest.mark.parametrize("text", ["${", "${1}", "${A", "${A-x}", "${A:-${B}}", "${}"])
def test_malformed(text):
    with pytest.raises(ValueError, match="starts no"):
        expand(text, {"A": "1", "B": "2"})


def test_a_provider_with_an_unset_variable_is_disabled(load_text):
    config = load_text(
        """
        providers:
          a: {upstream: "https://${NAME}.example", set_headers: {x-key: {value: "${KEY}"}}}
          b: {upstream: https://b.example}
        """
    )
    assert list(config.providers) == ["b"]
    assert config.disabled == {"a": "NAME, KEY are not set"}
    assert any("disabled" in warning and ":3:" in warning for warning in config.warnings)
    assert config.redacted()["x-disabled"] == {"a": "NAME, KEY are not set"}


def test_a_disabled_provider_is_still_checked(problems_of):
    text = 'providers: {a: {upstream: "https://${NAME}.example", tmeouts: {}}, b: {upstream: http://b}}'
    assert problems_of(text) == [
        'breakers.yaml:1: providers.a.tmeouts: unknown key; did you mean "timeouts"?'
    ]


def test_an_unset_variable_elsewhere_is_an_error(problems_of):
    text = "listen: ${WHERE}\nproviders: {a: {upstream: http://b.example}}"
    assert problems_of(text) == [
        "breakers.yaml:1: listen: WHERE is not set; give a default: ${WHERE:-…}"
    ]


def test_values_of_every_type_may_be_variables(load_text):
    config = load_text(
        """
        defaults:
          mode: ${MODE}
          timeouts: {idle: "${IDLE:-7s}", connect: "${CONNECT:-3}"}
          breaker:
            probes: ${PROBES:-3}
            fail_fast: "${FAST}"
        providers: {a: {upstream: "${A:-https://a.example}"}}
        """,
        {"MODE": "observe", "FAST": "false"},
    )
    provider = config.providers["a"]
    assert (provider.mode, provider.timeouts.idle, provider.timeouts.connect) == (
        "observe",
        7.0,
        3.0,
    )
    assert (provider.breaker.probes, provider.breaker.fail_fast) == (3, False)


def test_keys_are_not_expanded(problems_of):
    (line,) = problems_of("providers: {'${A}': {upstream: http://b}}", {"A": "a"})
    assert "name" in line


def test_no_value_of_a_variable_is_quoted(problems_of):
    text = "listen: ${SECRET}\nlog: {level: '${SECRET}'}\nproviders: {a: {upstream: '${SECRET}', timeouts: {idle: '${SECRET}'}}}"
    lines = problems_of(text, {"SECRET": "hunter2"})
    assert len(lines) == 4
    assert not any("hunter2" in line for line in lines)
