"""Addresses are read by exact rules: who gets the keys depends on them (F153)."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config.addresses import (
    AddressError,
    Listen,
    is_loopback,
    parse_host_name,
    parse_listen,
    parse_proxy,
    parse_upstream,
    upstream_port,
    without_user_info,
)


@pytest.mark.parametrize(
    ("text", "hosts", "port", "loopback"),
    [
        ("localhost:7600", ("127.0.0.1", "::1"), 7600, True),
        ("LOCALHOST:7600", ("127.0.0.1", "::1"), 7600, True),
        ("127.0.0.1:0", ("127.0.0.1",), 0, True),
        ("127.8.8.8:1", ("127.8.8.8",), 1, True),
        ("[::1]:7600", ("::1",), 7600, True),
        ("[::ffff:127.0.0.1]:1", ("::ffff:127.0.0.1",), 1, True),
        ("0.0.0.0:7600", ("0.0.0.0",), 7600, False),
        ("[::]:7600", ("::",), 7600, False),
        ("10.0.0.1:65535", ("10.0.0.1",), 65535, False),
        ("localhost.evil.example:1", ("localhost.evil.example",), 1, False),
        ("host-1:7600", ("host-1",), 7600, False),
    ],
)
def test_listen(text, hosts, port, loopback):
    listen = parse_listen(text)
    assert (listen.hosts, listen.port, listen.loopback) == (hosts, port, loopback)
    assert parse_listen(str(listen)) == listen


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("https://[::FFFF:10.0.0.1]:8443", "https://[::ffff:10.0.0.1]:8443"),
        ("https://[0:0:0:0:0:ffff:a00:1]:8443", "https://[::ffff:10.0.0.1]:8443"),
        ("https://[2001:DB8:0::1]", "https://[2001:db8::1]"),
    ],
)
def test_an_address_has_one_form_on_every_python(text, plain):
    assert parse_upstream(text) == plain


def test_unix_socket():
    listen = parse_listen("unix:/run/a.sock")
    assert listen == Listen(kind="unix", path="/run/a.sock")
    assert listen.loopback
    assert str(listen) == "unix:/run/a.sock"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7600",
        ":7600",
        "localhost",
        "localhost:",
        "localhost:x",
        "localhost:65536",
        "localhost:-1",
        "localhost:7600/",
        "http://localhost:7600",
        "a b:1",
        "::1:7600",
        "[::1]",
        "[::1",
        "[zz]:1",
        "*:7600",
        "localhost:٧",
        "unix:",
        "unix:relative",
        "unix:/" + "a" * 200,
        "999.1.1.1:1",
        "0x7f000001:1",
        "a..b:1",
        "user@localhost:1",
        "localhost:7600,localhost:7601",
        "-a:1",
    ],
)
def test_no_listen(text):
    with pytest.raises(AddressError):
        parse_listen(text)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("https://api.example", "https://api.example"),
        ("https://api.example/", "https://api.example"),
        ("HTTPS://API.Example/V1/", "https://api.example/V1"),
        ("http://localhost:11434", "http://localhost:11434"),
        ("http://[::1]:80/a", "http://[::1]:80/a"),
        ("https://api.example:8443/openai/v1", "https://api.example:8443/openai/v1"),
        ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
        ("https://api.example.", "https://api.example."),
        ("http://10.0.0.1", "http://10.0.0.1"),
        ("http://under_score.example/a%20b", "http://under_score.example/a%20b"),
        ("unix:/run/upstream.sock", "unix:/run/upstream.sock"),
    ],
)
def test_upstream(text, plain):
    assert parse_upstream(text) == plain
    assert parse_upstream(plain) == plain


@pytest.mark.parametrize(
    "text",
    [
        "",
        "api.example",
        "//api.example",
        "ftp://api.example",
        "https://",
        "https:///path",
        "https:api.example",
        "https://user@api.example",
        "https://user:pass@api.example",
        "https://api.example@evil.example",
        "https://api.example?x=1",
        "https://api.example/?",
        "https://api.example#",
        "https://api.example/a#b",
        "https://api.example/a/../b",
        "https://api.example/./b",
        "https://api.example/%2e%2e/b",
        "https://api.example//b",
        "https://api.example/a b",
        "https://api.example/\\evil",
        "https:\\\\api.example",
        "https://api.exa\nmple",
        "https://api.example:0",
        "https://api.example:",
        "https://api.example:99999",
        "https://bücher.example",
        "https://api.example%00",
        "https://api.example/%zz",
        "https://[::1",
        "https://1.2.3",
        "https://0x7f.1",
        "https://[fe80::1%25eth0]",
        "https://.example",
        "https://a..example",
        "https://" + "a" * 300,
        "unix:run/x.sock",
        "javascript:alert(1)",
        "https://api.example/é",
    ],
)
def test_no_upstream(text):
    with pytest.raises(AddressError) as caught:
        parse_upstream(text)
    assert "pass" not in str(caught.value)


@given(st.text())
def test_any_text_is_an_upstream_or_an_error(text):
    for start in ("", "https://", "unix:", "http://["):
        with contextlib.suppress(AddressError):
            assert parse_upstream(parse_upstream(start + text)) == parse_upstream(start + text)


@given(st.text())
def test_any_text_is_a_listener_or_an_error(text):
    for end in ("", ":1", "]:1"):
        with contextlib.suppress(AddressError):
            parse_listen(text + end)


@pytest.mark.parametrize(
    ("upstream", "target"),
    [
        ("https://api.openai.com", ("api.openai.com", 443)),
        ("http://localhost:11434", ("localhost", 11434)),
        ("http://[::1]/x", ("::1", 80)),
        ("unix:/run/x", None),
        # F153: near-misses are other hosts.
        ("https://api.openai.com.evil.test", ("api.openai.com.evil.test", 443)),
        ("https://evil.test/api.openai.com", ("evil.test", 443)),
    ],
)
def test_target(upstream, target):
    assert upstream_port(parse_upstream(upstream)) == target


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("Localhost.", True),
        ("a.localhost", True),
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost.example", False),
        ("notlocalhost", False),
        ("0.0.0.0", False),
        ("127.0.0.1.example", False),
    ],
)
def test_loopback(host, expected):
    assert is_loopback(host) is expected


def test_proxy():
    assert parse_proxy("http://user:pw@proxy.example:3128/") == "http://user:pw@proxy.example:3128"
    assert without_user_info("http://user:pw@proxy.example:3128") == "http://proxy.example:3128"
    for text in (
        "proxy.example:3128",
        "socks5://proxy.example",
        "http://proxy.example/path",
        "http://p?x",
        "",
    ):
        with pytest.raises(AddressError):
            parse_proxy(text)


@pytest.mark.parametrize("text", ["", "a:1", "http://a", "*", "*.example", "a b", "é.example"])
def test_no_host_name(text):
    with pytest.raises(AddressError):
        parse_host_name(text)


def test_host_name():
    assert parse_host_name("Build.Example.") == "build.example"
