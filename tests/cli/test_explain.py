"""What `check --explain` says is what is configured, and what the schema has it speaks of."""

from __future__ import annotations

import pytest
import yaml

from sidecar.cli.explain import WIDTH, explain
from sidecar.config.load import load

from .conftest import Commands


def told(tmp_path, name: str = "up", dependencies: dict | None = None, **section) -> str:
    file = tmp_path / "breakers.yaml"
    document = {
        "providers": {"up": {"upstream": "https://api.example", **section}},
        "dependencies": dependencies or {},
    }
    file.write_text(yaml.safe_dump(document))
    text = explain(load(file, environ={}), name)
    assert text is not None
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "  " not in text.replace("\n  ", "\n")
    return " ".join(text.split())


BREAKER = {
    "consecutive_failures": 7,
    "failure_ratio": 0.25,
    "minimum_calls": 40,
    "window": "3m",
    "repeat_window": "11s",
    "open_for": "20s",
    "open_max": "4m",
    "jitter": 0.5,
    "probes": 2,
    "successes": 3,
}


@pytest.mark.parametrize(
    "words",
    [
        "After 7 failures in a row or when 25% of at least 40 decided calls within 3m failed.",
        "counts once in 11s",
        "503 and the code breaker_open, for 20s to 30s, drawn at random.",
        "Each probe that fails doubles that, up to 4m, plus up to 50% at random.",
        "No connection within 5s",
        "no word of a stream within 590s",
        "a caller that leaves after 1m in which nobody heard a word",
        "2 calls at a time are let through to probe it, and 3 must succeed",
        "under up/MODEL",
        "never opens a breaker by itself",
    ],
)
def test_of_a_breaker(tmp_path, words: str) -> None:
    assert words in told(tmp_path, breaker=BREAKER)


@pytest.mark.parametrize(
    ("section", "words", "not_said"),
    [
        ({"breaker": {"failure_ratio": 0}}, "After 5 failures in a row.", "decided"),
        ({"breaker": {"consecutive_failures": 0}}, "When 50% of at least 10", "in a row"),
        ({"breaker": {"jitter": 0}}, "for 30s.", "drawn"),
        ({"breaker": {"open_max": "30s"}}, "for as long again", "doubles"),
        ({"breaker": {"successes": 1}}, "one must succeed, to close", "2 must"),
        ({"breaker": {"fail_fast": False}}, "fail_fast is false", "in milliseconds"),
        ({"scope": "provider"}, "The provider as a whole", "MODEL"),
        ({"mode": "observe"}, "no call is refused or held back", "Everything below"),
        ({"mode": "off"}, "no breaker counts them", "When it opens"),
        ({"mode": "off"}, "holds no further call back", "shed"),
        ({"mode": "off"}, "none waits", "bulkhead_full"),
        ({"mode": "off", "retry": {"attempts": 2}}, "here Nothing.", "up to 2 times"),
        ({"mode": "off"}, "without a daemon between", "x-should-retry"),
        ({"on_reclassified": "annotate"}, "right or wrong", "is corrected to"),
        ({"limits": {"in_flight": 1}}, "1 call. Further ones wait", "1 calls"),
        ({"shedding": {"max_queue": 0}}, "answered at once with 503", "Further ones wait"),
        ({"shedding": {"max_wait": 0}}, "answered at once with 503", "Further ones wait"),
        ({"shedding": {"max_queue": 0}}, "are shed until the wait is over", "0 calls"),
        ({"shedding": {"max_wait": 0}}, "are shed until the wait is over", "for at most 0s"),
        ({"shedding": {"sustained": {"ratio": 0}}}, "5 throttles in 30s, they", "0% of the"),
        ({"shedding": {"retry_after_max": "20s"}}, "is 1s, doubling up to 20s", "1m asks too"),
        ({"shedding": {"preempt": True}}, "says that nothing remains", "preempt"),
        ({"shedding": {"open_after": 0}}, "never below 1 a second", "count as failures"),
        ({"shedding": {"quota": {"mode": "observe"}}}, "holds no further call back", "402"),
        ({"shedding": {"sdk_wait_max": "90s"}}, "a wait above 90s", "above 1m"),
        ({"shedding": {"retry_after_max": "2h"}}, "followed for 2h", "1h"),
        ({}, "Nothing: whether to repeat", "up to 1 time"),
        ({"retry": {"attempts": 1}}, "up to 1 time: GET, HEAD, OPTIONS, PUT, DELETE", "Nothing:"),
        (
            {"retry": {"attempts": 3, "budget": 0.2}},
            "At most 20% of the calls of a minute (or 3, however",
            "Nothing:",
        ),
        (
            {"retry": {"attempts": 3, "require_idempotency_key": False}},
            "all others too",
            "of the caller's own",
        ),
        ({"retry": {"attempts": 3, "budget": 0}}, "Nothing:", "attempts: 0"),
    ],
)
def test_of_single_keys(tmp_path, section, words: str, not_said: str) -> None:
    text = told(tmp_path, **section)
    assert words in text
    assert not_said not in text


def test_of_a_dependency(tmp_path) -> None:
    section = {"source": "database", "vendor": "postgresql", "lease": "5m"}
    text = told(tmp_path, "orders-db", {"orders-db": section})
    assert text.startswith("orders-db: a dependency, database (postgresql), mode enforce")
    assert "over after 5m" in text
    assert "1 permit at a time is let through" in text
    assert "429" not in text


def test_the_command(commands: Commands) -> None:
    done = commands.run("check", "--explain", "openai")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), "the one that is disabled"
    assert done.stdout.startswith("openai: ")
    wrong = commands.run("check", "--explain", "nobody\x1b[31m")
    assert wrong.returncode == 2
    assert "there are: " in wrong.stderr
    assert "\x1b" not in wrong.stderr
    assert commands.run("check", "--explain", "openai", "--print").returncode == 2


def test_a_provider_that_is_disabled(tmp_path) -> None:
    file = tmp_path / "breakers.yaml"
    file.write_text(
        "providers:\n"
        "  up: {upstream: 'https://api.example'}\n"
        "  off: {upstream: 'https://${NOT_SET}.example'}\n"
    )
    text = explain(load(file, environ={}), "off")
    assert text is not None
    assert "NOT_SET is not set" in text
