"""What stands between the quotes of a label, and which format is preferred."""

import math

import pytest

from sidecar.telemetry.exposition import number, render, wants_openmetrics
from sidecar.telemetry.figures import Histogram
from sidecar.telemetry.instruments import CALLS, LOOP_DELAY

from .scrape import parse


def test_hostile_labels_stay_inside_their_quotes() -> None:
    for name in ('a"} 1\nevil{x="', "back\\", "\n", "\\n", '"', "\ud800", "é\u2028"):
        text = render([(CALLS, [(("up", name, "success"), 3)])], openmetrics=False).decode()
        found = parse(text.replace("\u2028", " "))
        assert len(found) == 1
        assert len(text.splitlines()) <= 4  # HELP, TYPE, the sample; a line separator is no newline


def test_buckets_add_up() -> None:
    histogram = Histogram(LOOP_DELAY.bounds)
    for value in (0.0, 0.0001, 0.00011, 5.0):
        histogram.add(value)
    text = render([(LOOP_DELAY, [((), histogram)])], openmetrics=True).decode()
    assert 'breaker_sidecar_loop_delay_seconds_bucket{le="0.0001"} 2' in text
    assert 'breaker_sidecar_loop_delay_seconds_bucket{le="0.00025"} 3' in text
    assert 'breaker_sidecar_loop_delay_seconds_bucket{le="+Inf"} 4' in text
    assert "breaker_sidecar_loop_delay_seconds_count 4" in text
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, False),
        ("*/*", False),
        ("application/openmetrics-text", True),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            True,
        ),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nonsense", False),
        (",;,;" * 10_000, False),
    ],
)
def test_who_prefers_openmetrics_gets_it(accept: str | None, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted


def test_numbers() -> None:
    assert [number(value) for value in (0, 3, 0.5, math.inf, -math.inf, math.nan)] == [
        "0", "3", "0.5", "+Inf", "-Inf", "NaN",
    ]  # fmt: skip
