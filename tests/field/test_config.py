"""Area config: a reload takes everything or nothing, and what it takes has effect."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import inspect

from sidecar.cli import main
from sidecar.config import schema
from sidecar.config.load import load
from sidecar.config.problems import ConfigError
from sidecar.config.suggest import struct_fields, unwrap
from tests.proxy.callers import call, chat
from tests.proxy.upstreams import Upstream, answer, says

from .scene import (
    JSON,
    OK,
    admin,
    ask,
    base,
    closed,
    document,
    error,
    reload_with,
    shots,
    trip,
    until,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"

BAD_FILES: dict[str, str | bytes | None] = {
    "syntax": "providers: {up: [\n",
    "empty": "",
    "only a comment": "# nothing\n",
    "missing": None,
    "a list": "- providers\n",
    "wrong type": "listen: 127.0.0.1:0\nproviders: 7\n",
    "one bad of three": (
        "providers:\n  a: {upstream: 'http://127.0.0.1:1'}\n"
        "  b: {upstream: 'ftp://x'}\n  c: {upstream: 'http://127.0.0.1:2'}\n"
    ),
    "a bad value after a good change": (
        "allowed_hosts: [new.test]\nproviders:\n  up:\n    upstream: http://127.0.0.1:1\n"
        "    breaker: {open_for: soon}\n"
    ),
    "too large": b"#" * (100 * 2**20),
    "aliases that multiply": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{n}: &{n} [{','.join([f'*{p}'] * 9)}]\n"
        for p, n in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "a tag": "providers: !!python/object/apply:os.system ['touch /tmp/owned']\n",
    "NUL": 'providers: {up: {upstream: "http://x\0"}}\n',
    "not UTF-8": b"providers: {up: {upstream: \xff\xfe}}\n",
}


WITHOUT_A_LINE = {"missing", "empty", "only a comment", "too large", "NUL"}


@pytest.mark.parametrize("name", BAD_FILES)
async def test_f122_a_bad_file_changes_nothing(start, upstream, log, name) -> None:
    upstream.script = says(OK)
    section = base(upstream.url, breaker={"open_for": "60s"})
    running = await start({"up": section, "other": base(upstream.url)})
    await trip(running, upstream, "sick")
    daemon, file = running.daemon, running.daemon._options.config
    good, before = file.read_text(), daemon.config
    bad = BAD_FILES[name]
    if bad is None:
        file.unlink()
    else:
        file.write_bytes(bad if isinstance(bad, bytes) else bad.encode())
    refused = await admin(running, "/reload", "POST")
    assert refused.status == 422
    assert refused.json["error"]["code"] == "invalid_config"
    assert (daemon.config is before, daemon.generation) == (True, 1)
    assert (await ask(running)).status == 200
    assert (await ask(running, "sick")).status == 503
    assert (await call(running.port, "/up/x", host="new.test")).status == 403
    shown = await document(running)
    assert str(file) in shown["config"]["error"]
    assert shown["config"]["generation"] == 1
    (line,) = log.lines("config.refused")
    assert str(file) in line["problems"][0]
    if name not in WITHOUT_A_LINE:
        assert any(f"{file}:{n}" in line["problems"][0] for n in range(1, 30))
    file.write_text(good)
    assert (await admin(running, "/reload", "POST")).status == 200
    assert (await document(running))["config"]["error"] is None
    assert running.breaker("up/sick").state == "open"


async def test_f122_an_unreadable_file_is_one_too(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    file = running.daemon._options.config
    file.unlink()
    file.mkdir()
    assert (await running.daemon.reload()).problems
    assert (await call(running.port)).status == 200


async def test_f122_by_signal_too(process, upstream) -> None:
    upstream.script = says(OK)
    one = await process({"up": base(upstream.url)})
    good = one.config.read_text()
    one.config.write_text(good.replace("upstream:", "upstrem:"))
    one.signal(signal.SIGHUP)
    await until(lambda: one.lines("config.refused"))
    (line,) = one.lines("config.refused")
    problems = "\n".join(line["problems"])
    assert f"{one.config}:" in problems
    assert "upstrem" in problems
    assert (await ask(one)).status == 200
    assert (await document(one))["config"]["error"]
    one.config.write_text(good)
    one.signal(signal.SIGHUP)
    await until(lambda: one.lines("config.reloaded"))
    assert (await document(one))["config"]["error"] is None
    assert one.popen.poll() is None


async def test_f123_an_unrelated_edit_keeps_every_breaker(start, upstream) -> None:
    other = Upstream(says(error(500)))
    await other.start()
    breaker = {"open_for": "60s", "minimum_calls": 100}
    running = await start(
        {
            "up": base(upstream.url, breaker=breaker),
            "b": base(other.url, breaker=breaker),
            "c": base(upstream.url),
            "sheds": base(other.url),
        }
    )
    await trip(running, upstream)
    failing, other.script = other.script, says(answer(429, b"{}", (b"Retry-After", b"600")))
    await call(running.port, "/sheds/v1/chat/completions", "POST", chat(), JSON)
    other.script = failing
    for n in range(4):
        await call(running.port, "/b/v1/chat/completions", "POST", chat(n=n), JSON)
    before = running.breaker("up/gpt-x")
    running.daemon._options.config.write_text(
        running.daemon._options.config.read_text() + "x-note: touched\n"
    )
    assert not (await running.daemon.reload()).problems
    await reload_with(running, "\n  c:", "\n  d:")
    after = running.breaker("up/gpt-x")
    assert (after.state, after.opened_at, after.half_open_at, after.opens) == (
        "open", before.opened_at, before.half_open_at, before.opens
    )  # fmt: skip
    assert running.breaker("b/gpt-x").consecutive_failures == 4
    hits = other.hits
    shed = await call(running.port, "/sheds/v1/chat/completions", "POST", chat(), JSON)
    assert shed.get("x-sidecar-decision") == "shed"
    assert other.hits == hits
    await call(running.port, "/b/v1/chat/completions", "POST", chat(n=99), JSON)
    assert running.breaker("b/gpt-x").state == "open"
    # Only another base URL is another provider.
    await reload_with(running, f"upstream: {other.url}", f"upstream: {upstream.url}/v2")
    assert closed(running, "b")
    assert running.breaker("up/gpt-x").state == "open"
    await other.stop()


# --- F125 to F127 -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("lisen: 127.0.0.1:0\nproviders: {up: {upstream: 'http://x'}}\n", "listen"),
        (
            "providers: {up: {upstream: 'http://x', breaker: {cooldown_tme: 5, open_fr: 5s}}}\n",
            "open_for",
        ),
        ("providers: {up: {upstream: 'http://x', timeouts: {idel: 5s}}}\n", "idle"),
        ("providers: {up: {upstream: 'http://x', open_for: 5s}}\n", "breaker"),
        ("providers: {up: {upstream: 'http://x'}, up: {upstream: 'http://y'}}\n", "up"),
        (
            "providers: {up: {upstream: 'http://x', breaker: {minimum_calls: '5'}}}\n",
            "minimum_calls",
        ),
        ("providers: {up: {upstream: 'http://x', breaker: {open_for: '5 sec'}}}\n", "open_for"),
    ],
)
def test_f125_a_misspelt_key_is_never_ignored(tmp_path, text, hint) -> None:
    file = tmp_path / "breakers.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, environ={})
    assert caught.value.exit_code == 78
    assert hint in "\n".join(map(str, caught.value.problems))
    assert all(str(problem).startswith(f"{file}:") for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("value", "good"),
    [("5", True), ("5s", True), ("500ms", True), ("0.5", True), ("1m30s", False), ("5 sec", False),
     ("'5'", False), ("yes", False), ("on", False), ("5S", False), ("", True)],
)  # fmt: skip
def test_f125_durations_are_strict_and_check_says_the_same(tmp_path, capsys, value, good) -> None:
    _the_same(tmp_path, capsys, f"breaker: {{open_for: {value}}}", good=good)


@pytest.mark.parametrize(
    ("value", "good"),
    [("true", True), ("false", True), ("yes", False), ("on", False), ("'true'", False),
     ("1", False)],
)  # fmt: skip
def test_f125_booleans_are_two(tmp_path, capsys, value, good) -> None:
    _the_same(tmp_path, capsys, f"breaker: {{fail_fast: {value}}}", good=good)


def _the_same(tmp_path, capsys, section: str, *, good: bool) -> None:
    file = tmp_path / "breakers.yaml"
    file.write_text(f"providers: {{up: {{upstream: 'http://x', {section}}}}}\n")
    try:
        load(file, environ={})
    except ConfigError as error:
        problems = [str(problem) for problem in error.problems]
    else:
        problems = []
    assert bool(problems) is not good
    code = main(["check", "--config", str(file)])
    assert code == (0 if good else 78)
    told = capsys.readouterr()
    assert all(problem in told.out + told.err for problem in problems)


def _numbers(section: type, path: str = "") -> Iterator[tuple[str, str]]:
    """Every numeric setting of a section, with what the reference says of it."""
    for name, field in struct_fields(section).items():
        kind = unwrap(field.type)
        if isinstance(kind, inspect.StructType):
            yield from _numbers(kind.cls, f"{path}{name}.")
        elif isinstance(kind, inspect.IntType | inspect.FloatType):
            yield path + name, name


def _with(key: str, value: str, upstream: str = "http://x") -> str:
    *sections, last = key.split(".")
    opened = "".join(f"{name}: {{" for name in sections)
    text = f"{opened}{last}: {value}{'}' * len(sections)}"
    provider = f"providers: {{up: {{upstream: '{upstream}'"
    if key.startswith("drain."):
        return f"{text}\n{provider}}}}}\n"
    return f"{provider}, {text}}}}}\n"


NUMBERS = dict([*_numbers(schema.ProviderSection), *_numbers(schema.Drain, "drain.")])


@pytest.mark.parametrize("key", NUMBERS)
def test_f126_no_number_turns_protection_off(tmp_path, key) -> None:
    file = tmp_path / "breakers.yaml"
    for value in ("-1", "1e308", ".nan", ".inf", "true"):
        file.write_text(_with(key, value))
        with pytest.raises(ConfigError):
            load(file, environ={})
    # 0 is legal where the reference says what it means, and nowhere else.
    rows = (DOCS / "configuration.md").read_text().splitlines()
    means = any(row.startswith(f"| `{NUMBERS[key]}` |") and "0 = " in row for row in rows)
    file.write_text(_with(key, "0"))
    try:
        load(file, environ={})
    except ConfigError:
        assert not means
    else:
        assert means, key


@pytest.mark.parametrize("key", NUMBERS)
async def test_f126_a_tiny_number_is_no_fault_at_run_time(start, upstream, log, key) -> None:
    running = await start({"up": base(upstream.url)})
    file = running.daemon._options.config
    head = "listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\n"
    file.write_text(head + _with(key, "0.0001", upstream.url))
    if (await running.daemon.reload()).problems:
        return
    for n in range(3):
        upstream.script = says(error(500))
        await ask(running, n=n)
        upstream.script = says(answer(429, b"{}", (b"Retry-After", b"0.01")))
        await ask(running, n=n)
        upstream.script = says(OK)
        await ask(running, n=n)
    assert (await admin(running, "/status")).status == 200
    assert not log.lines("fault")


@pytest.mark.parametrize(
    "off", ["consecutive_failures", "failure_ratio", "repeat_window", "jitter"]
)
async def test_f126_zero_is_off_only_where_it_says_so(start, upstream, off) -> None:
    running = await start({"up": base(upstream.url, breaker={off: 0})})
    await trip(running, upstream)
    shot = running.breaker("up/gpt-x")
    assert shot.opens == 1
    assert shot.window.failure == 5


@pytest.mark.parametrize(
    "more",
    ["", ", breaker: null", ", timeouts: null, limits: null", ", breaker: {}", ", rules: null"],
)
async def test_f127_the_smallest_file_protects(tmp_path, start, upstream, more) -> None:
    upstream.script = says(error(500))
    running = await start({"up": base(upstream.url)})
    file = running.daemon._options.config
    file.write_text(
        "listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\n"
        f"providers: {{up: {{upstream: '{upstream.url}'{more}}}}}\n"
    )
    result = await running.daemon.reload()
    if result.problems:
        assert "null" in more
        return
    for n in range(5):
        assert (await ask(running, n=n)).status == 500
    assert (await ask(running)).get("x-sidecar-decision") == "breaker_open"
    assert [shot.key for shot in shots(running) if shot.state == "open"] == ["up/gpt-x"]


@pytest.mark.parametrize("text", ["providers:\n", "providers: {}\n", "providers: {up: null}\n"])
def test_f127_nothing_to_protect_is_said_at_the_start(tmp_path, text) -> None:
    file = tmp_path / "breakers.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        load(file, environ={})
