"""Where the daemon's credentials come from, and when they are asked for again."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sidecar.proxy import aws_credentials
from sidecar.proxy.aws_credentials import CredentialSource, Found, find, key_of, reason_of
from sidecar.proxy.failures import Refused
from sidecar.proxy.sigv4 import Key
from tests.field.process import Process
from tests.field.scene import until

from .aws import forget_this_machine, sessions
from .callers import Caller, call, request
from .upstreams import Upstream, answer, says


class Frozen(NamedTuple):
    access_key: str
    secret_key: str
    token: str | None = None


@dataclass
class Chain:
    """Credentials as botocore has them, with an end that a test moves."""

    keys: deque[Frozen | Exception]
    left: float = 3600.0
    asked: int = 0
    wait: threading.Event | None = None

    def get_frozen_credentials(self) -> Frozen:
        self.asked += 1
        if self.wait is not None:
            assert self.wait.wait(30)
        key = self.keys[0] if len(self.keys) == 1 else self.keys.popleft()
        if isinstance(key, Exception):
            raise key
        return key

    def refresh_needed(self, within: float | None = None) -> bool:
        return self.left < (900.0 if within is None else within)


@dataclass
class Finder:
    """Stands for `find`: what each search comes to, in turn."""

    results: deque[Any]
    calls: list[tuple[str | None, str]] = field(default_factory=list)
    wait: threading.Event | None = None

    def __call__(self, profile: str | None, region: str) -> Found:
        self.calls.append((profile, region))
        if self.wait is not None:
            assert self.wait.wait(30)
        result = self.results[0] if len(self.results) == 1 else self.results.popleft()
        if isinstance(result, Exception):
            raise result
        return Found(key_of(result), result, (), ())


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


Finds = Callable[..., Finder]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(aws_credentials, "machine", clock)
    return clock


@pytest.fixture
def finds(monkeypatch: pytest.MonkeyPatch) -> Finds:
    def make(*results: Any) -> Finder:
        finder = Finder(deque(results))
        monkeypatch.setattr(aws_credentials, "find", finder)
        return finder

    return make


@pytest.fixture
def source() -> Callable[..., CredentialSource]:
    def make(profile: str | None = None) -> CredentialSource:
        loop = asyncio.get_running_loop()
        return CredentialSource("up", profile, "us-east-1", loop)

    return make


def chain(*names: str | Exception, left: float = 3600.0) -> Chain:
    keys = [Frozen(one, f"{one}-secret") if isinstance(one, str) else one for one in names]
    return Chain(deque(keys), left)


async def quiet(source: CredentialSource) -> None:
    """Waits until nothing is looked up any more."""
    while source._search is not None:
        await asyncio.wait({source._search})


async def refusal(source: CredentialSource) -> str:
    with pytest.raises(Refused) as raised:
        await source.key()
    assert raised.value.decision == "missing_credentials"
    return raised.value.detail


# -- when they are asked for ------------------------------------------------------------------


async def test_they_are_found_once(clock, finds, source) -> None:
    finder = finds(chain("A"))
    one = source("mine")
    keys = await asyncio.gather(*(one.key() for _ in range(20)))
    clock.now += 1e6
    assert {*keys, await one.key()} == {Key("A", "A-secret", None)}
    assert finder.calls == [("mine", "us-east-1")]


async def test_the_loop_runs_on_while_they_are_looked_up(clock, finds, source) -> None:
    finder = finds(chain("A"))
    finder.wait = threading.Event()
    one = source()
    waiting = asyncio.create_task(one.key())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    finder.wait.set()
    assert (await waiting).name == "A"


async def test_a_caller_that_leaves_takes_nobody_along(clock, finds, source) -> None:
    finder = finds(chain("A"))
    finder.wait = threading.Event()
    one = source()
    leaving, staying = (asyncio.create_task(one.key()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait({leaving})
    finder.wait.set()
    assert (await staying).name == "A"
    assert len(finder.calls) == 1


async def test_a_failing_chain_is_not_asked_for_every_call(clock, finds, source) -> None:
    finder = finds(OSError("nobody answers"), chain("A"))
    one = source()
    for _ in range(5):
        assert "nobody answers" in await refusal(one)
    assert len(finder.calls) == 1
    clock.now += aws_credentials.AGAIN
    assert (await one.key()).name == "A"


async def test_a_search_that_takes_long_serves_the_next_call(
    clock, finds, source, monkeypatch
) -> None:
    monkeypatch.setattr(aws_credentials, "WAIT", 0.0)
    finder = finds(chain("A"))
    finder.wait = threading.Event()
    one = source()
    for _ in range(3):
        assert "within 0 s" in await refusal(one)
        clock.now += 100
    assert len(finder.calls) == 1
    finder.wait.set()
    await quiet(one)
    assert (await one.key()).name == "A"


async def test_they_are_renewed_before_they_end(clock, finds, source) -> None:
    found = chain("A", "B")
    finder = finds(found)
    one = source()
    assert (await one.key()).name == "A"
    found.left = 800.0
    clock.now += 2800
    # Good for a while yet: nobody waits for the new ones.
    assert (await one.key()).name == "A"
    await quiet(one)
    assert (await one.key()).name == "B"
    assert (len(finder.calls), found.asked) == (1, 2)


async def test_near_their_end_a_call_waits(clock, finds, source) -> None:
    found = chain("A", "B")
    finds(found)
    one = source()
    assert (await one.key()).name == "A"
    found.left = 30.0
    clock.now += 3570
    assert (await one.key()).name == "B"


async def test_what_cannot_be_renewed_is_used_to_its_end(clock, finds, source) -> None:
    found = chain("A", OSError("nobody answers"))
    finds(found)
    one = source()
    assert (await one.key()).name == "A"
    found.left = 30.0
    clock.now += 3570
    assert (await one.key()).name == "A"
    found.left = -1.0
    assert "nobody answers" in await refusal(one)
    assert found.asked == 2
    clock.now += aws_credentials.AGAIN
    assert "nobody answers" in await refusal(one)
    assert found.asked == 3


async def test_what_the_upstream_calls_ended_is_replaced(clock, finds, source) -> None:
    finder = finds(chain("A"), chain("B"))
    one = source()
    first = await one.key()
    clock.now += aws_credentials.AGAIN
    one.distrust(Key("other", "", None))
    assert await one.key() == first
    one.distrust(first)
    assert (await one.key()).name == "B"
    # Calls that were under way say the same of the old ones.
    one.distrust(first)
    assert (await one.key()).name == "B"
    assert len(finder.calls) == 2


async def test_where_there_are_no_others_the_old_ones_are_tried(clock, finds, source) -> None:
    """The upstream may be wrong, and has the last word anyway."""
    finder = finds(chain("A"), OSError("nobody answers"), chain("B"))
    one = source()
    first = await one.key()
    clock.now += aws_credentials.AGAIN
    one.distrust(first)
    assert await one.key() == first
    assert await one.key() == first
    assert len(finder.calls) == 2
    clock.now += aws_credentials.AGAIN
    assert (await one.key()).name == "B"


async def test_a_loop_that_has_gone_is_no_fault(finds, source) -> None:
    finder = finds(chain("A"))
    finder.wait = threading.Event()
    inner: list[threading.Thread] = []

    def run() -> None:
        async def begin() -> None:
            before = set(threading.enumerate())
            source().begin()
            inner.extend(set(threading.enumerate()) - before)

        asyncio.run(begin())

    await asyncio.to_thread(run)
    finder.wait.set()
    (thread,) = inner
    await asyncio.to_thread(thread.join)
    assert thread.daemon


async def test_the_log_says_it_once(clock, finds, source, caplog) -> None:
    caplog.set_level(logging.INFO, logger="sidecar")
    down = OSError("nobody answers")
    finds(down, down, chain("A"))
    one = source()
    for _ in range(2):
        await refusal(one)
        clock.now += aws_credentials.AGAIN
    await one.key()
    await one.key()
    said = [record.message for record in caplog.records]
    assert said == ["credentials.failed", "credentials.found"]


# -- botocore's own chain ---------------------------------------------------------------------


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    forget_this_machine(monkeypatch, tmp_path)
    return tmp_path


def write(file: Path, text: str) -> None:
    """Changes a file, and the time of its last change for certain."""
    stamp = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(text)
    while file.stat().st_mtime_ns == stamp:
        file.touch()


def test_from_the_environment(files, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert find(None, "us-east-1").key == Key("AKID", "secret", None)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    assert find(None, "us-east-1").key == Key("AKID", "secret", "token")


def test_from_a_profile(files, monkeypatch) -> None:
    """Named in the configuration it goes before the environment's key, named by a variable not."""
    (files / "credentials").write_text(
        "[work]\naws_access_key_id = AKIDWORK\naws_secret_access_key = s\n"
    )
    assert find("work", "us-east-1").key.name == "AKIDWORK"
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert find(None, "us-east-1").key.name == "AKIDWORK"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert find("work", "us-east-1").key.name == "AKIDWORK"
    assert find(None, "us-east-1").key.name == "AKIDENV"


