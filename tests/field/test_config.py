"""Area config: a reload takes everything or nothing, and what it takes has effect."""

from __future__ import annotations

import signal

import pytest

from sidecar.config.load import load
from sidecar.config.problems import ConfigError
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


@pytest.mark.parametrize("value", ["-1", "1e308", ".nan", ".inf", "true"])
@pytest.mark.parametrize(
    "key",
    ["consecutive_failures", "window", "minimum_calls", "failure_ratio", "open_for", "open_max",
     "jitter", "probes", "successes", "repeat_window"],
)  # fmt: skip
def test_f126_no_number_turns_protection_off(tmp_path, key, value) -> None:
    file = tmp_path / "breakers.yaml"
    file.write_text(f"providers: {{up: {{upstream: 'http://x', breaker: {{{key}: {value}}}}}}}\n")
    with pytest.raises(ConfigError):
        load(file, environ={})


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
