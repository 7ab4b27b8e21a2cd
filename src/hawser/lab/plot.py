"""Line charts as SVG, drawn by hand: an experiment must not need a plotting library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec

WIDTH: Final = 900
HEIGHT: Final = 400
LEFT: Final = 70
BOTTOM: Final = 50
TOP: Final = 48
COLOURS: Final = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e6c1f", "#6a4c93", "#555555")


class Line(msgspec.Struct, frozen=True):
    """One row of points. On the left axis, or with `right` on one of its own."""

    name: str
    points: Sequence[tuple[float, float]]
    right: bool = False


class Band(msgspec.Struct, frozen=True):
    """A stretch of the x axis that is shaded, and why."""

    start: float
    end: float
    name: str


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """A chart."""

    title: str
    x: str
    lines: Sequence[Line]
    bands: Sequence[Band] = ()
    marks: Sequence[float] = ()
    """Instants at which something was done, as thin lines."""
    log_x: bool = False

    def svg(self) -> str:
        xs = [x for line in self.lines for x, _ in line.points] or [0.0, 1.0]
        across = _Axis(min(xs), max(xs), LEFT, WIDTH - LEFT, log=self.log_x)
        sides = {right: self._up([line for line in self.lines if line.right is right]) for right in (False, True)}
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            _words(WIDTH / 2, 16, self.title, weight="bold"),
            *(self._band(band, across) for band in self.bands),
            *(f'<path d="M{across(x):.1f},{TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>' for x in self.marks),
            *self._ticks(across, sides),
            *self._drawn(across, sides),
            _words(WIDTH / 2, HEIGHT - 8, self.x),
            "</svg>",
        ]
        return "\n".join(part for part in parts if part) + "\n"

    def _up(self, lines: Sequence[Line]) -> _Axis | None:
        ys = [y for line in lines for _, y in line.points]
        return _Axis(0.0, _round_up(max(ys, default=1.0)), HEIGHT - BOTTOM, TOP) if lines else None

    def _band(self, band: Band, across: _Axis) -> str:
        left, right = across(band.start), across(band.end)
        return f'<path d="M{left:.1f},{TOP}H{right:.1f}V{HEIGHT - BOTTOM}H{left:.1f}Z" fill="#f3efe2"/>' + _words(
            (left + right) / 2, TOP + 14, band.name, colour="#777"
        )

    def _ticks(self, across: _Axis, sides: dict[bool, _Axis | None]) -> list[str]:
        frame = f'<path d="M{LEFT},{TOP}V{HEIGHT - BOTTOM}H{WIDTH - LEFT}V{TOP}" fill="none" stroke="#999"/>'
        found = [frame, *(_words(across(at), HEIGHT - BOTTOM + 18, _figure(at)) for at in self._at(across))]
        for right, axis in sides.items():
            if axis is not None:
                x, anchor = (WIDTH - LEFT + 6, "start") if right else (LEFT - 6, "end")
                steps = [axis.low + (axis.high - axis.low) * n / 4 for n in range(5)]
                found += [_words(x, axis(at) + 4, _figure(at), anchor) for at in steps]
        return found

    def _at(self, across: _Axis) -> list[float]:
        if self.log_x:
            return sorted({x for line in self.lines for x, _ in line.points})
        return _round_steps(across.low, across.high)

    def _drawn(self, across: _Axis, sides: dict[bool, _Axis | None]) -> list[str]:
        found = []
        for number, line in enumerate(self.lines):
            axis, colour = sides[line.right], COLOURS[number % len(COLOURS)]
            assert axis is not None
            points = " ".join(f"{across(x):.1f},{axis(y):.1f}" for x, y in line.points)
            found.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>')
            if self.log_x or len(line.points) < 20:
                found += [f'<circle cx="{across(x):.1f}" cy="{axis(y):.1f}" r="3" fill="{colour}"/>' for x, y in line.points]
            side = " →" if line.right else ""
            at = LEFT + (number + 0.5) * (WIDTH - 2 * LEFT) / len(self.lines)
            found.append(_words(at, TOP - 12, line.name + side, colour=colour))
        return found


class _Axis:
    """From values to places on the sheet."""

    def __init__(self, low: float, high: float, start: float, end: float, *, log: bool = False) -> None:
        self.low, self.high = low, high if high > low else low + 1
        self._start, self._end = start, end
        self._of = math.log if log else float

    def __call__(self, value: float) -> float:
        low, high = self._of(self.low), self._of(self.high)
        return self._start + (self._end - self._start) * (self._of(value) - low) / (high - low)


def _round_up(value: float) -> float:
    """A figure that looks well at the top of an axis."""
    if value <= 0:
        return 1.0
    unit: float = 10 ** math.floor(math.log10(value))
    return next(unit * step for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10, 12) if unit * step >= value * 1.02)


def _round_steps(low: float, high: float) -> list[float]:
    """Up to ten round figures between two ends of an axis."""
    unit: float = 10 ** math.floor(math.log10((high - low) / 10))
    step = next(unit * each for each in (1, 2, 5, 10, 20) if (high - low) / (unit * each) < 10)
    digits = max(0, 1 - math.floor(math.log10(step)))
    first, last = math.ceil(round(low / step, 6)), math.floor(round(high / step, 6))
    return [round(n * step, digits) for n in range(first, last + 1)]


def _figure(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _words(x: float, y: float, text: str, anchor: str = "middle", colour: str = "#333", weight: str = "normal") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}">{escape(text)}</text>'