async def test_shared_files_that_change_are_read_again(files, source, monkeypatch) -> None:
    monkeypatch.setattr(aws_credentials, "AGAIN", 0.0)
    monkeypatch.setattr(aws_credentials, "LOOK", 0.0)
    lines = "[default]\naws_access_key_id = {0}\naws_secret_access_key = s\n"
    write(files / "credentials", lines.format("AKIDONE"))
    one = source()
    assert (await one.key()).name == "AKIDONE"
    write(files / "credentials", lines.format("AKIDTWO"))
    assert (await one.key()).name == "AKIDTWO"
    # Half written, or gone: what was read stays.
    write(files / "credentials", "[default\n")
    assert (await one.key()).name == "AKIDTWO"
    (files / "credentials").unlink()
    assert (await one.key()).name == "AKIDTWO"
    write(files / "credentials", lines.format("AKIDTHREE"))
    assert (await one.key()).name == "AKIDTHREE"


async def test_sessions_of_a_process_are_renewed(files, source, monkeypatch) -> None:
    monkeypatch.setattr(aws_credentials, "AGAIN", 0.0)
    # botocore renews at once what has less than a quarter of an hour left.
    sessions(files, [50, 50, 3600])
    one = source()
    assert (await one.key()) == Key("ASIA1", "secret", "token-1")
    assert (await one.key()) == Key("ASIA2", "secret", "token-2")
    assert (await one.key()) == Key("ASIA2", "secret", "token-2")
    assert (files / "count").read_text() == "3"


