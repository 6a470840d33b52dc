"""The admin plane over real sockets: every call, every refusal."""

import asyncio
import json
from pathlib import Path

import pytest
import trustme

from sidecar.admin.server import AdminPlane, ProbePlane, ReloadResult
from sidecar.breaker.model import State
from sidecar.config.addresses import Listen
from sidecar.config.problems import Problem
from sidecar.telemetry.observer import Controlled, Fault

from .daemon import LOOPBACK, PROVIDERS, Daemon, started
from .raw import ADMIN, call, connect, post, send

READS = ["/", "/healthz", "/readyz", "/status", "/config", "/openapi.json"]


async def test_every_read_answers_and_is_never_cached(address: str) -> None:
    for target in READS:
        answer = await call(address, target)
        assert answer.status == 200, target
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
        assert "aiohttp" not in str(answer.headers).lower()
        head = await call(address, target, "HEAD")
        assert (head.status, head.body) == (200, b""), target
        assert head.headers["content-length"] == answer.headers["content-length"]


@pytest.mark.parametrize("target", ["/healthz", "/readyz"])
async def test_f156_probes_say_next_to_nothing(address: str, target: str) -> None:
    first, second = await call(address, target), await call(address, target)
    assert first.body == second.body
    assert len(first.body) < 100


async def test_f135_readiness_depends_on_no_upstream(daemon: Daemon, address: str) -> None:
    daemon.config_error = "line 3: unknown key"
    for subject in ("a", "b", "c"):
        daemon.fail(subject)
    assert (await call(address, "/status")).json()["providers"]["openai"]["verdict"] == "down"
    for target in ("/healthz", "/readyz"):
        assert (await call(address, target)).status == 200


async def test_readiness_while_starting_and_draining(daemon: Daemon, address: str) -> None:
    daemon.listening = False
    assert (await call(address, "/readyz")).status == 503
    daemon.listening, daemon.draining = True, True
    answer = await call(address, "/readyz")
    assert (answer.status, answer.json()) == (503, {"status": "draining"})
    assert (await call(address, "/healthz")).status == 200
    assert (await call(address, "/status")).status == 200


async def test_the_configuration_is_shown_redacted(daemon: Daemon, address: str) -> None:
    answer = await call(address, "/config")
    assert answer.json() == daemon.config.redacted()


@pytest.mark.parametrize(
    "target",
    [
        "/metrics/",
        "/v1/",
        "/v1/classify/",
        "/v1/failures/",
        "/v1/dependencies",
        "/v1/dependencies/x",
        "/v1/dependencies/x/permit/y",
        "/quitquitquit",
        "/config_dump",
        "/status/",
        "//status",
        "/Status",
        "/%73tatus",
        "/healthz/../config",
        "/breakers",
        "/reload/x",
    ],
)
async def test_what_does_not_exist_is_404(address: str, target: str) -> None:
    for method in ("GET", "POST"):
        answer = await call(address, target, method, ADMIN)
        assert (answer.status, answer.code) == (404, "not_found")


# Host and Origin


@pytest.mark.parametrize("target", [*READS, "/events", "/nothing"])
@pytest.mark.parametrize("host", ["evil.test", "127.0.0.1.evil.test", ""])
async def test_f147_a_rebound_name_reaches_nothing(
    address: str, target: str, host: str | None
) -> None:
    answer = await call(address, target, host=host)
    assert (answer.status, answer.code) == (403, "forbidden_host")
    assert "evil" not in answer.body.decode()


async def test_f147_a_rebound_name_changes_nothing(daemon: Daemon, address: str) -> None:
    assert (await post(address, "/reload", host="evil.test")).status == 403
    assert (await post(address, "/breakers/openai/open", host="evil.test")).status == 403
    assert daemon.reloads == 0
    assert not any(isinstance(fact, Controlled) for fact in daemon.facts)


@pytest.mark.parametrize(
    "host",
    ["localhost.", "LOCALHOST:7601", "127.0.0.11:1", "[::1]:7601", "[::ffff:127.0.0.1]"],
)
async def test_f147_loopback_names_pass(address: str, host: str) -> None:
    assert (await call(address, host=host)).status == 200


