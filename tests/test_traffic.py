"""Both thinking packages together: recorded answers in every costume, and what breakers make of them."""

import random

from sidecar.breaker.model import Kind, Outcome, ProviderSettings, Refusal
from sidecar.breaker.registry import Registry
from sidecar.envelope.dialects import get
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import Seen, Verdict
from tests.cases import all_cases, classify_case

MODELS = ["gpt-x", "gpt-y", "~v1/files", "~v1/models"]


def outcome_of(classified, status, fingerprint=None):
    envelope = classified.envelope
    return Outcome(
        classified.verdict,
        kind=Kind.ANSWER,
        retry_after=envelope.retry_after if envelope else None,
        code=envelope.code if envelope else None,
        status=status,
        fingerprint=fingerprint,
    )


def registry():
    transitions = []
    made = Registry(transitions.append)
    made.configure({"openai": ProviderSettings(upstream="u")}, 0.0)
    return made, transitions


def test_100_000_calls_with_30_percent_mistakes_in_every_costume_trip_nothing():
    """Every recorded answer that is the caller's fault, whatever status it wore."""
    costumes = []
    statuses = set()
    for case in all_cases():
        if case["expect"]["verdict"] in ("alive", "throttle"):
            status = case["response"]["status"]
            costumes.append(outcome_of(classify_case(case), status, case["id"].encode()[:16]))
            statuses.add(status)
    assert len(costumes) > 100
    assert {200, 400, 401, 403, 404, 412, 429, 500, 503} <= statuses
    made, transitions = registry()
    draw = random.Random(11)
    now = 0.0
    for _ in range(100_000):
        now += 0.01
        admission = made.admit("openai", draw.choice(MODELS), now)
        assert not isinstance(admission, Refusal)
        admission.first_byte(now)
        if draw.random() < 0.3:
            admission.settle(draw.choice(costumes), now)
        else:
            admission.settle(Outcome(Verdict.SUCCESS), now)
    assert transitions == []
    assert made.faults == 0


def test_60_percent_genuine_5xx_open_within_ten_decided_calls():
    dialect = get("openai")
    body = b'{"error":{"message":"The server had an error.","type":"server_error","code":null}}'
    for seed in range(200):
        draw = random.Random(seed)
        made, transitions = registry()
        failing = [True] * 6 + [False] * 4
        draw.shuffle(failing)
        now = 0.0
        for n, fails in enumerate(failing):
            now += 0.1
            admission = made.admit("openai", "gpt-x", now)
            if isinstance(admission, Refusal):
                break
            admission.first_byte(now)
            status = draw.choice([500, 502, 503, 504]) if fails else 200
            seen = Seen(
                status=status,
                headers=Headers([("content-type", "application/json")]),
                body=body if fails else b'{"choices":[{"finish_reason":"stop"}]}',
                path="/v1/chat/completions",
            )
            admission.settle(outcome_of(classify(seen, dialect), status, bytes([n])), now)
        assert [change.new for change in transitions] == ["open"]
