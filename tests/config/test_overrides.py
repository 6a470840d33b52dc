"""The environment stands above the file, and flags above both."""

import importlib
from pathlib import Path

import pytest

from sidecar.config import ConfigError, Overrides, default_path, find, load

HEAD = "providers: {a: {upstream: https://api.example}, b: {upstream: 'https://${B}.example', mode: off}}\n"
FILE = (
    HEAD + "listen: localhost:1\nadmin: {listen: localhost:2}\nlog: {level: error, format: text}\n"
)


def test_environment(load_text):
    config = load_text(
        FILE,
        {
            "BREAKER_SIDECAR_LISTEN": "localhost:11, unix:/run/a",
            "BREAKER_SIDECAR_ADMIN": "127.0.0.1:12",
            "BREAKER_SIDECAR_PROBE": "0.0.0.0:13",
            "BREAKER_SIDECAR_ALLOWED_HOSTS": "one.example,two.example",
            "BREAKER_SIDECAR_LOG_LEVEL": "debug",
            "BREAKER_SIDECAR_LOG_FORMAT": "json",
        },
    )
    assert [str(one) for one in config.listen] == ["localhost:11", "unix:/run/a"]
    assert [str(one) for one in config.admin.listen] == ["127.0.0.1:12"]
    assert [str(one) for one in config.probe_listen] == ["0.0.0.0:13"]
    assert config.allowed_hosts == ("one.example", "two.example")
    assert (config.log.level, config.log.format) == ("debug", "json")


def test_flags_stand_above(load_text):
    config = load_text(
        FILE,
        {"BREAKER_SIDECAR_LISTEN": "localhost:11", "BREAKER_SIDECAR_LOG_LEVEL": "debug"},
        overrides=Overrides(
            listen="localhost:21", admin="localhost:22", log_level="warning", log_format="auto"
        ),
    )
    assert (str(config.listen[0]), str(config.admin.listen[0])) == ("localhost:21", "localhost:22")
    assert (config.log.level, config.log.format) == ("warning", "auto")


def test_an_empty_variable_is_unset(load_text):
    assert str(load_text(FILE, {"BREAKER_SIDECAR_LISTEN": ""}).listen[0]) == "localhost:1"


def test_an_empty_flag_is_wrong(problems_of):
    assert problems_of(FILE, overrides=Overrides(listen=""))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LISTEN", "7600"),
        ("LISTEN", ","),
        ("ADMIN", "0.0.0.0:7601"),
        ("PROBE", "localhost:1"),
        ("ALLOWED_HOSTS", "http://x"),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "xml"),
    ],
)
def test_wrong_values(name, value, problems_of):
    assert problems_of(FILE, {f"BREAKER_SIDECAR_{name}": value})


def test_a_wrong_value_names_its_variable(problems_of):
    lines = problems_of(FILE, {"BREAKER_SIDECAR_LOG_LEVEL": "warn"})
    (line,) = lines
    assert line.startswith("BREAKER_SIDECAR_LOG_LEVEL: must be one of debug, error, info, warning")
    assert line.endswith('is warn; did you mean "warning"?')


def test_the_admin_address_may_be_a_url(load_text):
    """Inside `run` the variable holds what clients use."""
    config = load_text(FILE, {"BREAKER_SIDECAR_ADMIN": "http://127.0.0.1:43211/"})
    assert str(config.admin.listen[0]) == "127.0.0.1:43211"


def test_unknown_variables_are_warnings(load_text):
    config = load_text(
        FILE,
        {
            "BREAKER_SIDECAR_LISTN": "x",
            "BREAKER_SIDECAR_PORT": "tcp://10.0.0.1:7600",
            "BREAKER_SIDECAR_PORT_7600_TCP_ADDR": "10.0.0.1",
            "BREAKER_SIDECAR_SERVICE_HOST": "10.0.0.1",
            "BREAKER_SIDECAR_SERVICE_PORT_ADMIN": "7601",
            "BREAKER_SIDECAR_CONFIG": "elsewhere",
            "BREAKER_SIDECAR_TOKEN": "of the agent's own process",
            "BREAKER_SIDECAR_TOKEN_FILE": "likewise",
            "B": "b",
        },
    )
    assert config.warnings == (
        'BREAKER_SIDECAR_LISTN: has no meaning; did you mean "BREAKER_SIDECAR_LISTEN"?',
    )


