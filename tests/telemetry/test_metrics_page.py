"""docs/metrics.md is the table of instruments, and the table is whole."""

from pathlib import Path

from sidecar.telemetry import reference
from sidecar.telemetry.instruments import INSTRUMENTS, LABELS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text() == reference.page(), (
        "python -m sidecar.telemetry.reference > docs/metrics.md"
    )


def test_names_are_told_apart_and_follow_the_rules() -> None:
    shown = [one.shown for one in INSTRUMENTS]
    assert len(set(shown)) == len(shown)
    assert len({one.prometheus for one in INSTRUMENTS}) == len(shown)
    for one in INSTRUMENTS:
        assert set(one.labels) <= LABELS.keys()
        # Units and `total` belong to Prometheus's names and not to OpenTelemetry's.
        assert not one.name.endswith((".total", ".seconds", ".bytes"))
        assert one.bounds == tuple(sorted(one.bounds))
