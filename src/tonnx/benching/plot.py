"""A picture of a `Bench`: bars of the medians, a thin line up to the 99th percentile."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnx.benching.measure import Bench, Timing

_BAR, _GAP, _LEFT, _WIDTH = 18, 14, 190, 760
_COLOURS = ("#3b7dd8", "#e08a2b", "#3aa76d", "#b0529b", "#7a7a7a", "#c94f4f")


def plot(bench: Bench) -> str:
    """An SVG that takes its text colour from the page around it."""
    groups: dict[tuple[int, int | None], list[Timing]] = {}
    for timing in bench.timings:
        groups.setdefault((timing.batch, timing.threads), []).append(timing)
    names = list(dict.fromkeys(timing.contender for timing in bench.timings))
    parts: list[str] = []
    y = 8
    for (batch, threads), timings in groups.items():
        longest = max(timing.p99 for timing in timings) or 1.0
        title = f"batch {batch}, " + ("all threads" if threads is None else f"{threads} thread{'s' * (threads > 1)}")
        parts.append(f'<text x="0" y="{y + 12}" font-weight="600">{title}</text>')
        y += 20
        for timing in timings:
            parts += _bar(timing, y, (_WIDTH - _LEFT - 150) / longest, _COLOURS[names.index(timing.contender) % 6])
            y += _BAR + 4
        y += _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="100%" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">{"".join(parts)}</svg>'
    )


def _bar(timing: Timing, y: int, scale: float, colour: str) -> list[str]:
    middle, end = y + _BAR / 2, _LEFT + timing.p99 * scale
    width = max(1.0, timing.p50 * scale)
    name = timing.contender if len(timing.contender) <= 28 else "…" + timing.contender[-27:]
    figures = f"{timing.p50 * 1e3:.2f} ms  ×{timing.ratio:.2f}"
    return [
        f'<text x="{_LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>',
        f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}" rx="2"/>',
        f'<line x1="{_LEFT}" x2="{end:.1f}" y1="{middle}" y2="{middle}" stroke="currentColor" stroke-opacity=".5"/>',
        f'<text x="{end + 6:.1f}" y="{middle + 4}">{figures}</text>',
    ]
