"""`/openapi.json`: it says what the router does, and a daemon does what it says."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sidecar.admin import documents, openapi
from sidecar.admin.routes import BY_PATH, OPERATIONS, Access, find
from sidecar.admin.server import AdminPlane
from tests.cli.conftest import free_port, ready, wait_for
from tests.conftest import need

from .daemon import PROVIDERS, Daemon, started
from .raw import ADMIN, Answer, call, post

ROOT = Path(__file__).resolve().parents[2]
DESCRIBED: dict[str, Any] = json.loads(openapi.document())
FILLED = {"key": "openai", "verb": "reset", "name": "orders-db", "correlation_id": "abc"}


def filled(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: FILLED[match[1]], path)


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from refs(item)


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path, PROVIDERS + "dependencies:\n  orders-db: {source: database}\n")


def test_every_call_of_the_router_is_described_and_no_other() -> None:
    described = {
        (method.upper(), path) for path, methods in DESCRIBED["paths"].items() for method in methods
    }
    routed = {(one.method, one.path) for one in OPERATIONS}
    routed |= {("HEAD", path) for method, path in routed if method == "GET"}
    assert described == routed
    ids = [one["operationId"] for path in DESCRIBED["paths"].values() for one in path.values()]
    assert len(ids) == len(set(ids))


def test_every_call_has_what_answers_it(daemon: Daemon) -> None:
    assert set(AdminPlane(daemon)._routes) == {one.id for one in OPERATIONS}


@pytest.mark.parametrize("path", BY_PATH)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_the_plane_answers_what_is_described(address: str, path: str, method: str) -> None:
    if (path, method) == ("/events", "GET"):
        return  # it does not end; test_events.py reads it
    answer = await call(address, filled(path), method, ADMIN)
    described = DESCRIBED["paths"][path]
    if method.lower() in described:
        assert str(answer.status) in described[method.lower()]["responses"]
        assert answer.status != 405
    else:
        assert answer.status == 405
        assert {name.lower() for name in answer.headers["allow"].split(", ")} == set(described)


def test_every_reference_leads_somewhere() -> None:
    for ref in set(refs(DESCRIBED)):
        place: Any = DESCRIBED
        for part in ref.removeprefix("#/").split("/"):
            place = place[part]


def test_every_schema_is_used() -> None:
    used = set(refs(DESCRIBED))
    for name in DESCRIBED["components"]["schemas"]:
        assert f"#/components/schemas/{name}" in used, name


def test_every_part_of_a_path_is_described() -> None:
    for path, methods in DESCRIBED["paths"].items():
        for method in methods.values():
            given = [one["name"] for one in method.get("parameters", []) if one["in"] == "path"]
            assert given == re.findall(r"\{(\w+)\}", path)


def test_what_changes_something_needs_the_header() -> None:
    for operation in OPERATIONS:
        described = DESCRIBED["paths"][operation.path][operation.method.lower()]
        needed = [
            one for one in described.get("parameters", []) if one["name"] == "x-sidecar-admin"
        ]
        settles = operation.access in (Access.STEER, Access.SETTLE)
        assert any(one["required"] for one in needed) is settles
        assert ("security" in described) is (operation.access is not Access.PROBE)


async def test_what_changes_something_is_refused_without_it(daemon: Daemon, address: str) -> None:
    for operation in OPERATIONS:
        if operation.access in (Access.STEER, Access.SETTLE):
            answer = await call(address, filled(operation.path), "POST")
            assert (answer.status, answer.code) == (403, "admin_header_required")
    assert daemon.reloads == 0


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/breakers/a%2Fb/open", {"key": "a/b", "verb": "open"}),
        ("/breakers/a/b/open", None),
        ("/breakers//open", None),
        ("/breakers/{key}/{verb}", {"key": "{key}", "verb": "{verb}"}),
        ("/v1/failures/a/b/c", {"correlation_id": "a/b/c"}),
        ("/v1/failures/a%2Fb", {"correlation_id": "a/b"}),
        ("/v1/failures/", None),
        ("/v1/failures//", None),
        ("/v1/dependencies/x/permit", {"name": "x"}),
        ("/v1/dependencies/x/permit/", None),
        ("/status", {}),
        ("/STATUS", None),
        ("", None),
    ],
)
def test_where_a_path_leads(path: str, parts: dict[str, str] | None) -> None:
    found = find(path)
    assert (None if found is None else found.parts) == parts


SHAPES = {operation.id: operation.answers for operation in OPERATIONS}


def check(answer: Answer, operation: str) -> None:
    """The document is that of the description, member for member."""
    shape = SHAPES[operation][answer.status].shape
    assert shape is not None
    msgspec.json.decode(answer.body, type=getattr(documents, shape))


async def test_documents_have_the_shape_that_is_described(daemon: Daemon, address: str) -> None:
    permit = await post(address, "/v1/dependencies/orders-db/permit")
    check(permit, "permit")
    error = {"type": "psycopg.errors.AdminShutdown", "sqlstate": "57P01", "message": "x"}
    report = json.dumps({"permit": permit.json()["permit"], "error": error})
    headers = ["x-correlation-id: abc"]
    check(await post(address, "/v1/dependencies/orders-db/report", *headers, body=report), "report")
    check(await post(address, "/v1/dependencies/orders-db/report", *headers, body=report), "report")
    daemon.fail("gpt-x")
    check(await post(address, "/breakers/openai%2Fgpt-x/open", body='{"for": 60}'), "control")
    check(await post(address, "/breakers/orders-db/open"), "control")
    check(await post(address, "/v1/dependencies/orders-db/permit"), "permit")
    recorded = json.dumps({"status": 503, "body": "{}"})
    check(await post(address, "/v1/classify", body=recorded), "classify")
    check(await post(address, "/reload"), "reload")
    for id_, target in (
        ("status", "/status"),
        ("healthz", "/healthz"),
        ("readyz", "/readyz"),
        ("faults", "/faults"),
        ("failures", "/v1/failures"),
        ("failures", "/v1/failures?by=provider,class&minutes"),
        ("failures", "/v1/failures?after=0&refusals"),
        ("failure", "/v1/failures/abc"),
    ):
        answer = await call(address, target, "GET", ADMIN)
        assert answer.status == 200, target
        check(answer, id_)


def test_a_document_with_another_member_is_not_that_shape() -> None:
    with pytest.raises(msgspec.ValidationError, match="extra"):
        msgspec.json.decode(b'{"status": "ok", "extra": 1}', type=documents.Health)


async def test_beyond_loopback_it_needs_the_token(tmp_path: Path) -> None:
    from sidecar.config.addresses import Listen

    text = "admin: {listen: '0.0.0.0:0', token_file: " + str(tmp_path / "token") + "}\n" + PROVIDERS
    daemon = Daemon(tmp_path, text, token="hunter2-hunter2")
    plane, address = await started(daemon, Listen(host="0.0.0.0", port=0))
    address = address.replace("0.0.0.0", "127.0.0.1")
    try:
        assert (await call(address, "/openapi.json")).status == 401
        token = "Authorization: Bearer hunter2-hunter2"
        assert (await call(address, "/openapi.json", "GET", token)).status == 200
    finally:
        await plane.stop()


CONFIG = """\
faults: {allowed: true}
providers:
  openai: {upstream: "http://127.0.0.1:9", dialect: openai}