async def test_f147_two_hosts_are_400(address: str) -> None:
    data = b"GET /status HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"
    answer = await send(address, data)
    assert (answer.status, answer.code) == (400, "bad_request")


async def test_f147_without_a_host(address: str) -> None:
    assert (await call(address, host=None, version="1.0")).status == 403
    assert (await call(address, host=None, version="1.1")).status == 400
    assert (await call(address, version="1.0")).status == 200


async def test_a_configured_name_passes(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "allowed_hosts: [sidecar.example]\n" + PROVIDERS)
    plane, address = await started(daemon)
    try:
        assert (await call(address, host="Sidecar.example:7601")).status == 200
        assert (await call(address, host="other.example")).status == 403
    finally:
        await plane.stop()


async def test_f152_an_absolute_form_is_judged_by_its_authority(address: str) -> None:
    assert (await call(address, "http://localhost:7601/status")).status == 200
    assert (await call(address, "http://localhost:7601")).status == 200
    answer = await call(address, "http://evil.test/status", host="localhost")
    assert (answer.status, answer.code) == (403, "forbidden_host")
    assert (await call(address, "http://localhost/status", host="evil.test")).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        ["Origin: http://evil.test"],
        ["Origin: null"],
        ["Origin: http://localhost:3000", "Sec-Fetch-Site: same-site"],
        ["Sec-Fetch-Site: cross-site"],
        ["Origin: http://localhost", "Origin: http://evil.test"],
    ],
)
async def test_foreign_pages_are_refused(daemon: Daemon, address: str, headers: list[str]) -> None:
    for target, method in (("/status", "GET"), ("/healthz", "GET"), ("/reload", "POST")):
        answer = await call(address, target, method, ADMIN, *headers)
        assert answer.status in (400, 403)
    assert daemon.reloads == 0


async def test_our_own_page_is_answered(address: str) -> None:
    headers = [f"Origin: http://{address}", "Sec-Fetch-Site: same-origin"]
    assert (await call(address, "/status", "GET", *headers, host=address)).status == 200


async def test_no_preflight_is_granted(address: str) -> None:
    answer = await call(address, "/reload", "OPTIONS", "Access-Control-Request-Method: POST")
    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


# Methods and bodies


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("target", [*READS, "/events"])
async def test_reads_are_get_only(address: str, target: str, method: str) -> None:
    answer = await call(address, target, method, ADMIN)
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("target", ["/reload", "/breakers/openai/open", "/breakers/nobody/open"])
async def test_f149_changes_need_post(
    daemon: Daemon, address: str, target: str, method: str
) -> None:
    answer = await call(address, target, method, ADMIN)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert daemon.reloads == 0


@pytest.mark.parametrize("target", ["/reload", "/breakers/openai/open"])
@pytest.mark.parametrize("headers", [[], ["x-sidecar-admin: 0"], ["x-sidecar-admin:"]])
async def test_f149_changes_need_the_header(
    daemon: Daemon, address: str, target: str, headers: list[str]
) -> None:
    answer = await call(address, target, "POST", *headers)
    assert (answer.status, answer.code) == (403, "admin_header_required")
    assert "x-sidecar-admin: 1" in answer.json()["error"]["message"]
    assert daemon.reloads == 0


async def test_read_only_by_configuration(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "admin: {mutations: false}\n" + PROVIDERS)
    plane, address = await started(daemon)
    try:
        for target in ("/reload", "/breakers/openai/open"):
            answer = await post(address, target)
            assert (answer.status, answer.code) == (403, "mutations_off")
        assert (await call(address, "/status")).status == 200
    finally:
        await plane.stop()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"FOO /status HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer hunter2\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: localhost\r\nX: a\x00b hunter2\r\n\r\n",
        b"POST /reload HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_what_does_not_parse_is_answered_without_quoting_it(
    daemon: Daemon, address: str, data: bytes
) -> None:
    answer = await send(address, data)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert b"hunter2" not in answer.body
    assert daemon.reloads == 0


# Control


