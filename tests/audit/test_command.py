"""`breaker-sidecar audit` as a command: what it prints, what it ends with, whose key it sends."""

import asyncio
import json
from pathlib import Path

import pytest

from sidecar.cli import audit as command
from sidecar.cli import main
from sidecar.cli.errors import Exit

from .upstream import KEY, MODEL, Started, Upstream, error

LIE = {"model": (503, error("The model does not exist", "model_not_found"))}


class Command:
    """Runs it against one upstream."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file = folder / "breakers.yaml"
        self._capsys = capsys

    async def __call__(self, upstream: Upstream, *arguments: str, extra: str = "") -> int:
        self.file.write_text(
            f"providers:\n  p: {{upstream: '{upstream.url}', dialect: openai{extra}}}\n"
            "  off: {upstream: 'https://${NOT_SET_ANYWHERE}'}\n"
        )
        argv = ["audit", "p", "--config", str(self.file), *arguments]
        code = await asyncio.to_thread(main, argv)
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    monkeypatch.setenv("AUDIT_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    return Command(tmp_path, capsys)


WITH_KEY = ("--key-env", "AUDIT_KEY")


async def test_an_honest_upstream(run: Command, started: Started) -> None:
    assert await run(await started(), *WITH_KEY) == Exit.FINE
    lines = run.out.splitlines()
    assert lines[0].startswith("audit p: http://127.0.0.1:")
    assert lines[-1] == "10 cases: 10 right"
    assert all("right" in line for line in lines[1:-1])


async def test_one_that_misleads(run: Command, started: Started) -> None:
    assert await run(await started(lies=LIE), *WITH_KEY) == Exit.MISLEADS
    (line,) = [line for line in run.out.splitlines() if line.startswith("case chat/unknown_model")]
    assert "503 permanent model_not_found" in line
    assert "the daemon sends 404" in line
    assert "a status-only breaker counts a failure" in line
    assert "openai asks 3 times, then InternalServerError" in line
    assert "anthropic asks 3 times, then ServiceUnavailableError" in line


async def test_as_json(run: Command, started: Started) -> None:
    assert await run(await started(lies=LIE), *WITH_KEY, "--json") == Exit.MISLEADS
    document = json.loads(run.out)
    assert document["misleads"] is True
    case = next(case for case in document["cases"] if case["id"] == "chat/unknown_model")
    assert case["class"] == "permanent"
    assert case["openai"] == {"requests": 3, "wait": None, "error": "InternalServerError"}
    assert document["counts"]["misleads"] == 2


async def test_a_baseline(run: Command, started: Started, tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    arguments = (*WITH_KEY, "--baseline", str(file))
    upstream = await started()
    assert await run(upstream, *arguments) == Exit.FINE
    assert f"{file}: written" in run.err
    first = file.read_text()
    assert await run(upstream, *arguments) == Exit.FINE
    assert file.read_text() == first
    upstream.lies["wrong"] = (0, None)
    upstream.lies["key"] = (404, error("no such account", "account_not_found"))
    assert await run(upstream, *arguments) == Exit.MISLEADS
    assert "breaking wrong_key: 401 authentication invalid_api_key -> 404 permanent" in run.out
    assert file.read_text() == first
    assert await run(upstream, *arguments, "--json") == Exit.MISLEADS
    (change,) = json.loads(run.out)["changes"]
    assert (change["id"], change["breaking"]) == ("wrong_key", True)
    await run(upstream, *arguments, "--update-baseline")
    assert await run(upstream, *arguments) == Exit.MISLEADS
    assert "breaking" not in run.out


async def test_a_change_of_class_alone_ends_with_4(
    run: Command, started: Started, tmp_path: Path
) -> None:
    file = tmp_path / "known.json"
    upstream = await started()
    await run(upstream, *WITH_KEY, "--baseline", str(file))
    document = json.loads(file.read_text())
    document["cases"]["wrong_method"]["class"] = "validation"
    file.write_text(json.dumps(document))
    assert await run(upstream, *WITH_KEY, "--baseline", str(file)) == Exit.MISLEADS
    assert await run(
        upstream, *WITH_KEY, "--baseline", str(file), "--update-baseline"
    ) == Exit.FINE  # fmt: skip
    assert await run(upstream, *WITH_KEY, "--baseline", str(file)) == Exit.FINE


async def test_a_key_of_the_environment_goes_to_nobody_else(run: Command, started: Started) -> None:
    upstream = await started()
    assert await run(upstream) == Exit.FINE
    assert "key: none" in run.out
    assert not any("environment" in str(asked.headers) for asked in upstream.asked)


@pytest.mark.parametrize(
    ("upstream", "dialect", "own"),
    [
        ("https://api.openai.com", "openai", True),
        ("https://api.openai.com", "auto", True),
        ("http://api.openai.com", "openai", False),
        ("https://api.openai.com.example.net", "openai", False),
        ("https://gateway.example", "openai", False),
        ("https://api.groq.com", "openai", False),
        ("unix:/run/x.sock", "openai", False),
    ],
)
def test_whose_key_the_environment_s_is(
    tmp_path: Path, upstream: str, dialect: str, own: bool
) -> None:
    from .conftest import provider

    assert command._is_own_host(provider(tmp_path, upstream, dialect=dialect)) is own


async def test_a_key_file(run: Command, started: Started, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    assert await run(await started(), "--key-file", str(file)) == Exit.FINE
    assert "10 right" in run.out


async def test_a_prompt_beyond_the_context(run: Command, started: Started) -> None:
    upstream = await started()
    allowed = ("--allow-billable", "--model", MODEL, "--context", "2000")
    assert await run(upstream, *WITH_KEY, *allowed) == Exit.FINE
    assert "case chat/context_too_long right" in run.out


USAGE = [
    (["--key-env", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE is not set"),
    (["--key-file", "/nowhere"], "/nowhere"),
    (["--model", "gpt"], "--allow-billable"),
    (["--allow-billable"], "--model"),
    (["--update-baseline"], "--baseline"),
    (["--base", "v1"], "begins with /"),
    (["--path", "/a b"], "no path"),
    (["--context", "0"], "no number of tokens"),
    (["--timeout", "-1"], "no number of seconds"),
    (["--key-env", "A", "--key-file", "b"], "not allowed with"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE, ids=lambda value: str(value)[:40])
async def test_usage(run: Command, started: Started, arguments: list[str], message: str) -> None:
    upstream = await started()
    assert await run(upstream, *arguments) == Exit.USAGE
    assert message in run.err
    assert upstream.asked == []


async def test_a_key_that_the_configuration_sets_is_not_set_twice(
    run: Command, started: Started
) -> None:
    extra = ", set_headers: {authorization: {value: 'Bearer x'}}"
    assert await run(await started(), *WITH_KEY, extra=extra) == Exit.USAGE
    assert "set_headers.authorization" in run.err


@pytest.mark.parametrize(
    ("name", "message"), [("q", "there are: p"), ("off", "NOT_SET_ANYWHERE is not set")]
)
async def test_a_provider_that_there_is_not(
    run: Command, started: Started, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    await run(await started())
    code = await asyncio.to_thread(main, ["audit", name, "--config", str(run.file)])
    assert code == Exit.USAGE
    assert message in capsys.readouterr().err


async def test_nobody_there(run: Command, started: Started) -> None:
    upstream = await started()
    await upstream.stop()
    assert await run(upstream) == Exit.FAILED
    assert "connection refused" in run.err
    await upstream.start()


async def test_a_bad_configuration(run: Command, started: Started) -> None:
    assert await run(await started(), extra=", nonsense: 1") == Exit.BAD_CONFIGURATION


async def test_a_terminal_gets_a_table(
    run: Command, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    assert await run(await started(lies=LIE), *WITH_KEY) == Exit.MISLEADS
    assert "\x1b[" in run.out
    assert "misleads" in run.out
    assert "case chat" not in run.out


async def test_odd_characters_do_no_harm_to_a_terminal(run: Command, started: Started) -> None:
    lies = {"model": (500, error("\x1b[31mred\x07", "code\x1b"))}
    await run(await started(lies=lies), *WITH_KEY)
    assert "\x1b" not in run.out
    assert "\x07" not in run.out
