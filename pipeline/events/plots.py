"""Plots as SVG text: bars, lines, a heat map. They contain only numbers, and names, which are escaped here."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 860
#: The text in place of a hidden number.
NOTHING: Final = "\N{EN DASH}"
_HEIGHT: Final = 240
_MARGIN: Final = 64
_RIGHT: Final = 24
_BOTTOM: Final = 28
_TOP: Final = 14
_TICKS: Final = 4
_THOUSAND: Final = 1000
_UNITS: Final = ((3_600_000, "h"), (60_000, "min"), (1000, "s"))


def number(value: float | None) -> str:
    """Return a number as text for people; a dash for None."""
    if value is None:
        return NOTHING
    if value >= _THOUSAND or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}"


def bars(values: Mapping[str, float | None]) -> str:
    """Return one horizontal bar for each name; a name without a value has its row without a bar."""
    top = max([value for value in values.values() if value is not None], default=0) or 1
    step, margin = 26, 170
    height = step * len(values) + 6
    parts = []
    for index, (name, value) in enumerate(values.items()):
        y = index * step + 4
        width = 0 if value is None else max(1.0, (WIDTH - margin - 110) * value / top)
        label = "too few to tell" if value is None else number(value)
        parts.append(
            f'<text class="label" x="{margin - 10}" y="{y + 14}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="bar" x="{margin}" y="{y}" width="{width:.1f}" height="18" rx="3">'
            f"<title>{escape(name)}: {label}</title></rect>"
            f'<text class="value" x="{margin + width + 8:.1f}" y="{y + 14}">{label}</text>'
        )
    return _svg(height, "".join(parts))


def duration(milliseconds: float) -> str:
    """Return a duration in a unit that suits it."""
    for size, unit in _UNITS:
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds:g} ms"


@dataclass(frozen=True, slots=True)
class Scale:
    """The axis of values."""

    top: float
    ticks: tuple[float, ...]
    #: The position of a value, from 0 to 1.
    place: Callable[[float], float]
    #: The text of a value.
    name: Callable[[float], str]


def counts(values: list[float]) -> Scale:
    """Return an axis from 0 for numbers."""
    top = _nice(max(values, default=0) or 1)
    ticks = tuple(top * tick / _TICKS for tick in range(_TICKS + 1))
    return Scale(top, ticks, lambda value: value / top, number)


def durations(values: list[float]) -> Scale:
    """Return an axis by powers of ten from 1 ms, so that an outage of hours does not hide milliseconds."""
    decades = max(1, math.ceil(math.log10(max([*values, 1.0]))))
    ticks = tuple(10.0**power for power in range(decades + 1))
    return Scale(ticks[-1], ticks, lambda value: math.log10(max(1.0, value)) / decades, duration)


def lines(
    names: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    scale: Callable[[list[float]], Scale] = counts,
) -> str:
    """Return one line for each series over the same points; where a value is missing the line has a gap.

    Args:
        series: the values of each, one for each point.
        scale: makes the axis of all values.
    """
    axis = scale([value for values in series.values() for value in values if value is not None])
    inner = _HEIGHT - _TOP - _BOTTOM
    step = (WIDTH - _MARGIN - _RIGHT) / max(1, len(names) - 1)

    def x(index: int) -> float:
        return _MARGIN + step * index if len(names) > 1 else (WIDTH + _MARGIN) / 2

    def y(value: float) -> float:
        return _TOP + inner * (1 - axis.place(value))

    parts = [_grid(axis, y)]
    every = max(1, -(-len(names) // 10))
    parts += [
        f'<text class="tick" x="{x(index):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(name)}</text>'
        for index, name in enumerate(names)
        if index % every == 0
    ]
    for colour, (title, values) in enumerate(series.items(), start=1):
        points = [(index, value) for index, value in enumerate(values) if value is not None]
        path = "".join(
            f"{'L' if place and points[place - 1][0] == index - 1 else 'M'}{x(index):.1f} {y(value):.1f}"
            for place, (index, value) in enumerate(points)
        )
        parts.append(f'<path class="line c{colour}" d="{path}"/>')
        parts += [
            f'<circle class="dot c{colour}" cx="{x(index):.1f}" cy="{y(value):.1f}" r="3">'
            f"<title>{escape(title)}, {escape(names[index])}: {axis.name(value)}</title></circle>"
            for index, value in points
        ]
    return _svg(_HEIGHT, "".join(parts)) + _legend(list(series))


def heat_map(rows: Sequence[str], columns: Sequence[str], values: Mapping[tuple[int, int], float | None]) -> str:
    """Return a field for each row and column, darker where there is more."""
    top = max([value for value in values.values() if value is not None], default=0) or 1
    margin, side = 90, (WIDTH - 90) / len(columns)
    tall = 26
    parts = [
        f'<text class="tick" x="{margin + side * (index + 0.5):.1f}" y="12" text-anchor="middle">{escape(name)}</text>'
        for index, name in enumerate(columns)
    ]
    for row, name in enumerate(rows):
        top_edge = 20 + row * tall
        parts.append(
            f'<text class="label" x="{margin - 10}" y="{top_edge + 17}" text-anchor="end">{escape(name)}</text>'
        )
        for column, hour in enumerate(columns):
            value = values.get((row, column), 0)
            opacity = 0.04 if value is None else 0.06 + 0.94 * value / top
            label = "too few to tell" if value is None else number(value)
            parts.append(
                f'<rect class="cell" x="{margin + side * column:.1f}" y="{top_edge}" width="{side - 2:.1f}"'
                f' height="{tall - 2}" rx="3" fill-opacity="{opacity:.2f}">'
                f"<title>{escape(name)} {escape(hour)}: {label}</title></rect>"
            )
    return _svg(24 + tall * len(rows), "".join(parts))


def _grid(axis: Scale, y: Callable[[float], float]) -> str:
    return "".join(
        f'<line class="grid" x1="{_MARGIN}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text class="tick" x="{_MARGIN - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{axis.name(value)}</text>'
        for value in axis.ticks
    )


def _nice(value: float) -> float:
    """Return the next round number that is not below a value."""
    size = 1.0
    while size * 10 <= value:
        size *= 10
    while size > value:
        size /= 10
    return next(size * step for step in (1, 2, 4, 5, 8, 10) if size * step >= value)


def _legend(names: list[str]) -> str:
    keys = "".join(f'<span><i class="c{index}"></i>{escape(name)}</span>' for index, name in enumerate(names, start=1))
    return f'<p class="legend">{keys}</p>'


def _svg(height: float, content: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{content}</svg>'
