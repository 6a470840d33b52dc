"""Every default is the one of the contract, and leaving things out leaves nothing off (F127)."""

import pytest

from sidecar.config import Listen

MINIMAL = "providers: {a: {upstream: https://api.example}}"


def test_top_level(load_text):
    config = load_text(MINIMAL)
    assert config.listen == (Listen(host="localhost", port=7600),)
    assert config.allowed_hosts == ()
    assert config.admin.listen == (Listen(host="localhost", port=7601),)
    assert (config.admin.token_file, config.admin.token, config.admin.mutations) == (
        None,
        None,
        True,
    )
    assert config.probe_listen == ()
    assert (config.log.level, config.log.format) == ("info", "auto")
    assert (config.drain.delay, config.drain.timeout) == (0.0, 20.0)
    assert config.state_file is None
    assert config.disabled == {}
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("mode", "enforce"),
        ("scope", "model"),
        ("on_reclassified", "correct"),
        ("rules", ()),
        ("timeouts.connect", 5),
        ("timeouts.first_byte", 590),
        ("timeouts.first_content", 590),
        ("timeouts.idle", 300),
        ("timeouts.total", None),
        ("timeouts.abandoned", 60),
        ("timeouts.hold", 1),
        ("timeouts.keep_alive", 4),
        ("timeouts.client", 300),
        ("breaker.consecutive_failures", 5),
        ("breaker.window", 60),
        ("breaker.minimum_calls", 10),
        ("breaker.failure_ratio", 0.5),
        ("breaker.repeat_window", 30),
        ("breaker.open_for", 30),
        ("breaker.open_max", 300),
        ("breaker.jitter", 0.2),
        ("breaker.probes", 1),
        ("breaker.successes", 2),
        ("breaker.fail_fast", True),
        ("shedding.sustained.count", 5),
        ("shedding.sustained.window", 30),
        ("shedding.sustained.ratio", 0.5),
        ("shedding.max_wait", 2),
        ("shedding.max_queue", 16),
        ("shedding.min_rate", 1),
        ("shedding.preempt", False),
        ("shedding.quota.mode", "gate"),
        ("shedding.quota.recheck", 60),
        ("shedding.open_after", 600),
        ("shedding.retry_after_max", 3600),
        ("shedding.sdk_wait_max", 60),
        ("retry_after_max", 3600),
        ("sdk_wait_max", 60),
        ("limits.in_flight", 1024),
        ("limits.request_body", None),
        ("limits.classify_body", 262144),
        ("limits.model_scan", 1048576),
        ("retry.attempts", 0),
        ("retry.budget", 0.1),
        ("retry.methods", ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")),
        ("retry.require_idempotency_key", True),
        ("dialect", "auto"),
        ("proxy", "env"),
        ("tls.ca", None),
        ("tls.cert", None),
        ("tls.key", None),
        ("tls.server_name", None),
    ],
)
def test_of_a_provider(path, value, load_text):
    found = load_text(MINIMAL).providers["a"]
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value
    assert isinstance(found, bool) == isinstance(value, bool)


def test_durations_are_floats_and_sizes_integers(load_text):
    provider = load_text(
        MINIMAL + "\ndefaults: {timeouts: {idle: 5}, limits: {request_body: 100}}"
    ).providers["a"]
    assert type(provider.timeouts.idle) is float
    assert type(provider.limits.request_body) is int


@pytest.mark.parametrize(
    "line",
    [
        "listen:",
        "allowed_hosts:",
        "admin:",
        "admin: {listen: , token_file: , mutations: }",
        "probe:",
        "log:",
        "log: {level: ~, format: null}",
        "drain:",
        "state_file:",
        "defaults:",
        "defaults: {timeouts: , breaker: , limits: , rules: }",
        "defaults: {shedding: {retry_after_max: }}",
        "defaults: {breaker: {probes: null, window: ~}}",
    ],
)
def test_null_is_the_default(line, load_text):
    assert load_text(f"{MINIMAL}\n{line}").redacted() == load_text(MINIMAL).redacted()


@pytest.mark.parametrize(
    "line",
    [
        "breaker:",
        "timeouts: {idle: }",
        "mode:",
        "dialect: null",
        "env:",
        "tls:",
        "set_headers:",
        "rules: ~",
    ],
)
def test_null_under_a_provider(line, load_provider, load_text):
    assert load_provider(line) == load_text(MINIMAL).providers["a"]


@pytest.mark.parametrize(
    "text", ["providers:", "providers: {}", "listen: localhost:1", "providers: ~"]
)
def test_no_provider_is_an_error(text, problems_of):
    assert "at least one provider" in problems_of(text)[0]


def test_a_provider_of_nothing(problems_of):
    assert problems_of("providers: {a: }") == ["breakers.yaml:1: providers.a.upstream: is missing"]


def test_a_providers_own_keys_lie_over_the_defaults(load_text):
    config = load_text(
        """
        defaults:
          mode: observe
          timeouts: {idle: 10s, connect: 1s}
          breaker: {probes: 3}
          rules: [{when: {status: 418}, class: permanent}]
        providers:
          a: {upstream: http://a.example, timeouts: {idle: 20s}, breaker: {successes: 4}, rules: []}
          b: {upstream: http://b.example, mode: enforce}
        """
    )
    a, b = config.providers["a"], config.providers["b"]
    assert (a.mode, a.timeouts.idle, a.timeouts.connect) == ("observe", 20.0, 1.0)
    assert (a.breaker.probes, a.breaker.successes, a.rules) == (3, 4, ())
    assert (b.mode, b.timeouts.idle, b.breaker.successes, len(b.rules)) == ("enforce", 10.0, 2, 1)


def test_it_is_immutable(load_text):
    config = load_text(MINIMAL)
    with pytest.raises(AttributeError):
        config.path = "x"
    with pytest.raises(AttributeError):
        config.providers["a"].timeouts.idle = 1
    with pytest.raises(TypeError):
        config.providers["b"] = None
    with pytest.raises(TypeError):
        config.providers["a"].env["X"] = ""