async def test_a_breaker_is_opened_and_its_entry_answered(daemon: Daemon, address: str) -> None:
    body = json.dumps({"for": "10m", "reason": "drill\nof today"})
    answer = await post(address, "/breakers/openai/open", body=body)
    assert answer.status == 200
    entry = answer.json()
    status = (await call(address, "/status")).json()
    shown = status["providers"]["openai"]["breakers"]["openai"]
    assert set(entry) == set(shown)
    assert entry["state"] == "open"
    assert 590 < entry["retry_after"] <= 600
    (fact,) = [fact for fact in daemon.facts if isinstance(fact, Controlled)]
    assert (fact.key, fact.verb, fact.duration, fact.reason) == (
        "openai",
        "open",
        600.0,
        "drill of today",
    )


@pytest.mark.parametrize(
    ("model", "segment"),
    [
        ("gpt-x", "openai%2Fgpt-x"),
        ("org/model:free", "openai%2Forg%2Fmodel%3Afree"),
        ("per%cent", "openai%2Fper%25cent"),
        ("../status", "openai%2F..%2Fstatus"),
        ("größe x", "openai%2Fgr%C3%B6%C3%9Fe%20x"),
        ("a+b", "openai%2Fa+b"),
        ("open", "openai%2Fopen"),
        ("~v1/models", "openai%2F~v1%2Fmodels"),
    ],
)
async def test_the_key_is_one_encoded_segment(
    daemon: Daemon, address: str, model: str, segment: str
) -> None:
    daemon.fail(model)
    answer = await post(address, f"/breakers/{segment}/reset")
    assert answer.status == 200, answer.body
    assert answer.json()["state"] == "closed"
    (fact,) = [fact for fact in daemon.facts if isinstance(fact, Controlled)]
    assert fact.key == f"openai/{model}"


@pytest.mark.parametrize("verb", ["open", "close", "reset", "enforce", "observe", "off"])
async def test_every_verb(address: str, verb: str) -> None:
    answer = await post(address, f"/breakers/openai/{verb}")
    assert answer.status == 200
    entry = answer.json()
    assert entry["state"] == ("open" if verb == "open" else "closed")
    assert entry["mode"] == (verb if verb in ("observe", "off") else "enforce")


async def test_f051_reset_closes_one_breaker_only(daemon: Daemon, address: str) -> None:
    daemon.fail("a")
    daemon.fail("b")
    assert (await post(address, "/breakers/openai%2Fa/reset")).status == 200
    breakers = (await call(address, "/status")).json()["providers"]["openai"]["breakers"]
    assert breakers["openai/a"]["state"] == "closed"
    assert breakers["openai/a"]["window"]["failure"] == 0
    assert breakers["openai/b"]["state"] == "open"


@pytest.mark.parametrize(
    "key", ["nobody", "nobody%2Fgpt-x", "%FF", "%00", "openai%252Fgpt-x", "missing"]
)
async def test_an_unknown_key_names_the_known_ones(daemon: Daemon, address: str, key: str) -> None:
    daemon.fail("gpt-x")
    answer = await post(address, f"/breakers/{key}/open")
    assert (answer.status, answer.code) == (404, "unknown_breaker")
    assert answer.json()["known"] == ["openai", "openai/gpt-x", "private"]
    assert "openai/gpt-x" in answer.json()["error"]["message"]


@pytest.mark.parametrize("verb", ["open", "close", "reset", "enforce", "observe", "off"])
@pytest.mark.parametrize("subject", ["gpt-x", "~v1/files"])
async def test_a_key_that_no_call_has_used(
    daemon: Daemon, address: str, verb: str, subject: str
) -> None:
    answer = await post(address, f"/breakers/openai%2F{subject.replace('/', '%2F')}/{verb}")
    assert answer.status == 200
    breakers = (await call(address, "/status")).json()["providers"]["openai"]["breakers"]
    for name in ("state", "mode", "reason"):
        assert answer.json()[name] == breakers[f"openai/{subject}"][name]


