"""Every recorded case, and the golden file of their classes."""

import json

import pytest

from sidecar.envelope.dialects import get
from sidecar.envelope.stream import StreamReader
from tests.cases import all_cases, classify_case, seen_of
from tests.golden import PATH, current


def ids(case):
    return case["id"]


def check(case, classified):
    expect, envelope = case["expect"], classified.envelope
    assert str(classified.verdict) == expect["verdict"], classified.rule
    if expect["class"] is None:
        assert envelope is None, classified.rule
        return
    assert envelope is not None, classified.rule
    assert str(envelope.class_) == expect["class"], classified.rule
    assert envelope.code == expect["code"], classified.rule
    assert envelope.retryable is expect["retryable"], classified.rule
    assert envelope.retry_after == pytest.approx(expect["retry_after"], abs=1)
    if "raw_code" in expect:
        assert envelope.raw.get("code") == expect["raw_code"]
    if "upstream_request_id" in expect:
        assert envelope.raw["upstream_request_id"] == expect["upstream_request_id"]
    if "resets_in" in expect:
        assert envelope.raw["resets_in"] == pytest.approx(expect["resets_in"], abs=1)


@pytest.mark.parametrize("case", all_cases(), ids=ids)
def test_case(case):
    check(case, classify_case(case))


@pytest.mark.parametrize("piece", [1, 7])
@pytest.mark.parametrize("case", [c for c in all_cases() if c.get("stream")], ids=ids)
def test_stream_in_pieces(case, piece):
    check(case, classify_case(case, piece=piece))


@pytest.mark.parametrize("case", [c for c in all_cases() if c.get("stream")], ids=ids)
def test_a_stream_that_is_cut_in_two_at_any_byte(case):
    assert_cut_anywhere(case)


def assert_cut_anywhere(case):
    """The same verdict and the same envelope, wherever the network cuts the body."""
    seen, dialect = seen_of(case), get(case["provider"])
    whole = classify_case(case)
    for cut in range(1, len(seen.body)):
        reader = StreamReader(dialect, seen, correlation_id="corr-1")
        reader.feed(seen.body[:cut])
        reader.feed(seen.body[cut:])
        assert reader.finish(clean=True) == whole, cut


@pytest.mark.parametrize("case", all_cases(), ids=ids)
def test_the_invariants_hold_for_every_case_of_every_provider(case):
    classified = classify_case(case)
    envelope = classified.envelope
    verdict = str(classified.verdict)
    assert verdict != "neutral", classified.rule
    if envelope is None:
        assert verdict == "success"
        return
    assert envelope.correlation_id == "corr-1"
    assert len(envelope.message) <= 500
    assert "\n" not in envelope.message
    assert 0 < len(envelope.code) <= 64
    if envelope.class_ in {"validation", "authentication", "permanent"}:
        assert verdict == "alive"
    assert (envelope.class_ == "rate_limit") == (verdict == "throttle")


def test_golden_classes():
    """A class may only change together with a CHANGELOG entry under `Breaking: class`."""
    assert current() == json.loads(PATH.read_text()), "see tests/golden.py"
