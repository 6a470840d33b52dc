"""Area security: loopback is no boundary, and no path leads elsewhere."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from sidecar.config.load import load
from sidecar.config.problems import ConfigError
from sidecar.proxy.upstream import proxy_for
from tests.proxy.callers import Answer, Caller, call, chat, request
from tests.proxy.upstreams import Upstream, answer, says

from .scene import JSON, OK, admin, ask, base, document, error, until

OUR_NAMES = [
    "localhost", "localhost.", "LOCALHOST", "LocalHost:{port}", "localhost:9999", "127.0.0.1",
    "127.0.0.1:{port}", "127.0.0.11:{port}", "[::1]:{port}", "[::1]", "[::ffff:127.0.0.1]",
    "configured.test", "CONFIGURED.test:80",
]  # fmt: skip
FOREIGN_NAMES = [
    "evil.test", "evil.test:{port}", "127.0.0.1.evil.test", "127.evil.test", "localhost.evil.test",
    "evil-localhost", "evillocalhost", "localhost@evil.test", "evil.test@localhost", "",
    "configured.test.evil.test", "notconfigured.test", "[::1].evil.test", "127.0.0.1, evil.test",
]  # fmt: skip
FORBIDDEN = (400, 403, 421)


async def raw_call(port: int, raw: bytes) -> Answer:
    caller = await Caller.connect(port)
    try:
        await caller.send(raw)
        return await caller.answer()
    finally:
        caller.close()


async def test_f147_only_names_that_no_resolver_can_forge(start, upstream) -> None:
    running = await start({"up": base(upstream.url)}, allowed_hosts=["configured.test"])
    planes = [
        (running.port, "/up/x"),
        (running.admin_port, "/status"),
        (running.admin_port, "/healthz"),
    ]
    for port, path in planes:
        for name in OUR_NAMES:
            found = await call(port, path, host=name.format(port=port))
            assert found.status == 200, (path, name)
        hits = upstream.hits
        for name in FOREIGN_NAMES:
            found = await call(port, path, host=name.format(port=port))
            assert found.status in FORBIDDEN, (path, name)
        two = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nHost: evil.test\r\n\r\n"
        assert (await raw_call(port, two.encode())).status == 400
        for version in ("1.0", "1.1"):
            none = f"GET {path} HTTP/{version}\r\n\r\n"
            assert (await raw_call(port, none.encode())).status in FORBIDDEN
        assert upstream.hits == hits
    before = running.breaker("up").mode
    change = ("x-sidecar-admin", "1")
    for name in FOREIGN_NAMES:
        found = await call(
            running.admin_port, "/breakers/up/off", "POST", b"", change,
            host=name.format(port=running.admin_port),
        )  # fmt: skip
        assert found.status in FORBIDDEN
    assert running.breaker("up").mode == before


@pytest.mark.parametrize(
    "header",
    [("Origin", "http://evil.test"), ("Origin", "null"), ("Origin", "http://localhost.evil.test"),
     ("Sec-Fetch-Site", "cross-site")],
)  # fmt: skip
async def test_f147_a_foreign_page_is_refused_by_any_name(start, upstream, header) -> None:
    running = await start({"up": base(upstream.url)})
    for port, path in ((running.port, "/up/x"), (running.admin_port, "/status")):
        assert (await call(port, path, "GET", None, header)).status == 403
    assert upstream.hits == 0


async def test_f149_by_default_nothing_but_loopback_is_bound(start, upstream, tmp_path) -> None:
    file = tmp_path / "smallest.yaml"
    file.write_text(f"providers: {{up: {{upstream: '{upstream.url}'}}}}\n")
    config = load(file, environ={})
    for listen in (*config.listen, *config.admin.listen):
        assert listen.host == "localhost"
    assert config.probe_listen == ()
    running = await start({"up": base(upstream.url)}, probe={"listen": "127.0.0.1:0"})
    for addresses in running.daemon.addresses.values():
        for address in addresses:
            assert address.startswith(("127.0.0.1:", "[::1]:"))


@pytest.mark.parametrize("address", ["0.0.0.0:7601", "[::]:7601", "10.0.0.1:7601", ":7601"])
def test_f149_an_admin_plane_elsewhere_needs_a_token(tmp_path, address) -> None:
    file = tmp_path / "wide.yaml"
    file.write_text(
        f"admin: {{listen: '{address}'}}\nproviders: {{up: {{upstream: 'http://x'}}}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(file, environ={})
    assert "token" in "\n".join(map(str, caught.value.problems)) or address.startswith(":")


@pytest.mark.parametrize("address", ["0.0.0.0:7600", "[::]:7600"])
def test_f149_a_data_plane_elsewhere_is_warned_of(tmp_path, address) -> None:
    file = tmp_path / "wide.yaml"
    file.write_text(f"listen: '{address}'\nproviders: {{up: {{upstream: 'http://x'}}}}\n")
    warnings = load(file, environ={}).warnings
    assert any("listen" in warning for warning in warnings)


CHANGES = ["/breakers/up/open", "/breakers/up/reset", "/breakers/up/off", "/reload"]


async def test_f149_a_change_needs_post_header_and_token(start, upstream, tmp_path) -> None:
    (tmp_path / "token").write_text("sesame\n")
    section = {"listen": "127.0.0.1:0", "token_file": str(tmp_path / "token")}
    running = await start({"up": base(upstream.url)}, admin=section)
    mark, token = ("x-sidecar-admin", "1"), ("Authorization", "Bearer sesame")
    for path in CHANGES:
        for method, headers, status in (
            ("GET", (mark, token), 405),
            ("PUT", (mark, token), 405),
            ("POST", (token,), 403),
            ("POST", (mark,), 401),
            ("POST", (mark, ("Authorization", "Bearer wrong")), 401),
            ("POST", (mark, ("Origin", "http://evil.test"), token), 403),
        ):
            found = await call(running.admin_port, path, method, b"", *headers)
            assert found.status == status, (path, method, headers)
        assert running.breaker("up").state == "closed"
        assert running.breaker("up").mode == "enforce"
    assert running.daemon.generation == 1
    found = await call(running.admin_port, "/breakers/up/open", "POST", b"", mark, token)
    assert (found.status, running.breaker("up").state) == (200, "open")


async def test_f149_the_probe_listener_serves_probes_only(start, upstream) -> None:
    running = await start({"up": base(upstream.url)}, probe={"listen": "127.0.0.1:0"})
    port = int(running.daemon.addresses["probe"][0].rpartition(":")[2])
    for path in ("/healthz", "/readyz"):
        # A probe comes by whatever name the pod has.
        assert (await call(port, path, host="10.1.2.3:80")).status == 200
        assert (await call(port, path, host="pod.cluster.test")).status == 200
    mark = ("x-sidecar-admin", "1")
    for path in ("/", "/status", "/config", "/events", "/breakers/up/open", "/reload", "/up/x"):
        for method in ("GET", "POST"):
            assert (await call(port, path, method, b"", mark)).status == 404, path
    assert (running.breaker("up").state, upstream.hits) == ("closed", 0)
    # Nor does the data plane serve anything of the admin's.
    for path in ("/status", "/config", "/breakers/up/open", "/reload"):
        assert (await call(running.port, path, "POST", b"", mark)).status == 404


PATHS = [
    b"/up/@evil.test/x", b"/up//evil.test/x", b"/up/\\evil.test", b"/up/http://evil.test/",
    b"/up/..//evil.test", b"/up/%2F%2Fevil.test", b"/up/:9999/x", b"/up?@evil.test",
    b"/up@evil.test/x", b"/up:80@evil.test/x", b"@evil.test/x", b"//evil.test/x", b"/\\evil.test",
    b"http://evil.test/up/x", b"https://evil.test:443/up/x", b"/..//evil.test", b":9999/x",
    b"?@evil.test", b"#@evil.test", b"/up#@evil.test", b"/up/%0d%0aHost:%20evil.test",
    b"/up/%00", b"/up/%20x", b"//up/x", b"http:/up/x", b"http:up", b"evil.test:443",
    b"http://localhost@evil.test/up/x", b"/up/x HTTP/1.1\r\nHost: evil.test\r\nX: y",
    b"/up/\x00x", b"/up/a b", b"/up/a\rb", b"/up/a\nb",
]  # fmt: skip
MALFORMED = {
    b"@evil.test/x", b":9999/x", b"?@evil.test", b"#@evil.test", b"/up#@evil.test",
    b"/up/a b", b"/up/a\rb", b"/up/a\nb", b"/up/\x00x",
}  # fmt: skip


@pytest.mark.parametrize("target", PATHS)
async def test_f151_only_the_configured_address_is_ever_dialled(
    start, upstream, monkeypatch, target
) -> None:
    loop = asyncio.get_running_loop()
    running = await start({"up": base(upstream.url)})
    dialled: list[object] = []
    resolved: list[object] = []
    connect, resolve = loop.sock_connect, socket.getaddrinfo

    async def watch(sock, address):
        dialled.append(address)
        await connect(sock, address)

    def names(host, *args, **more):
        resolved.append(host)
        return resolve(host, *args, **more)

    caller = await Caller.connect(running.port)
    monkeypatch.setattr(loop, "sock_connect", watch)
    monkeypatch.setattr(socket, "getaddrinfo", names)
    secret = b"Authorization: Bearer sk-secret\r\n"
    await caller.send(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n" + secret + b"\r\n")
    found = await caller.answer()
    assert set(dialled) <= {("127.0.0.1", upstream.port)}
    assert set(resolved) <= {"127.0.0.1"}
    for seen in upstream.requests:
        assert seen.get(b"host") == b"127.0.0.1:%d" % upstream.port
    if target in MALFORMED:
        assert (found.status, upstream.hits) == (400, 0)
    if not target.startswith(b"/up"):
        assert (found.status >= 400, upstream.hits) == (True, 0)


async def test_f151_the_watch_sees_what_is_dialled(start, upstream, monkeypatch) -> None:
    """The test above would be worth nothing if it looked at the wrong place."""
    loop = asyncio.get_running_loop()
    running = await start({"up": base(upstream.url)})
    dialled: list[object] = []
    connect = loop.sock_connect

    async def watch(sock, address):
        dialled.append(address)
        await connect(sock, address)

    caller = await Caller.connect(running.port)
    monkeypatch.setattr(loop, "sock_connect", watch)
    await caller.send(request("/up/x"))
    assert (await caller.answer()).status == 200
    assert dialled == [("127.0.0.1", upstream.port)]


async def test_f152_one_url_is_seen_and_used(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    port = running.port
    for target in (
        "http://evil.test/up/x", f"http://evil.test:{port}/up/x", f"http://localhost:{port + 1}/up/x",
        f"http://127.0.0.1.evil.test:{port}/up/x", f"http://evil.test@localhost:{port}/up/x",
        "https://api.openai.com/up/x", "ftp://localhost/up/x",
    ):  # fmt: skip
        found = await call(port, target)
        assert found.status in (400, 403, 421), target
    found = await call(port, "evil.test:443", "CONNECT")
    assert (found.status, found.envelope["code"]) == (405, "not_allowed")
    assert (await call(port, "*", "OPTIONS")).status == 404
    assert upstream.hits == 0
    for authority in (f"localhost:{port}", f"127.0.0.1:{port}"):
        found = await call(port, f"http://{authority}/up/y?z=1", host="localhost")
        assert (found.status, upstream.requests[-1].target) == (200, b"/y?z=1")


async def test_f153_a_credential_goes_to_its_own_provider_only(start) -> None:
    names = ["api", "api-openai", "openai", "openai-com-evil"]
    servers = {}
    for name in names:
        servers[name] = Upstream(says(OK))
        await servers[name].start()
    running = await start(
        {
            name: base(server.url, set_headers={"authorization": {"value": f"key-of-{name}"}})
            for name, server in servers.items()
        }
    )
    for name in names:
        await call(running.port, f"/{name}/x")
        await call(running.port, f"/{name.upper()}/x")
        await call(running.port, f"/{name}./x")
        await call(running.port, f"/x/{name}/x")
    for name, server in servers.items():
        assert [seen.get(b"authorization") for seen in server.requests] == [
            f"key-of-{name}".encode()
        ]
    # Neither a fall-back nor a redirect carries it on.
    other = servers["openai"]
    location = (b"Location", f"{other.url}/stolen".encode())
    servers["api"].script = says(answer(307, b"", location))
    hits = other.hits
    found = await call(running.port, "/api/x", "POST", b"{}", ("Authorization", "Bearer mine"))
    assert (found.status, other.hits) == (307, hits)
    await servers["api"].stop()
    assert (await call(running.port, "/api/x")).status == 502
    assert other.hits == hits
    for server in servers.values():
        await server.stop()


@pytest.mark.parametrize(
    ("host", "direct"),
    [("127.0.0.1", True), ("localhost", True), ("LOCALHOST", True), ("127.9.9.9", True),
     ("127.evil.test", False), ("127.0.0.1.evil.test", False), ("localhost.evil.test", False),
     ("notlocalhost", False)],
)  # fmt: skip
def test_f153_only_this_machine_goes_without_the_proxy(tmp_path, host, direct) -> None:
    """What looks like a loopback name is sent past the operator's egress proxy otherwise."""
    from yarl import URL

    file = tmp_path / "breakers.yaml"
    file.write_text(
        f"providers: {{up: {{upstream: 'http://{host}:81', proxy: 'http://127.0.0.1:9'}}}}\n"
    )
    provider = load(file, environ={}).providers["up"]
    found = proxy_for(provider, URL(provider.upstream))
    assert (found is None) is direct


