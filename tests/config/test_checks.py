"""What only shows when values stand beside each other."""

import pytest
import trustme

HEAD = "providers: {a: {upstream: https://api.example}}\n"


def write(path, text):
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def pem(authority, tmp_path):
    """A certificate and its key beside the configuration."""
    cert = authority.issue_cert("localhost")
    cert.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    cert.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path


class TestListeners:
    @pytest.mark.parametrize(
        "text",
        [
            "listen: localhost:7601",
            "listen: 127.0.0.1:7601",
            'listen: "[::1]:7601"',
            "listen: 0.0.0.0:7601",
            'listen: "[::]:7601"',
            "listen: [localhost:7600, 127.0.0.1:7600]",
            "listen: [localhost:1, localhost:1]",
            "probe: {listen: localhost:7600}",
            "probe: {listen: 0.0.0.0:7601}",
            "listen: unix:/run/a\nprobe: {listen: unix:/run/a}",
        ],
    )
    def test_clashes(self, text, problems_of):
        (line,) = problems_of(HEAD + text)
        assert "is taken; by" in line

    @pytest.mark.parametrize(
        "text",
        [
            "listen: localhost:0\nadmin: {listen: localhost:0}",
            'listen: [127.0.0.1:7600, "[::1]:7600"]',
            "listen: [localhost:7600, unix:/run/a, unix:/run/b]",
            'listen: 127.0.0.1:1\nprobe: {listen: "[::1]:1"}',
        ],
    )
    def test_no_clashes(self, text, load_text):
        load_text(HEAD + text)

    def test_the_item_of_a_list_is_named(self, problems_of):
        lines = problems_of(
            HEAD + "listen:\n  - localhost:1\n  - nowhere\n  - {address: localhost:2, port: 3}\n"
        )
        assert lines[0].startswith("breakers.yaml:4: listen[1]: an address to listen on")
        assert lines[1].startswith("breakers.yaml:5: listen[2].port: unknown key")

    @pytest.mark.parametrize(
        "text",
        [
            "[]",
            "{}",
            "{tls: null}",
            "{address: localhost:1, tls: {cert: a.pem}}",
            "[[localhost:1]]",
            "{address: }",
        ],
    )
    def test_forms_that_are_none(self, text, problems_of):
        assert problems_of(HEAD + f"listen: {text}")

    @pytest.mark.parametrize(
        "listen",
        [
            "0.0.0.0:7601",
            '"[::]:7601"',
            "10.0.0.1:1",
            "host.example:1",
            "[localhost:1, 10.0.0.1:1]",
        ],
    )
    def test_an_admin_plane_for_others_needs_a_token(
        self, listen, problems_of, load_text, tmp_path
    ):
        (line,) = problems_of(f"{HEAD}admin: {{listen: {listen}}}")
        assert line.startswith(
            "breakers.yaml:2: admin.listen: another address than loopback needs a token"
        )
        write(tmp_path / "token", "secret-token\n")
        config = load_text(f"{HEAD}admin: {{listen: {listen}, token_file: token}}")
        assert config.admin.token == "secret-token"

    @pytest.mark.parametrize(
        "listen", ["127.0.0.1:7601", '"[::1]:7601"', "unix:/run/admin", "localhost:1"]
    )
    def test_an_admin_plane_for_this_machine_needs_none(self, listen, load_text):
        assert load_text(f"{HEAD}admin: {{listen: {listen}}}").admin.token is None

    def test_a_data_plane_for_others_is_a_warning(self, load_text):
        config = load_text(HEAD + "listen: [localhost:7600, 0.0.0.0:7602]")
        assert len(config.warnings) == 1
        assert "0.0.0.0:7602 lets other machines" in config.warnings[0]

    def test_the_probe_is_meant_for_others(self, load_text):
        assert load_text(HEAD + "probe: {listen: 0.0.0.0:7602}").warnings == ()

    def test_tls(self, pem, load_text):
        config = load_text(
            HEAD + "listen: {address: localhost:7600, tls: {cert: cert.pem, key: key.pem}}"
        )
        assert config.listen[0].tls == (str(pem / "cert.pem"), str(pem / "key.pem"))

    @pytest.mark.parametrize(
        ("cert", "key"),
        [
            ("cert.pem", "none.pem"),
            ("ca.pem", "key.pem"),
            ("key.pem", "cert.pem"),
            ("text", "text"),
        ],
    )
    def test_tls_that_does_not_load(self, cert, key, pem, problems_of):
        write(pem / "text", "no certificate")
        (line,) = problems_of(
            HEAD + f"listen: {{address: localhost:7600, tls: {{cert: {cert}, key: {key}}}}}"
        )
        assert "listen.tls: certificate and key cannot be used" in line


