"""The effective configuration: shown without secrets, loadable again, named by its hash."""

import msgspec
import pytest

from sidecar.config import default_path, load

FULL = """
listen: [localhost:1, unix:/run/a, "[::1]:2"]
allowed_hosts: [a.example]
admin: {listen: localhost:3, token_file: token, mutations: false}
probe: {listen: 0.0.0.0:4}
log: {level: debug, format: json}
drain: {delay: 250ms, timeout: 1.5s}
defaults:
  timeouts: {total: 90s, idle: 0.25}
  limits: {request_body: 1000, classify_body: 1MiB}
  rules: [{when: {status: [5xx, 429], body.a: {contains: "$${x}"}, header.b: null, body.c: ["007", 7, true]}, class: transient}]
providers:
  a:
    upstream: https://a.example:8443/x
    mode: off
    dialect: generic
    env: {A_URL: /v1}
    proxy: null
    set_headers: {x-key: {value: hunter2, prefix: "Key "}, y: {file: token}}
  b: {upstream: unix:/run/b, proxy: http://u:hunter2@p.example:1, breaker: {jitter: 0.333, failure_ratio: 1}}
  c: {upstream: "https://${C}.example"}
"""


@pytest.fixture
def full(load_text, tmp_path):
    (tmp_path / "token").write_text("hunter2\n")
    return load_text(FULL)


def test_round_trip(full, load_text):
    shown = full.redacted()
    again = load_text(msgspec.yaml.encode(shown).decode())
    del shown["x-disabled"]
    assert again.redacted() == shown
    assert again.providers["a"].timeouts == full.providers["a"].timeouts
    assert again.providers["a"].rules == full.providers["a"].rules
    assert again.listen == full.listen


def test_round_trip_of_the_shipped_file(load_text):
    config = load(default_path(), environ={"AZURE_OPENAI_RESOURCE": "x"})
    again = load_text(msgspec.yaml.encode(config.redacted()).decode())
    assert again.redacted() == config.redacted()
    assert again.hash == config.hash
    assert again.providers == config.providers


def test_no_secret(full):
    assert full.admin.token == "hunter2"
    assert full.providers["a"].header_values == {"x-key": "Key hunter2", "y": "hunter2"}
    for shown in (
        msgspec.json.encode(full.redacted()).decode(),
        repr(full),
        str(full),
        f"{full.providers['a']!r}",
    ):
        assert "hunter2" not in shown


def test_it_is_plain(full):
    assert msgspec.json.decode(msgspec.json.encode(full.redacted())) == full.redacted()
    assert full.redacted()["providers"]["a"]["set_headers"]["x-key"] == {
        "file": None,
        "value": "[redacted]",
        "prefix": "Key ",
    }
    assert full.redacted()["drain"] == {"delay": "250ms", "timeout": "1500ms"}


def test_hash(load_text):
    head = "providers: {a: {upstream: https://a.example}}"
    one = load_text(head)
    assert (
        one.hash
        == load_text(
            "# other words\nlog: {level: 'info'}\nproviders:\n  a:\n    upstream: https://A.example/\n"
        ).hash
    )
    assert one.hash != load_text(head + "\ndefaults: {timeouts: {idle: 299s}}").hash
    assert one.hash == load_text(head + "\ndefaults: {timeouts: {idle: 5m}}").hash
    assert len(one.hash) == 16
    secret = "providers: {{a: {{upstream: https://a.example, set_headers: {{x: {{value: {}}}}}}}}}"
    assert load_text(secret.format("one")).hash == load_text(secret.format("two")).hash


def test_a_changed_secret_is_a_changed_provider(load_text):
    secret = "providers: {{a: {{upstream: https://a.example, set_headers: {{x: {{value: {}}}}}}}}}"
    assert (
        load_text(secret.format("one")).providers["a"]
        != load_text(secret.format("two")).providers["a"]
    )
