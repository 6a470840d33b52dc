"""The container image: its Dockerfile, its file tree built without an engine, the daemon in it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.conftest import need

from . import image
from .image import ROOT, Container

MIB = 2**20
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROMPTLY = 2.0


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with their continued lines."""
    lines = [line for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]
    text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines())]


def final() -> dict[str, list[str]]:
    """Of the last stage alone: what each instruction says."""
    found: dict[str, list[str]] = {}
    for name, rest in instructions():
        if name == "FROM":
            found = {}
        found.setdefault(name, []).append(rest)
    return found


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    if why := image.missing():
        need(f"the image's tree cannot be built: {why}")
    folder = tmp_path_factory.mktemp("image")
    made, again = folder / "tree", folder / "again"
    image.lay_base(made)
    (made / "etc/breaker-sidecar").mkdir()
    (again / "opt/breaker-sidecar").mkdir(parents=True)
    # Twice at once, from two places: whether both are the same is one of the tests.
    with ThreadPoolExecutor() as pool:
        sources = image.copy_source(folder / "source"), image.copy_source(folder / "elsewhere")
        list(pool.map(image.install, (made, again), sources))
    return made


@pytest.fixture
def container(tree, tmp_path):
    made: list[Container] = []

    def begin(*command: str, **more) -> Container:
        entry = json.loads(final()["ENTRYPOINT"][0])
        words = [*entry, *(command or json.loads(final()["CMD"][0]))]
        made.append(Container(tree, words, tmp_path / f"log-{len(made)}", **more))
        return made[-1]

    yield begin
    for one in made:
        one.end()


def listening(one: Container) -> dict[str, list[str]]:
    """Where the daemon listens, once it does."""
    deadline = time.monotonic() + image.LIMIT
    while one.popen.poll() is None and time.monotonic() < deadline:
        for line in one.log.read_text().splitlines(keepends=True):
            with_event = json.loads(line) if line.endswith("\n") else {"event": ""}
            if with_event["event"] == "daemon.listening":
                return with_event["addresses"]
        time.sleep(0.01)
    raise AssertionError(one.log.read_text())


CONFIG = "providers: {up: {upstream: 'http://127.0.0.1:1'}}\n"
FREE = {"BREAKER_SIDECAR_LISTEN": "127.0.0.1:0", "BREAKER_SIDECAR_ADMIN": "127.0.0.1:0"}


def test_the_linter_has_nothing_to_say():
    found = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        need("hadolint is not installed")
    done = subprocess.run(
        [found, "--no-color", "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_f136_the_entrypoint_is_the_process_itself():
    last = final()
    # A shell in between would keep the signals to itself.
    assert json.loads(last["ENTRYPOINT"][0])[-1] == "/opt/breaker-sidecar/bin/breaker-sidecar"
    assert json.loads(last["CMD"][0]) == ["serve"]
    health = last["HEALTHCHECK"][0].partition(" CMD ")[2]
    assert json.loads(health) == ["/opt/breaker-sidecar/bin/breaker-sidecar", "healthcheck"]
    assert last["USER"] == ["65532:65532"]
    assert "RUN" not in last
    assert not any("0.0.0.0" in rest for _, rest in instructions())
    assert {word.split("=")[0] for word in shlex.split(last["LABEL"][0])} >= {
        f"org.opencontainers.image.{name}"
        for name in ("title", "description", "licenses", "version", "revision")
    }


def test_the_build_sees_what_it_needs_and_no_more():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(line for line in lines if line and not line.startswith("#")) == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == set(image.SOURCE)
    copied = {
        word
        for name, rest in instructions()
        if name == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    }
    assert copied == set(image.SOURCE)


def test_the_lock_holds_what_the_project_needs():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "container/requirements.txt").read_text()
    locked = {name.lower() for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)}
    needed = {re.split(r"[\[<>=; ]", line)[0].lower() for line in project["dependencies"]}
    assert needed <= locked


