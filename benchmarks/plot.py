"""The verdicts as a picture: for each goal a bar that says how many times better kompakt is, as SVG.

The axis is logarithmic, 1 is a draw. The bar ends at the median of the case that is worst, the thin line is
the spread of its rounds, the tick is the goal. For a goal without a peer the bound itself counts as 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

from benchmarks.results import Verdict

ROW = 26
LEFT = 480
WIDTH = 480
TOP = 46
RIGHT = 90
OK = "#2f7d4f"
SHORT = "#b5541c"
PLAIN = "#5a6472"
INK = "#1c2127"
GRID = "#d5dae0"


@dataclass(frozen=True)
class Bar:
    """One verdict as advantages: above 1 is better than the peer."""

    label: str
    middle: float
    low: float
    high: float
    goal: float | None
    color: str


def bar_of(verdict: Verdict) -> Bar:
    goal, worst = verdict.goal, verdict.worst

    def advantage(value: float) -> float:
        value = max(value, 1e-6)
        if goal.theirs is None:
            assert goal.bound is not None
            return goal.bound / value
        return value if goal.at_least else 1 / value

    ends = sorted((advantage(worst.low), advantage(worst.high)))
    aim = None if goal.bound is None else advantage(goal.bound)
    color = PLAIN if goal.bound is None else SHORT if worst.shortfall else OK
    return Bar(_label(verdict), advantage(worst.middle), ends[0], ends[1], aim, color)


def _label(verdict: Verdict) -> str:
    name = verdict.goal.what
    return f"{name} ({verdict.goal.ours})" if verdict.goal.ours != "kompakt" else name


def svg(verdicts: list[Verdict]) -> str:
    """The whole picture."""
    bars = [bar_of(verdict) for verdict in verdicts]
    values = [value for bar in bars for value in (bar.low, bar.high, bar.goal or 1.0)]
    low = max(0.02, min([0.5, *values]) * 0.9)
    high = min(200.0, max([2.0, *values]) * 1.1)

    def x(value: float) -> float:
        share = (math.log(min(max(value, low), high)) - math.log(low)) / (math.log(high) - math.log(low))
        return round(LEFT + share * WIDTH, 1)

    height = TOP + ROW * len(bars) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="100%" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="20" font-size="14">How many times better than Apache Kafka; worst case of each '
        f'line, <tspan fill="{OK}">goal met</tspan>, <tspan fill="{SHORT}">goal missed</tspan></text>',
    ]
    for tick in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100):
        if low <= tick <= high:
            color = INK if tick == 1 else GRID
            parts.append(f'<path d="M{x(tick)} {TOP - 8}V{height - 20}" stroke="{color}"/>')
            parts.append(f'<text x="{x(tick)}" y="{height - 6}" text-anchor="middle">{tick:g}</text>')
    for number, bar in enumerate(bars):
        parts += _row(
            bar, TOP + number * ROW, x(1), x(bar.low), x(bar.middle), x(bar.high), bar.goal and x(bar.goal)
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row(
    bar: Bar, y: int, one: float, low: float, middle: float, high: float, goal: float | None
) -> list[str]:
    left, width = min(one, middle), abs(middle - one)
    parts = [
        f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect x="{left}" y="{y + 3}" width="{max(width, 1):.1f}" height="14" fill="{bar.color}"/>',
        f'<path d="M{low} {y + 10}H{high}" stroke="{INK}"/>',
        f'<text x="{max(high, one, middle, goal or 0) + 6:.1f}" y="{y + 14}">{bar.middle:.2f}</text>',
    ]
    if goal is not None:
        parts.append(f'<path d="M{goal} {y}V{y + 20}" stroke="{INK}" stroke-width="2"/>')
    return parts
