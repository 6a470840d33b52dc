"""Calls of the admin plane: straight, without a proxy, over TCP, a socket or TLS."""

import http.server
import json
import socketserver
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from sidecar.cli.admin_client import (
    Address,
    AdminClient,
    NoAdminPlaneError,
    UnreachableError,
    explain,
    parse_address,
)
from sidecar.cli.errors import CommandError

from .conftest import free_port


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer({"path": self.path, "headers": dict(self.headers)})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self._answer({"path": self.path, "body": json.loads(body), "headers": dict(self.headers)})

    def _answer(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass

    def address_string(self) -> str:
        return ""


class UnixServer(socketserver.UnixStreamServer):
    def get_request(self):
        request, _ = super().get_request()
        return request, ("", 0)


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        yield from running(server)


def running(server):
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:7601", Address("localhost", 7601)),
        ("localhost", Address("localhost", 7601)),
        ("http://127.0.0.1:9/", Address("127.0.0.1", 9)),
        ("HTTPS://x.example:9", Address("x.example", 9, tls=True)),
        ("[::1]:9", Address("::1", 9)),
        ("0.0.0.0:9", Address("127.0.0.1", 9)),
        ("[::]:9", Address("::1", 9)),
        ("unix:/run/x.sock", Address(path="/run/x.sock")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address
    assert parse_address(address.url) == address


@pytest.mark.parametrize(
    "text", ["", "http://", "x:y", "x:99999", "u@x:1", "x/path", "unix:relative", "x?y"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_address(text)
    assert caught.value.exit_code == 2


def test_a_proxy_of_the_environment_is_not_used(
    server: http.server.HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    client = AdminClient(Address("127.0.0.1", server.server_port), token="t")
    status, document = client.get("/status")
    assert (status, document["path"]) == (200, "/status")
    headers = {name.lower(): value for name, value in document["headers"].items()}
    assert headers["authorization"] == "Bearer t"
    assert headers["x-sidecar-admin"] == "1"


def test_a_key_is_one_segment(server: http.server.HTTPServer) -> None:
    client = AdminClient(Address("localhost", server.server_port))
    _, document = client.control("openai/~v1/files?x", "open", {"for": "10m"})
    assert document["path"] == "/breakers/openai%2F~v1%2Ffiles%3Fx/open"
    assert document["body"] == {"for": "10m"}


def test_over_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "admin.sock")
    with UnixServer(path, Handler) as server:
        for _ in running(server):
            assert AdminClient(parse_address(f"unix:{path}")).get("/healthz")[0] == 200


def test_over_tls_the_daemons_own_certificate_is_trusted_and_no_other(tmp_path: Path) -> None:
    authority = trustme.CA()
    ours, other = authority.issue_cert("admin.example"), authority.issue_cert("admin.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.configure_cert(context)
    paths = []
    for name, certificate in (("ours", ours), ("other", other)):
        path = tmp_path / f"{name}.pem"
        certificate.cert_chain_pems[0].write_to_path(str(path))
        paths.append(str(path))
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        for _ in running(server):
            address = Address("127.0.0.1", server.server_port, tls=True, certificate=paths[0])
            assert AdminClient(address).get("/healthz")[0] == 200
            address = Address("127.0.0.1", server.server_port, tls=True, certificate=paths[1])
            with pytest.raises(UnreachableError):
                AdminClient(address).get("/healthz")


def test_nobody_there_says_where(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(UnreachableError, match=f"no daemon answers at 127.0.0.1:{port}") as caught:
        AdminClient(Address("127.0.0.1", port)).get("/healthz")
    assert caught.value.exit_code == 1
    with pytest.raises(UnreachableError, match="unix:"):
        AdminClient(Address(path=str(tmp_path / "none.sock"))).get("/healthz")


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (("server", "nginx"), "answered 404 and is not the admin plane"),
        (("x-sidecar-decision", "unknown_provider"), "is where callers connect, not the admin"),
    ],
)
def test_something_else_answers_there(header: tuple[str, str], says: str) -> None:
    class Foreign(Handler):
        def _answer(self, document: object) -> None:
            self.send_response_only(404)
            self.send_header(*header)
            self.send_header("content-length", "13")
            self.end_headers()
            self.wfile.write(b"<html></html>")

    with http.server.HTTPServer(("127.0.0.1", 0), Foreign) as server:
        for _ in running(server):
            client = AdminClient(Address("127.0.0.1", server.server_port))
            with pytest.raises(NoAdminPlaneError, match=says) as caught:
                client.get("/status")
            with pytest.raises(NoAdminPlaneError, match="--admin"):
                client.control("openai", "reset", {})
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"class": "permanent", "message": "no such\nbreaker"}, "no such breaker"),
        ({"error": {"message": "nested"}}, "nested"),
        ({"error": "short", "envelope": {"message": "enveloped"}}, "enveloped"),
        ("plain \x1b[31m text", "plain \\x1b[31m text"),
        ("", "status 500"),
        (None, "status 500"),
        ([], "status 500"),
    ],
)
def test_an_error_is_explained_in_one_line(document: object, text: str) -> None:
    assert explain(500, document) == text