class TestToken:
    @pytest.mark.parametrize(
        "content", ["", "\n", "two words", "two\nlines", "töken", "x" * 70_000, "a\tb"]
    )
    def test_no_token(self, content, problems_of, tmp_path):
        write(tmp_path / "token", content)
        (line,) = problems_of(HEAD + "admin: {token_file: token}")
        assert line.startswith("breakers.yaml:2: admin.token_file: ")
        assert not content.strip() or content.strip() not in line

    def test_no_file(self, problems_of):
        assert "cannot be read: no such file" in problems_of(HEAD + "admin: {token_file: token}")[0]
        assert "cannot be read" in problems_of(HEAD + "admin: {token_file: .}")[0]

    def test_it_is_shown_nowhere(self, load_text, tmp_path):
        write(tmp_path / "token", "hunter2\n")
        config = load_text(HEAD + "admin: {token_file: token}")
        assert "hunter2" not in repr(config) + str(config.redacted())


class TestNames:
    @pytest.mark.parametrize("name", ["a", "0", "a-b", "a--b", "a-", "x" * 63])
    def test_names(self, name, load_text):
        assert list(load_text(f"providers: {{{name}: {{upstream: http://a}}}}").providers) == [name]

    @pytest.mark.parametrize(
        "name", ["A", "-a", "a_b", "a.b", "a/b", "''", "a b", "ä", "x" * 64, "~", "a%2f", "'a\\n'"]
    )
    def test_no_names(self, name, problems_of):
        (line,) = problems_of(f"providers: {{{name}: {{upstream: http://a}}}}")
        assert "a name matches" in line


class TestTls:
    def test_it_loads(self, pem, load_provider):
        provider = load_provider(
            "tls: {ca: ca.pem, cert: cert.pem, key: key.pem, server_name: llm.example}"
        )
        assert provider.tls.ca == str(pem / "ca.pem")
        assert provider.tls.server_name == "llm.example"

    @pytest.mark.parametrize(
        ("text", "key"),
        [
            ("{ca: none.pem}", "ca"),
            ("{ca: key.pem}", "ca"),
            ("{cert: none.pem}", "cert"),
            ("{cert: cert.pem}", "cert"),
            ("{cert: ca.pem, key: key.pem}", "cert"),
            ("{key: key.pem}", "key"),
            ("{server_name: 'a b'}", "server_name"),
            ("{server_name: 'a:1'}", "server_name"),
            ("{ca: ''}", "ca"),
        ],
    )
    def test_it_does_not_load(self, text, key, pem, provider_problems):
        (line,) = provider_problems(f"tls: {text}")
        assert f"providers.a.tls.{key}: " in line

    def test_a_key_with_a_passphrase_asks_nobody(self, tmp_path, provider_problems):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"pass"),
        )
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "cert.pem")
        (tmp_path / "key.pem").write_bytes(key)
        (line,) = provider_problems("tls: {cert: cert.pem, key: key.pem}")
        assert "passphrase" in line

    @pytest.mark.parametrize("upstream", ["http://a.example", "unix:/run/a"])
    def test_only_for_https(self, upstream, problems_of):
        (line,) = problems_of(
            f"providers: {{a: {{upstream: '{upstream}', tls: {{server_name: b}}}}}}"
        )
        assert "has no effect" in line