async def test_models_of_one_breaker_have_no_key(address: str) -> None:
    answer = await post(address, "/breakers/private%2Fgpt-x/open")
    assert (answer.status, answer.code) == (404, "unknown_breaker")
    assert "scope: provider" in answer.json()["error"]["message"]
    assert "private" in answer.json()["known"]


@pytest.mark.interpreted
async def test_no_room_for_another_key(
    daemon: Daemon, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.breaker.provider.KEYS", 3)
    daemon.fail("gpt-x")
    answer = await post(address, "/breakers/openai%2Fgpt-y/open")
    assert (answer.status, answer.code) == (409, "too_many_breakers")


async def test_reset_takes_no_time(daemon: Daemon, address: str) -> None:
    daemon.fail("gpt-x")
    answer = await post(address, "/breakers/openai%2Fgpt-x/reset", body='{"for": "1s"}')
    assert (answer.status, answer.code) == (400, "bad_request")
    assert "reset takes no time" in answer.json()["error"]["message"]
    assert daemon.registry.peek("openai", "gpt-x", 0.0)[1] is State.OPEN
    body = '{"for": null, "reason": "mended"}'
    assert (await post(address, "/breakers/openai%2Fgpt-x/reset", body=body)).status == 200


async def test_the_known_keys_are_bounded(daemon: Daemon, address: str) -> None:
    for number in range(100):
        daemon.fail(f"model-{number:03d}", times=1)
    answer = await post(address, "/breakers/nobody/open")
    assert len(answer.json()["known"]) == 50
    assert "52 more" in answer.json()["error"]["message"]


async def test_an_unknown_verb(address: str) -> None:
    for method in ("GET", "POST"):
        answer = await call(address, "/breakers/openai/explode", method, ADMIN)
        assert (answer.status, answer.code) == (404, "unknown_verb")
        assert "close, enforce, observe, off, open, reset" in answer.json()["error"]["message"]


@pytest.mark.parametrize("target", ["/breakers/openai/gpt-x/open", "/breakers//open", "/breakers/"])
async def test_a_key_of_two_segments_is_explained(address: str, target: str) -> None:
    answer = await post(address, target)
    assert answer.status == 404
    assert "%2F" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "null",
        '"open"',
        "[" * 50_000,
        '{"for": "10 minutes"}',
        '{"for": "1m30s"}',
        '{"for": 0}',
        '{"for": -1}',
        '{"for": "0s"}',
        '{"for": true}',
        '{"for": 1e999}',
        '{"for": NaN}',
        f'{{"for": {"9" * 400}}}',
        f'{{"for": {"9" * 5000}}}',
        '{"for": 31536000}',
        '{"for": ["10m"]}',
        '{"reason": 5}',
        '{"fro": "10m"}',
        b"\xff\xfe",
    ],
)
async def test_a_bad_body_changes_nothing(daemon: Daemon, address: str, body: bytes | str) -> None:
    answer = await post(address, "/breakers/openai/open", body=body)
    assert (answer.status, answer.code) == (400, "bad_request")
    _, state, _ = daemon.registry.peek("openai", None, 0.0)
    assert state is State.CLOSED


@pytest.mark.parametrize(
    "body",
    [
        "",
        " ",
        "{}",
        '{"for": null, "reason": null}',
        '{"for": 0.5}',
        '{"for": 600}',
        '{"reason": ""}',
    ],
)
async def test_bodies_that_are_fine(address: str, body: str) -> None:
    assert (await post(address, "/breakers/openai/open", body=body)).status == 200


async def test_a_long_reason_is_cut(daemon: Daemon, address: str) -> None:
    body = json.dumps({"reason": "x" * 5_000})
    await post(address, "/breakers/openai/open", body=body)
    (fact,) = [fact for fact in daemon.facts if isinstance(fact, Controlled)]
    assert fact.reason == "x" * 200


async def test_a_body_is_bounded_however_it_comes(daemon: Daemon, address: str) -> None:
    answer = await post(address, "/breakers/openai/open", "Content-Length: 70000")
    assert (answer.status, answer.code) == (413, "too_large")
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    answer = await send(
        address,
        b"POST /breakers/openai/open HTTP/1.1\r\nHost: localhost\r\nx-sidecar-admin: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"1\r\n \r\n0\r\n\r\n",
    )
    assert answer.status == 413
    assert not daemon.facts


