"""A daemon as a process, an API on loopback that answers what it is told, and a caller."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.cli.conftest import free_port, ready, wait_for

ROOT = Path(__file__).resolve().parents[2]
GOOD = (200, {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})
BROKEN = (500, {"error": {"message": "boom", "code": "server_error"}})


class Api:
    """Answers by the model of the request."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                size = int(self.headers["content-length"])
                model = json.loads(self.rfile.read(size))["model"]
                status, document = api.answers.get(model, GOOD)
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Scene:
    """One daemon, on ports that it keeps over a restart."""

    def __init__(
        self, folder: Path, api: Api, document: dict[str, Any], host: str = "127.0.0.1"
    ) -> None:
        self.api = api
        self.host = host
        self.data, self.admin = free_port(), free_port()
        self.config = folder / "breakers.yaml"
        self.process: subprocess.Popen[bytes] | None = None
        self.write(document)

    @property
    def page(self) -> str:
        return f"http://127.0.0.1:{self.admin}/"

    def write(self, document: dict[str, Any]) -> None:
        top = {"listen": f"127.0.0.1:{self.data}", "drain": {"timeout": "0s"}}
        admin = {"listen": f"{self.host}:{self.admin}", **document.get("admin", {})}
        self.config.write_text(yaml.safe_dump({**document, **top, "admin": admin}))

    def start(self) -> None:
        command = [sys.executable, "-P", "-W", "error", "-m", "sidecar", "serve"]
        self.process = subprocess.Popen(
            [*command, "--config", str(self.config), "--log-level", "error"],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
        )
        wait_for(lambda: ready(self.admin) or self.process.poll() is not None)
        assert self.process.poll() is None

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.process.kill()
        self.process.wait()
        self.process = None

    def reload(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    # -- traffic ----------------------------------------------------------------------------

    def call(
        self, model: str, provider: str = "openai", correlation_id: str = "", prompt: str = "hi"
    ) -> int:
        body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
        headers = {"content-type": "application/json"}
        if correlation_id:
            headers["x-correlation-id"] = correlation_id
        return self._post(self.data, f"/{provider}/v1/chat/completions", body, headers)[0]

    def trip(self, model: str, provider: str = "openai", times: int = 5) -> None:
        """Lets so many different calls of a model fail."""
        self.api.answers[model] = BROKEN
        for number in range(times):
            self.call(model, provider, prompt=f"unlucky {number}")

    def report(self, dependency: str, error: dict[str, Any]) -> None:
        """Lets one call of a dependency fail."""
        path = f"/v1/dependencies/{dependency}"
        _, given = self._post(self.admin, f"{path}/permit", {}, {"x-sidecar-admin": "1"})
        report = {"permit": given["permit"], "error": error}
        self._post(self.admin, f"{path}/report", report, {"x-sidecar-admin": "1"})

    def status(self) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=10)
        try:
            connection.request("GET", "/status")
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    @staticmethod
    def _post(port: int, path: str, document: Any, headers: dict[str, str]) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("POST", path, json.dumps(document).encode(), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


def provider(url: str, **more: Any) -> dict[str, Any]:
    """A provider whose breaker opens for a time that a test can wait for."""
    breaker = {"open_for": "3s", "jitter": 0, **more.pop("breaker", {})}
    return {"upstream": url, "dialect": "openai", "breaker": breaker, **more}