class TestProxy:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("env", "env"),
            ("null", None),
            ("", None),
            ("http://p.example:3128", "http://p.example:3128"),
        ],
    )
    def test_proxies(self, text, value, load_provider):
        assert load_provider(f"proxy: {text}").proxy == value

    @pytest.mark.parametrize(
        "text", ["none", "off", "p.example", "socks5://p", "[]", "true", "http://p/x", "''"]
    )
    def test_no_proxies(self, text, provider_problems):
        assert "providers.a.proxy" in provider_problems(f"proxy: {text}")[0]

    def test_a_loopback_upstream_has_no_proxy(self, load_text):
        config = load_text(
            "providers: {a: {upstream: http://localhost:1, proxy: http://p.example:3128}}"
        )
        assert "has no effect" in config.warnings[0]

    def test_user_info_is_not_shown(self, load_provider, load_text):
        text = "providers: {a: {upstream: https://x.example, proxy: http://user:hunter2@p.example:3128}}"
        config = load_text(text)
        assert config.providers["a"].proxy == "http://user:hunter2@p.example:3128"
        assert config.redacted()["providers"]["a"]["proxy"] == "http://p.example:3128"
        assert "hunter2" not in repr(config)


class TestSetHeaders:
    def test_from_a_file_and_from_a_value(self, tmp_path, load_provider):
        write(tmp_path / "key", "sk-1\r\n")
        provider = load_provider(
            'set_headers: {Authorization: {file: key, prefix: "Bearer "}, x-api-key: {value: "${KEY}"}}',
            {"KEY": "k2"},
        )
        assert provider.header_values == {"authorization": "Bearer sk-1", "x-api-key": "k2"}
        assert "sk-1" not in repr(provider)
        assert "k2" not in repr(provider)
        assert "k2" not in repr(provider.set_headers)

    @pytest.mark.parametrize(
        "text",
        [
            "{a: }",
            "{a: {}}",
            "{a: {prefix: x}}",
            "{a: {file: key, value: x}}",
            "{a: {file: none}}",
            "{a: {file: .}}",
            "{a: {file: two}}",
            "{a: {file: blank}}",
            "{a: {value: ''}}",
            '{a: {value: "x\\ny"}}',
            "{a: {value: 日}}",
            "{'a b': {value: x}}",
            "{'': {value: x}}",
            "{host: {value: x}}",
            "{Content-Length: {value: 1}}",
            "{transfer-encoding: {value: x}}",
            "{x-sidecar-provider: {value: x}}",
            "{a: {value: x}, A: {value: y}}",
            "{a: text}",
            "[a]",
            '{a: {value: x, prefix: "\\r\\n"}}',
            "{a: {valu: x}}",
        ],
    )
    def test_what_cannot_be_set(self, text, tmp_path, provider_problems):
        write(tmp_path / "key", "x")
        write(tmp_path / "two", "x\ny: z\n")
        write(tmp_path / "blank", " \n")
        lines = provider_problems(f"set_headers: {text}")
        assert all("providers.a.set_headers" in line for line in lines)

    def test_no_secret_is_quoted(self, provider_problems):
        lines = provider_problems("set_headers: {a: {value: 'hunter2日'}, host: {value: hunter2}}")
        assert not any("hunter2" in line for line in lines)

    @pytest.mark.parametrize("text", ["{x-api-key: hunter2}", "hunter2", "[hunter2]"])
    def test_a_secret_in_the_place_of_a_section_is_not_quoted(self, provider_problems, text):
        (line,) = provider_problems(f"set_headers: {text}")
        assert "a mapping is needed" in line
        assert "hunter2" not in line

    def test_each_provider_has_its_own(self, load_text):
        """F153: names that begin alike share nothing."""
        config = load_text(
            """
            providers:
              openai: {upstream: https://api.openai.com, set_headers: {authorization: {value: one}}}
              openai-eu: {upstream: https://api.openai.com.evil.test, set_headers: {}}
              open: {upstream: https://evil.test/api.openai.com}
              openai-2: {upstream: https://API.OPENAI.COM., set_headers: {authorization: {value: two}}}
            """
        )
        values = {name: dict(one.header_values) for name, one in config.providers.items()}
        assert values == {
            "openai": {"authorization": "one"},
            "openai-eu": {},
            "open": {},
            "openai-2": {"authorization": "two"},
        }