def test_the_tree_is_small_and_has_no_shell(tree, record_testsuite_property):
    record_testsuite_property("MiB of the image", image.size(tree) // MIB)
    assert image.size(tree) < 150 * MIB
    for shell in ("sh", "bash", "dash"):
        assert not (tree / "usr/bin" / shell).exists()
    assert [one.name for one in (tree / "opt/breaker-sidecar/bin").iterdir() if one.is_file()]
    assert not list((tree / "opt/breaker-sidecar").glob("**/pip"))
    loose = [one for one in (tree / "opt").rglob("*") if not one.is_symlink()]
    assert not [one for one in loose if one.stat().st_mode & 0o022]


def test_the_same_source_gives_the_same_files(tree):
    first = image.digest(tree / "opt/breaker-sidecar")
    second = image.digest(tree.parent / "again/opt/breaker-sidecar")
    differ = {path for path in first.keys() | second.keys() if first.get(path) != second.get(path)}
    assert differ == set()


def test_the_daemon_runs_in_it(container, tree):
    """As the fixed user, on a root that cannot be written to, with the image's own default."""
    one = container(environ=FREE)
    addresses = listening(one)
    status = Path(f"/proc/{one.daemon}/status").read_text()
    assert re.search(r"^Uid:\s+65532\s+65532\s+65532\s+65532$", status, re.MULTILINE)
    mounts = Path(f"/proc/{one.daemon}/mounts").read_text().splitlines()
    (root,) = [line.split() for line in mounts if line.split()[1] == "/"]
    assert "ro" in root[3].split(",")
    lines = [json.loads(line) for line in one.log.read_text().splitlines()]
    assert next(line for line in lines if line["event"] == "daemon.listening")["providers"]
    # The image's own health check, as an engine runs it: beside the daemon.
    check = json.loads(final()["HEALTHCHECK"][0].partition(" CMD ")[2])
    for address, code in ((addresses["admin"][0], 0), ("127.0.0.1:9", 1)):
        beside = Container(
            tree, [*check, "--admin", address], one.log.with_suffix(".check"), environ=FREE
        )
        assert beside.popen.wait(image.LIMIT) == code
    one.stop()
    assert one.popen.wait(image.LIMIT) == 0


def test_a_mounted_folder_is_its_configuration(container, tmp_path):
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "breakers.yaml").write_text(CONFIG)
    one = container(config=folder, environ=FREE)
    listening(one)
    told = [json.loads(line) for line in one.log.read_text().splitlines()]
    assert next(line for line in told if line["event"] == "daemon.listening")["providers"] == ["up"]
    one.stop()
    assert one.popen.wait(image.LIMIT) == 0


def test_it_listens_on_loopback_unless_told(container, tmp_path):
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "breakers.yaml").write_text(CONFIG)
    plain = container("check", "--print", config=folder)
    assert plain.popen.wait(image.LIMIT) == 0
    shown = yaml.safe_load(plain.log.read_text())
    assert (shown["listen"], shown["admin"]["listen"]) == ("localhost:7600", "localhost:7601")
    told = container("serve", "--listen", "0.0.0.0:0", "--admin", "127.0.0.1:0")
    assert listening(told)["listen"][0].startswith("0.0.0.0:")


def test_f136_a_stop_at_every_moment_of_the_start(container):
    moments = (0, 0.01, 0.05, 0.1, 0.3, 1.0)
    for moment in moments:
        one = container(environ=FREE)
        one.began()
        # The moment itself is what is tested.
        time.sleep(moment)
        os.kill(one.began(), signal.SIGTERM)
        assert one.popen.wait(PROMPTLY + 3) == 0, (moment, one.log.read_text())
        assert "Traceback" not in one.log.read_text()


# -- compose ---------------------------------------------------------------------------------


def test_compose_has_an_agent_and_its_sidecar():
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    sidecar, agent = services["sidecar"], services["agent"]
    assert sidecar["read_only"] is True
    assert sidecar["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in sidecar["security_opt"]
    assert sidecar["user"] == "65532:65532"
    # One network for both, so that loopback is enough and no port is published.
    assert agent["network_mode"] == "service:sidecar"
    assert "ports" not in sidecar
    assert agent["depends_on"]["sidecar"]["condition"] == "service_healthy"


def test_compose_gives_the_agent_what_env_prints():
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    shipped = yaml.safe_load((ROOT / "breakers.yaml").read_text())["providers"]
    known = {
        variable: f"http://localhost:7600/{name}{path}"
        for name, provider in shipped.items()
        for variable, path in (provider.get("env") or {}).items()
    }
    for variable, value in services["agent"]["environment"].items():
        if variable != "BREAKER_SIDECAR_ADMIN":
            assert known[variable] == value
