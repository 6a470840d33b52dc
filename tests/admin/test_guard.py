"""Host and Origin: what a rebound or foreign page sends is refused, our own names pass (F147)."""

import pytest

from sidecar.admin.guard import bearer_matches, host_allowed, origin_allowed, parse_authority

PASS = [
    "localhost",
    "localhost.",
    "LOCALHOST:7600",
    "localhost:9999",
    "localhost:",
    " localhost:7600 ",
    "agent.localhost:7600",
    "127.0.0.1",
    "127.0.0.1:7600",
    "127.0.0.1.:7600",
    "127.0.0.11:7600",
    "10.1.2.3:7600",
    "0.0.0.0:7600",
    "[::1]",
    "[::1]:7600",
    "[::ffff:127.0.0.1]",
    "[::FFFF:127.0.0.1]:7600",
    "[fe80::1%25eth0]:7600",
    "[2001:db8::1]:80",
]
REFUSE = [
    None,
    "",
    " ",
    ".",
    "evil.test",
    "evil.test:7600",
    "127.0.0.1.evil.test",
    "127.evil.test",
    "localhost.evil.test",
    "notlocalhost",
    "evil-localhost",
    "localhost..",
    ".localhost",
    "localhost:7600:1",
    "localhost:+1",
    "localhost:65536",
    "localhost:٣",
    "localhost@evil.test",
    "evil.test#localhost",
    "evil.test/localhost",
    "evil.test\\.localhost",
    "evil.test .localhost",
    "user@localhost",
    "localhost, evil.test",
    "127.1",
    "0x7f000001",
    "2130706433",
    "127.0.0.1%00.evil.test",
    "0127.0.0.1",
    "::1",
    "[::1",
    "[::1]evil.test",
    "[::1].evil.test",
    "[evil.test]",
    "[localhost]",
    "[127.0.0.1]",
    "[]",
    "ｌocalhost",
    "localhost\x00",
    "a" * 400,
    "x." * 150 + "localhost",
]


@pytest.mark.parametrize("host", PASS)
def test_f147_loopback_names_and_addresses_pass(host: str) -> None:
    assert host_allowed(host)


@pytest.mark.parametrize("host", REFUSE)
def test_f147_everything_else_is_refused(host: str | None) -> None:
    assert not host_allowed(host)


@pytest.mark.parametrize(
    "host", ["sidecar.example", "SIDECAR.example:7600", "sidecar.example.", "other.svc:1"]
)
def test_configured_names_pass(host: str) -> None:
    assert host_allowed(host, ["Sidecar.Example.", "other.svc"])


@pytest.mark.parametrize(
    "host", ["x.sidecar.example", "sidecar.example.evil.test", "sidecar_example", "example"]
)
def test_configured_names_are_compared_whole(host: str) -> None:
    assert not host_allowed(host, ["sidecar.example"])


def test_one_verdict_does_not_leak_into_another() -> None:
    assert host_allowed("name.test", {"name.test"})
    assert not host_allowed("name.test", ())


@pytest.mark.parametrize(
    ("origin", "site", "host"),
    [
        (None, None, "localhost:7601"),
        (None, "none", "localhost:7601"),
        (None, "same-origin", "localhost:7601"),
        ("http://localhost:7601", "same-origin", "localhost:7601"),
        ("http://LOCALHOST:7601", None, "localhost:7601"),
        ("http://127.0.0.1:7601", "same-origin", "127.0.0.1:7601"),
        ("http://[::1]:7601", "same-origin", "[::1]:7601"),
        ("http://localhost", None, "localhost"),
        ("http://localhost", None, "localhost:80"),
        ("https://sidecar.example", None, "sidecar.example"),
        ("https://sidecar.example", None, "sidecar.example:443"),
    ],
)
def test_programs_and_our_own_pages_pass(
    origin: str | None, site: str | None, host: str | None
) -> None:
    assert origin_allowed(origin, site, host)


@pytest.mark.parametrize(
    ("origin", "site", "host"),
    [
        ("http://evil.test", None, "localhost:7601"),
        ("http://evil.test:7601", "same-site", "localhost:7601"),
        ("null", None, "localhost:7601"),
        ("", None, "localhost:7601"),
        ("file://", None, "localhost:7601"),
        ("http://localhost:7602", "same-site", "localhost:7601"),
        ("http://127.0.0.1:7601", None, "localhost:7601"),
        ("http://localhost:7601.evil.test", None, "localhost:7601"),
        ("http://localhost:7601@evil.test", None, "localhost:7601"),
        ("http://evil.test/http://localhost:7601", None, "localhost:7601"),
        ("http://localhost:7601/", None, "localhost:7601"),
        ("http://localhost:7601, http://evil.test", None, "localhost:7601"),
        ("https://localhost", None, "localhost:80"),
        ("http://localhost:7601", None, None),
        (None, "cross-site", "localhost:7601"),
        (None, " Cross-Site ", "localhost:7601"),
        ("http://localhost:7601", "cross-site", "localhost:7601"),
    ],
)
def test_foreign_pages_are_refused(origin: str | None, site: str | None, host: str | None) -> None:
    assert not origin_allowed(origin, site, host)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("[::FFFF:7f00:1]:80", "::ffff:127.0.0.1"),
        ("[::ffff:127.0.0.1]:80", "::ffff:127.0.0.1"),
        ("[::ffff:127.0.0.1%25eth0]", "::ffff:127.0.0.1%eth0"),
        ("[2001:DB8:0:0::1]", "2001:db8::1"),
    ],
)
def test_an_address_has_the_form_that_sockets_report(text: str, host: str) -> None:
    found = parse_authority(text)
    assert found is not None
    assert (found.host, found.literal) == (host, True)


def test_bearer_tokens() -> None:
    assert bearer_matches("Bearer s3cret", "s3cret")
    assert bearer_matches("bearer  s3cret ", "s3cret")
    assert not bearer_matches("Bearer s3cre", "s3cret")
    assert not bearer_matches("Basic s3cret", "s3cret")
    assert not bearer_matches("s3cret", "s3cret")
    assert not bearer_matches(None, "s3cret")
    assert not bearer_matches("Bearer ", "")
    assert not bearer_matches("Bearer x", None)
    assert not bearer_matches("Bearer \udcff", "s3cret")
