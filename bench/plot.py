"""Two plain kinds of plots as SVG, without a library: bars on a logarithmic scale, and curves."""

from __future__ import annotations

import math
from html import escape

_STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-weight:600}"
    ".faint{fill:#57606a}.grid{stroke:#d0d7de;stroke-width:1}</style>"
)
_COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989")


def _svg(width: int, height: int, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f'{_STYLE}<rect width="{width}" height="{height}" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def bars(groups: list[tuple[str, dict[str, float], str]], marked: str) -> str:
    """Groups of bars, longest first, each with its figure; the scale is logarithmic.

    Args:
        groups: title, values by name, and the form of a figure.
        marked: the name that stands out.
    """
    parts: list[str] = []
    top = 10
    for title, values, form in groups:
        parts.append(_text(10, top + 14, title + ", logarithmic", "title"))
        top += 26
        low = min(values.values()) / 2
        span = math.log(max(values.values()) / low)
        for name, value in sorted(values.items(), key=lambda item: -item[1]):
            width = 480 * math.log(value / low) / span
            colour = _COLOURS[0] if name == marked else "#afb8c1"
            parts.append(_text(95, top + 13, name, anchor="end"))
            parts.append(
                f'<rect x="102" y="{top}" width="{width:.0f}" height="17" fill="{colour}" rx="2"/>'
            )
            parts.append(_text(108 + width, top + 13, form.format(value), "faint"))
            top += 22
        top += 16
    return _svg(680, top, parts)


def curves(title: str, found: dict[str, list[tuple[float, float]]]) -> str:
    """A small plot for each curve, all on one vertical scale that begins at nothing."""
    highest = max(y for curve in found.values() for _, y in curve) * 1.15
    parts = [_text(10, 22, title, "title")]
    wide, high = 210, 150
    for number, (name, curve) in enumerate(found.items()):
        left, top = 50 + number % 3 * (wide + 40), 50 + number // 3 * (high + 60)
        for share in (0.0, 0.5, 1.0):
            y = top + high * (1 - share)
            parts.append(f'<path class="grid" d="M{left} {y:.0f}h{wide}"/>')
            parts.append(_text(left - 6, y + 4, f"{highest * share:.0f}", "faint", "end"))
        places = [left + wide * (n + 0.5) / len(curve) for n in range(len(curve))]
        points = [
            (x, top + high * (1 - y / highest)) for x, (_, y) in zip(places, curve, strict=True)
        ]
        line = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), (count, _) in zip(points, curve, strict=True):
            parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="{colour}"/>')
            parts.append(_text(x, top + high + 15, _short(count), "faint", "middle"))
        parts.append(_text(left, top - 8, name))
    return _svg(800, 50 + (len(found) + 2) // 3 * (high + 60), parts)


def _short(count: float) -> str:
    return f"{count / 1000:g}k" if count >= 1000 and count % 1000 == 0 else f"{count:g}"