async def test_expect_100_continue(address: str) -> None:
    answer = await post(address, "/breakers/openai/close", "Expect: 100-continue", body="{}")
    assert answer.status == 200


# Reload


async def test_a_reload_says_what_changed(daemon: Daemon, address: str) -> None:
    answer = await post(address, "/reload")
    assert answer.status == 200
    assert answer.json() == {
        "generation": 2,
        "hash": "abc",
        "added": ["groq"],
        "removed": [],
        "changed": [],
        "restart_needed": [],
        "warnings": [],
    }
    assert daemon.reloads == 1


async def test_a_refused_reload_names_all_errors(daemon: Daemon, address: str) -> None:
    problems = (
        Problem("breakers.yaml", 3, "providers.openai.timeout", "unknown key", "timeouts?"),
        Problem("breakers.yaml", 9, "listen", "no port"),
    )
    daemon.result = ReloadResult(generation=1, hash="old", problems=problems)
    answer = await post(address, "/reload")
    assert (answer.status, answer.code) == (422, "invalid_config")
    document = answer.json()
    assert document["error"]["message"].startswith("2 problems")
    assert document["generation"] == 1
    assert document["problems"][0] == {
        "source": "breakers.yaml",
        "line": 3,
        "path": "providers.openai.timeout",
        "message": "unknown key",
        "hint": "timeouts?",
    }
    assert len(document["problems"]) == 2


async def test_a_caller_that_hangs_up_does_not_stop_a_reload(daemon: Daemon, address: str) -> None:
    daemon.reload_gate = asyncio.Event()
    _, writer = await connect(address)
    writer.write(b"POST /reload HTTP/1.1\r\nHost: localhost\r\nx-sidecar-admin: 1\r\n\r\n")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.close()
    await asyncio.sleep(0.05)
    daemon.reload_gate.set()
    async with asyncio.timeout(5):
        while not daemon.reloads:
            await asyncio.sleep(0.01)