def test_tls_is_not_lost_in_silence(load_text, tmp_path):
    import trustme

    cert = trustme.CA().issue_cert("localhost")
    cert.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    text = HEAD + "listen: {address: localhost:1, tls: {cert: both.pem, key: both.pem}}"
    config = load_text(text, {"BREAKER_SIDECAR_LISTEN": "localhost:2", "B": "b"})
    assert "TLS" in config.warnings[0]


def test_observe(load_text):
    config = load_text(FILE, {"B": "b"}, overrides=Overrides(observe=True))
    assert {name: one.mode for name, one in config.providers.items()} == {
        "a": "observe",
        "b": "off",
    }


def test_another_upstream(load_text):
    overrides = Overrides(upstreams={"a": "http://proxy.example/x/", "b": "http://localhost:9"})
    config = load_text(FILE, overrides=overrides)
    assert config.providers["a"].upstream == "http://proxy.example/x"
    assert config.providers["b"].upstream == "http://localhost:9"
    assert config.disabled == {}


@pytest.mark.parametrize(
    ("upstream", "dialect"),
    [
        ("http://gateway.example:4000", "auto"),
        ("https://api.openai.com/elsewhere", "openai"),
        ("https://API.openai.com:8443", "openai"),
    ],
)
def test_another_host_need_not_word_its_errors_alike(load_text, upstream, dialect):
    text = "providers: {a: {upstream: https://api.openai.com, dialect: openai}}"
    config = load_text(text, overrides=Overrides(upstreams={"a": upstream}))
    assert config.providers["a"].dialect == dialect


@pytest.mark.parametrize(
    "upstreams", [{"c": "http://x"}, {"a": "nowhere"}, {"a": "http://user:hunter2@x"}]
)
def test_another_upstream_that_is_none(upstreams, problems_of):
    lines = problems_of(FILE, overrides=Overrides(upstreams=upstreams))
    assert lines[0].startswith("--upstream: ")
    assert "hunter2" not in lines[0]


class TestSearch:
    @pytest.fixture(autouse=True)
    def _system(self, tmp_path, monkeypatch):
        module = importlib.import_module("sidecar.config.load")
        monkeypatch.setattr(module, "SYSTEM_PATH", tmp_path / "etc" / "breakers.yaml")
        monkeypatch.chdir(tmp_path)
        (tmp_path / "breakers.yaml").write_text(HEAD)

    def test_a_given_path_comes_first(self):
        assert find(Path("x"), {"BREAKER_SIDECAR_CONFIG": "y"}) == Path("x")

    def test_then_the_variable(self):
        assert find(None, {"BREAKER_SIDECAR_CONFIG": "y"}) == Path("y")

    def test_then_the_file_of_the_system(self, tmp_path):
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc" / "breakers.yaml").touch()
        assert find(None, {}) == tmp_path / "etc" / "breakers.yaml"

    def test_then_the_default_and_never_the_current_folder(self, tmp_path):
        found = find(None, {"BREAKER_SIDECAR_CONFIG": ""})
        assert found == default_path()
        assert found.parent != tmp_path

    def test_a_variable_that_leads_nowhere_is_an_error(self):
        with pytest.raises(ConfigError, match="no such file"):
            load(environ={"BREAKER_SIDECAR_CONFIG": "nowhere.yaml"})

    def test_a_file_of_the_system_that_cannot_be_reached_is_not_passed_over(
        self, monkeypatch, tmp_path
    ):
        def refuse(*_, **__):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "stat", refuse)
        assert find(None, {}) == tmp_path / "etc" / "breakers.yaml"