dependencies:
  orders-db: {source: database, vendor: postgresql}
  payments: {source: sdk, sdk: stripe}
"""


def test_a_daemon_does_what_is_described(tmp_path: Path) -> None:
    """Schemathesis asks it by the description, rightly and wrongly, and looks at the answers."""
    if importlib.util.find_spec("schemathesis") is None:
        need("schemathesis, of the group tests")
    port = free_port()
    config, log = tmp_path / "breakers.yaml", tmp_path / "log"
    config.write_text(CONFIG)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)}
    listen = ["--listen", "127.0.0.1:0", "--admin", f"127.0.0.1:{port}"]
    with log.open("w") as lines:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "sidecar", "serve", "--config", str(config), *listen],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=lines,
        )
    try:
        wait_for(lambda: ready(port))
        asked = subprocess.run(
            [
                sys.executable, "-m", "schemathesis.cli",
                "--config-file", str(Path(__file__).with_name("schemathesis.toml")),
                "run", f"http://127.0.0.1:{port}/openapi.json",
                "-H", "x-sidecar-admin: 1",
                "--max-examples", os.environ.get("SCHEMATHESIS_EXAMPLES", "5"),
                "--seed", "1",
                "--request-timeout", "10",
                "--no-color",
            ],
            check=False,
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
        )  # fmt: skip
    finally:
        daemon.terminate()
        daemon.wait(10)
    assert asked.returncode == 0, asked.stdout[-8000:]
    assert "internal_error" not in log.read_text()
    assert '"event":"fault"' not in log.read_text()