async def test_from_a_container(files, upstream: Upstream, source, monkeypatch) -> None:
    end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = {
        "AccessKeyId": "ASIAROLE", "SecretAccessKey": "s", "Token": "t", "Expiration": end,
    }  # fmt: skip
    upstream.script = says(answer(200, json.dumps(told).encode()))
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{upstream.url}/role")
    one = source()
    assert (await one.key()) == Key("ASIAROLE", "s", "t")
    assert (await one.key()) == Key("ASIAROLE", "s", "t")
    assert [seen.target for seen in upstream.requests] == [b"/role"]


async def test_a_role_is_assumed_in_the_region_of_the_provider(
    files, upstream: Upstream, source, monkeypatch
) -> None:
    """Where neither environment nor files name one, the token service is that of the endpoint."""
    body = (
        "<AssumeRoleResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><AssumeRoleResult>"
        "<AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn>"
        "<AssumedRoleId>R:s</AssumedRoleId></AssumedRoleUser>"
        "<Credentials><AccessKeyId>ASIASTS</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
        "<SessionToken>t</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
        "</AssumeRoleResult></AssumeRoleResponse>"
    )
    upstream.script = says(answer(200, body.encode(), kind=b"text/xml"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", upstream.url)
    (files / "config").write_text(
        "[default]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = base\n"
        "[profile base]\naws_access_key_id = AKIDBASE\naws_secret_access_key = s\n"
    )
    assert (await source().key()) == Key("ASIASTS", "s", "t")
    (seen,) = upstream.requests
    assert b"/us-east-1/sts/aws4_request" in (seen.get(b"authorization") or b"")


# -- what is said where there are none --------------------------------------------------------


async def test_none_at_all(files, source) -> None:
    assert "sign.aws.profile" in await refusal(source())


async def test_a_profile_that_has_gone(files, source) -> None:
    assert "(mine) could not be found" in await refusal(source("mine"))


async def test_a_session_of_sso_that_has_ended(files, source, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(files))
    (files / "config").write_text(
        "[default]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = r\n"
        "[sso-session corp]\nsso_region = us-east-1\nsso_start_url = https://x.example/start\n"
    )
    assert "SSO" in await refusal(source())


async def test_a_process_that_fails(files, source) -> None:
    """What it says may hold a key."""
    code = "import sys; sys.exit('no: password=hunter2hunter2 for you')"
    (files / "script.py").write_text(code)
    (files / "config").write_text(
        f"[default]\ncredential_process = {sys.executable} {files / 'script.py'}\n"
    )
    said = await refusal(source())
    assert "credentials cannot be had" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("token", ["to ken", "token\nx-evil: 1", "tok\u00e9n"])
def test_what_no_header_can_carry(files, monkeypatch, token) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    with pytest.raises(aws_credentials.NoCredentials, match="no header can carry"):
        find(None, "us-east-1")


def test_without_botocore() -> None:
    said = reason_of(ModuleNotFoundError("No module named 'botocore'"))
    assert "pip install 'breaker-sidecar[aws]'" in said


async def test_a_command_that_never_answers_keeps_no_daemon_alive(files, tmp_path) -> None:
    marker = files / "runs"
    script = files / "hangs.py"
    script.write_text(
        "import pathlib, signal\nsignal.alarm(20)\n"
        f"pathlib.Path({str(marker)!r}).touch()\nsignal.pause()\n"
    )
    (files / "config").write_text(f"[default]\ncredential_process = {sys.executable} {script}\n")
    sign = {"aws": {"service": "bedrock", "region": "us-east-1"}}
    daemon = Process(
        tmp_path / "process",
        {"up": {"upstream": "http://127.0.0.1:9", "sign": sign}},
        environ={"AWS_CONFIG_FILE": str(files / "config"), "AWS_EC2_METADATA_DISABLED": "true"},
        drain={"timeout": "0s"},
    )
    try:
        await daemon.listening()
        await until(marker.exists)
        caller = await Caller.connect(daemon.port)
        await caller.send(request("/up/x"))
        while True:
            status = await call(daemon.admin_port, "/status")
            if status.json["providers"]["up"]["in_flight"]:
                break
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code(10) == 0
        assert (await caller.answer()).envelope["code"] == "draining"
        assert not daemon.lines("fault")
    finally:
        await Caller.close_all()
        await daemon.end()