async def test_a_fault_is_one_bad_answer(
    daemon: Daemon, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> ReloadResult:
        raise RuntimeError("hunter2")

    monkeypatch.setattr(daemon, "reload", broken)
    answer = await post(address, "/reload")
    assert (answer.status, answer.code) == (500, "internal_error")
    assert b"hunter2" not in answer.body
    (fact,) = daemon.facts
    assert isinstance(fact, Fault)
    assert fact.where == "admin"
    assert (await call(address, "/status")).status == 200


# The token


async def test_on_loopback_the_token_is_for_changes(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "admin: {token_file: token}\n" + PROVIDERS, token="s3cret-token")
    plane, address = await started(daemon)
    try:
        for target in READS:
            assert (await call(address, target)).status == 200
        for target in ("/reload", "/breakers/openai/open"):
            for header in ("Authorization: Bearer wrong", "Authorization: s3cret-token", "X: y"):
                answer = await post(address, target, header)
                assert (answer.status, answer.code) == (401, "token_required")
                assert answer.headers["www-authenticate"].startswith("Bearer")
            answer = await post(address, target, "Authorization: Bearer s3cret-token")
            assert answer.status == 200
            answer = await call(address, target, "POST", "Authorization: Bearer s3cret-token")
            assert answer.status == 403
        assert b"s3cret" not in (await call(address, "/config")).body
    finally:
        await plane.stop()


async def test_f149_beyond_loopback_everything_needs_the_token(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "admin: {token_file: token}\n" + PROVIDERS, token="s3cret-token")
    plane, address = await started(daemon, Listen(host="0.0.0.0", port=0))
    reachable = address.replace("0.0.0.0", "127.0.0.1")
    token = "Authorization: Bearer s3cret-token"
    try:
        for target in ("/healthz", "/readyz"):
            assert (await call(reachable, target)).status == 200
        for target in ("/", "/status", "/config", "/events", "/nothing", "/metrics"):
            answer = await call(reachable, target)
            assert (answer.status, answer.code) == (401, "token_required"), target
        assert (await post(reachable, "/reload")).status == 401
        assert daemon.reloads == 0
        assert (await call(reachable, "/status", "GET", token)).status == 200
        assert (await call(reachable, "/nothing", "GET", token)).status == 404
        assert (await call(reachable, "/status", "GET", token, host="evil.test")).status == 403
        assert (await post(reachable, "/reload", token)).status == 200
    finally:
        await plane.stop()


async def test_beyond_loopback_without_a_token_nothing_opens(daemon: Daemon) -> None:
    plane, address = await started(daemon, Listen(host="0.0.0.0", port=0))
    reachable = address.replace("0.0.0.0", "127.0.0.1")
    try:
        for header in ("X: y", "Authorization: Bearer ", "Authorization: Bearer None"):
            assert (await call(reachable, "/status", "GET", header)).status == 401
    finally:
        await plane.stop()


# Addresses


async def test_localhost_is_both_loopback_addresses_on_one_port(daemon: Daemon) -> None:
    plane = AdminPlane(daemon)
    addresses = await plane.start([Listen(host="localhost", port=0)])
    try:
        assert len({address.rpartition(":")[2] for address in addresses}) == 1
        for address in addresses:
            assert (await call(address, "/healthz")).status == 200
    finally:
        await plane.stop()


async def test_a_unix_socket_is_private_and_has_no_host_guard(
    daemon: Daemon, tmp_path: Path
) -> None:
    path = tmp_path / "admin.sock"
    plane, address = await started(daemon, Listen(kind="unix", path=str(path)))
    try:
        assert address == f"unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o600
        assert (await call(address, "/status", host="anything.test")).status == 200
        assert (await call(address, "/status", "GET", "Origin: http://evil.test")).status == 200
        assert (await call(address, "/reload", "POST")).status == 403
        assert (await post(address, "/reload", host="docker")).status == 200
        with pytest.raises(OSError, match="another process"):
            await started(daemon, Listen(kind="unix", path=str(path)))
    finally:
        await plane.stop()
    assert not path.exists()


async def test_a_socket_left_behind_is_taken_over(daemon: Daemon, tmp_path: Path) -> None:
    import socket

    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    plane, address = await started(daemon, Listen(kind="unix", path=str(path)))
    try:
        assert (await call(address, "/healthz")).status == 200
    finally:
        await plane.stop()


async def test_an_address_in_use_is_an_error_and_leaves_nothing_open(
    daemon: Daemon, address: str
) -> None:
    taken = Listen(host="127.0.0.1", port=int(address.rpartition(":")[2]))
    plane = AdminPlane(daemon)
    with pytest.raises(OSError):
        await plane.start([LOOPBACK, taken])
    assert (await call(address, "/healthz")).status == 200


async def test_stopping_closes_the_address(daemon: Daemon) -> None:
    plane, address = await started(daemon)
    await plane.stop()
    await plane.stop()
    with pytest.raises(ConnectionRefusedError):
        await call(address)


async def test_tls(daemon: Daemon, tmp_path: Path) -> None:
    import ssl

    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    plane, address = await started(
        daemon, Listen(host="127.0.0.1", port=0, tls=(str(chain), str(key)))
    )
    try:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=context, server_hostname="localhost"
        )
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()
    finally:
        await plane.stop()


# The probe listener


async def test_the_probe_listener_has_probes_only_and_no_guard(daemon: Daemon) -> None:
    plane = ProbePlane(daemon)
    (address,) = await plane.start([LOOPBACK])
    try:
        for target in ("/healthz", "/readyz"):
            assert (await call(address, target, host="pod.name.test")).status == 200
            assert (await call(address, target, host=None, version="1.0")).status == 200
            assert (await call(address, target, "POST")).status == 405
        for target in ("/", "/status", "/config", "/events", "/reload", "/breakers/openai/open"):
            for method in ("GET", "POST"):
                assert (await call(address, target, method, ADMIN)).status == 404
        daemon.draining = True
        assert (await call(address, "/readyz")).status == 503
        assert (await call(address, "/healthz")).status == 200
        assert daemon.reloads == 0
    finally:
        await plane.stop()