async def test_f156_health_and_status_tell_little(start, upstream) -> None:
    key = "sk-live-0123456789abcdef0123456789abcdef"
    words = f"internal host db-7.corp.test rejected {key}"
    upstream.script = says(error(401, "invalid_api_key", words))
    running = await start({"up": base(upstream.url)})
    secret = ("Authorization", f"Bearer {key}")
    for n in range(3):
        path = f"/up/v1/chat/completions?api_key={key}"
        await call(running.port, path, "POST", chat(n=n), JSON, secret)
    upstream.script = says(error(500, None, words))
    await ask(running)
    bodies = []
    for path in ("/healthz", "/readyz"):
        found = await admin(running, path)
        assert len(found.body) < 100
        assert found.body == (await admin(running, path)).body
        bodies.append(found.body.decode())
    bodies.append(json.dumps(await document(running)))
    bodies.append((await admin(running, "/")).body.decode())
    bodies.append((await admin(running, "/config")).body.decode())
    for body in bodies:
        for hidden in (key, key[:12], "db-7.corp.test"):
            assert hidden not in body
    assert "openai" not in bodies[0]
    assert json.loads(bodies[2])["providers"]["up"]["errors"]["by_class"]["authentication"] == 3


@pytest.mark.parametrize(
    "url", ["http://user:pass@127.0.0.1:1", "http://127.0.0.1:1/?key=secret", "http://x/#y"]
)
def test_f156_no_secret_can_stand_in_a_base_url(tmp_path, url) -> None:
    file = tmp_path / "breakers.yaml"
    file.write_text(f"providers: {{up: {{upstream: '{url}'}}}}\n")
    with pytest.raises(ConfigError) as caught:
        load(file, environ={})
    assert "pass" not in "\n".join(map(str, caught.value.problems)).replace("user-info", "")


async def test_f156_beyond_loopback_status_needs_the_token(start, upstream, tmp_path) -> None:
    (tmp_path / "token").write_text("sesame\n")
    section = {"listen": "0.0.0.0:0", "token_file": str(tmp_path / "token")}
    running = await start({"up": base(upstream.url)}, admin=section)
    await until(lambda: running.daemon.listening)
    for path in ("/status", "/", "/config", "/events"):
        assert (await admin(running, path)).status == 401
    token = ("Authorization", "Bearer sesame")
    assert (await call(running.admin_port, "/status", "GET", None, token)).status == 200
    for path in ("/healthz", "/readyz"):
        assert (await admin(running, path)).status == 200
