"""Plots as SVG: lines over an axis, with a legend. No script, no font, nothing that is loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#3366aa", "#cc6633", "#338855", "#aa3377", "#887722", "#5588cc", "#555555")
STYLE = """
svg text { font: 12px system-ui, sans-serif; fill: #333; }
svg .title { font-size: 14px; font-weight: 600; } svg .end { text-anchor: end; } svg .mid { text-anchor: middle; }
svg .grid { stroke: #e4e4e4; }
"""
"""The style sheet of plots, which pages have once."""
_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 34, 44
_TICKS = 5


@dataclass(frozen=True, slots=True)
class Line:
    """A name, and points from left to right."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its title, how a value on it is written, and its scale."""

    title: str
    text: Callable[[float], str]
    is_log: bool = False
    ticks: Sequence[float] | None = None
    """Where it is labelled; None: at round values."""


def plot(title: str, across: Axis, up: Axis, lines: Sequence[Line]) -> str:
    """Return a plot; empty when there is nothing to show."""
    points = [point for line in lines for point in line.points]
    if not points:
        return ""
    xs = _range(across, [x for x, _ in points])
    ys = _range(up, [*([] if up.is_log else [0.0]), *(y for _, y in points)])
    place_x = _scale(across, xs, _LEFT, _WIDTH - _RIGHT)
    place_y = _scale(up, ys, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" aria-label="{escape(title)}">',
        f'<text x="{_LEFT}" y="18" class="title">{escape(title)}</text>',
    ]
    for value in _ticks(up, ys):
        y = place_y(value)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="end">{escape(up.text(value))}</text>')
    for value in _ticks(across, xs):
        x = place_x(value)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" class="grid"/>')
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" class="mid">{escape(across.text(value))}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" class="mid">{escape(across.title)}</text>')
    for number, line in enumerate(lines):
        parts += _drawn(line, COLOURS[number % len(COLOURS)], number, place_x, place_y)
    return "\n".join([*parts, "</svg>"])


def stacked(drawn: Sequence[str]) -> str:
    """Return plots below each other as one; those in which there is nothing to show are left out."""
    shown = [one for one in drawn if one]
    height = _HEIGHT * len(shown)
    parts = [
        one.replace("<svg ", f'<svg y="{_HEIGHT * number}" height="{_HEIGHT}" ', 1) for number, one in enumerate(shown)
    ]
    return "\n".join([f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">', *parts, "</svg>"])


def as_file(drawn: str) -> str:
    """Return a plot as the contents of a file of its own, with what the style of a page would add."""
    style = f"<style>{STYLE}</style><rect width='100%' height='100%' fill='#ffffff'/>"
    head, rest = drawn.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg">{style}{rest}\n'


def _drawn(
    line: Line, colour: str, number: int, place_x: Callable[[float], float], place_y: Callable[[float], float]
) -> list[str]:
    places = [(place_x(x), place_y(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    y = _TOP + 8 + 18 * number
    left = _WIDTH - _RIGHT + 12
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    if len(places) <= 40:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places]
    parts.append(f'<line x1="{left}" x2="{left + 16}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>')
    parts.append(f'<text x="{left + 22}" y="{y + 4}">{escape(line.name)}</text>')
    return parts


def _range(axis: Axis, found: Sequence[float]) -> tuple[float, float]:
    usable = [value for value in found if math.isfinite(value) and (value > 0 or not axis.is_log)]
    low, high = min(usable, default=1.0), max(usable, default=1.0)
    if axis.ticks:
        low, high = min(low, axis.ticks[0]), max(high, axis.ticks[-1])
    if low == high:
        return (low / 2, high * 2) if axis.is_log else (low - 1 if low else 0.0, high + 1)
    return low, high


def _scale(axis: Axis, span: tuple[float, float], begin: float, end: float) -> Callable[[float], float]:
    shown = (lambda value: math.log10(max(value, span[0]))) if axis.is_log else (lambda value: value)
    low, high = shown(span[0]), shown(span[1])
    return lambda value: begin + (shown(value) - low) / (high - low) * (end - begin)


def _ticks(axis: Axis, span: tuple[float, float]) -> Sequence[float]:
    if axis.ticks is not None:
        return axis.ticks
    low, high = span
    if axis.is_log:
        powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
        factors = (1,) if len(powers) > _TICKS else (1, 2, 5)
        values = [factor * 10.0**power for power in powers for factor in factors]
        return [value for value in values if low <= value <= high] or [low, high]
    step = 10 ** math.floor(math.log10((high - low) / _TICKS))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= _TICKS)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