class TestEnv:
    @pytest.mark.parametrize("path", ["''", "/v1", "/api/v1", "", "/a-b_c.d~/e%20f"])
    def test_paths(self, path, load_provider):
        assert load_provider(f"env: {{A_BASE_URL: {path}}}").env["A_BASE_URL"] == path.strip("'")

    @pytest.mark.parametrize(
        "text",
        [
            "{A: v1}",
            "{A: http://x}",
            "{A: '/a b'}",
            "{A: '/a?b'}",
            "{A: [x]}",
            "{A-B: /v1}",
            "{1A: /v1}",
            "{'': /}",
            "[A]",
            "A",
        ],
    )
    def test_no_paths(self, text, provider_problems):
        assert provider_problems(f"env: {text}")

    @pytest.mark.parametrize(
        "name",
        [
            "BREAKER_SIDECAR_ADMIN",
            "NO_PROXY",
            "no_proxy",
            "HTTP_PROXY",
            "PATH",
            "LD_PRELOAD",
            "PYTHONPATH",
            "HOME",
        ],
    )
    def test_variables_with_another_meaning(self, name, provider_problems):
        assert "another meaning" in provider_problems(f"env: {{{name}: /v1}}")[0]

    def test_the_bad_name_of_a_variable_is_told(self, provider_problems):
        (line,) = provider_problems("env: {OPENAI BASE: /v1}")
        assert "env.OPENAI BASE: not the name of a variable" in line

    def test_two_providers_cannot_share_a_variable(self, problems_of):
        text = """
            providers:
              a: {upstream: http://a, env: {X_URL: ""}}
              b: {upstream: http://b, env: {X_URL: ""}}
            """
        (line,) = problems_of(text)
        assert 'providers.b.env.X_URL: the provider "a" has this variable too' in line

    def test_a_path_that_stands_twice(self, load_text):
        config = load_text("providers: {a: {upstream: https://a.example/v1/, env: {A_URL: /v1}}}")
        assert "carry it twice" in config.warnings[0]


class TestLoops:
    @pytest.mark.parametrize(
        "upstream",
        [
            "http://localhost:7600",
            "http://127.0.0.1:7601/x",
            "http://[::1]:7600",
            "https://LOCALHOST:7600",
            "http://a.localhost:7600",
        ],
    )
    def test_the_daemon_is_not_its_own_upstream(self, upstream, problems_of):
        (line,) = problems_of(f"providers: {{a: {{upstream: '{upstream}'}}}}")
        assert "this daemon itself" in line

    @pytest.mark.parametrize(
        "upstream", ["http://localhost:7602", "http://other.example:7600", "unix:/run/7600"]
    )
    def test_others_are(self, upstream, load_text):
        load_text(f"providers: {{a: {{upstream: '{upstream}'}}}}")


class TestDialect:
    @pytest.mark.parametrize("name", ["auto", "generic", "openai", "anthropic", "sidecar"])
    def test_names(self, name, load_provider):
        assert load_provider(f"dialect: {name}").dialect == name

    def test_no_name(self, provider_problems):
        assert provider_problems("dialect: opanai") == [
            'breakers.yaml:4: providers.a.dialect: no such dialect; did you mean "openai"?'
        ]


def test_a_wrong_upstream_hides_no_other_problem(problems_of):
    lines = problems_of(
        """
        providers:
          a:
            upstream: nowhere
            breaker: {open_for: 10m}
            set_headers: {a: {}}
        """
    )
    assert len(lines) == 3


@pytest.mark.parametrize("text", ["- a", "a: b", "[x]", "{y: z}"])
def test_a_scalar_is_needed(text, provider_problems):
    for key in ("mode", "dialect", "proxy"):
        assert provider_problems(f"{key}:\n  {text}")


@pytest.mark.parametrize(
    "text", ["a.example", "[http://a]", "[a:1]", "['*']", "[[a]]", "{a: b}", "[1.2.3]"]
)
def test_allowed_hosts_that_are_none(text, problems_of):
    assert "allowed_hosts" in problems_of(HEAD + f"allowed_hosts: {text}")[0]


def test_allowed_hosts(load_text):
    config = load_text(HEAD + "allowed_hosts: [Build.Example., agent-host, build.example]")
    assert config.allowed_hosts == ("build.example", "agent-host")


def test_nothing_in_a_file_steers_the_terminal(problems_of):
    lines = problems_of(f'{HEAD}listen: "\\x9b31m"\n"\\u202e": 1\nlog: {{level: "\\x85"}}')
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
