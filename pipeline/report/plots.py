"""Plots as SVG text: bars, lines, a heat map. They contain only numbers, and names, which are escaped here.

Each says what it shows to a screen reader, and has its numbers as a table that folds out. Lines differ by dashes and by
the names at their ends, too: on paper, and for whoever sees no colours.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from wakupush.pipeline.report.tables import Total

WIDTH: Final = 860
#: The text in place of a hidden number.
NOTHING: Final = "\N{EN DASH}"
_HEIGHT: Final = 240
_MARGIN: Final = 64
_RIGHT: Final = 150
_LABEL_HEIGHT: Final = 15
_BOTTOM: Final = 28
_TOP: Final = 14
_TICKS: Final = 4
_THOUSAND: Final = 1000
#: The width of bars, of which two stand beside each other.
_BARS_WIDTH: Final = 440
#: What a cell has at most of its colour, so that its number can be read.
_DARKEST: Final = 0.56
_DURATION_TICKS: Final = (1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 360_000_000)
_UNITS: Final = ((3_600_000, "h"), (60_000, "min"), (1000, "s"))


def number(value: float) -> str:
    """Return a number as text for people."""
    if value >= _THOUSAND or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}"


def short(value: float) -> str:
    """Return a number in few characters."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}" if value < 999 * size else f"{value / size:.0f}{unit}"
    return f"{value:.0f}" if value >= 1 or value == 0 else f"{value:.1g}"


def brief(total: Total, name: Callable[[float], str]) -> str:
    """Return a sum as text for a cell: a dash if it is hidden, a sign before a lower bound."""
    if total.is_hidden:
        return NOTHING
    return f"\N{GREATER-THAN OR EQUAL TO}{name(total.shown)}" if total.is_partial else name(total.shown)


def bars(title: str, totals: Mapping[str, Total]) -> str:
    """Return one horizontal bar for each name; a name whose number is hidden has its row without a bar."""
    top = max((total.shown for total in totals.values()), default=0) or 1
    step, margin = 26, 150
    labels = {name: total.text(number) for name, total in totals.items()}
    parts = []
    for index, (name, label) in enumerate(labels.items()):
        y = index * step + 4
        share = totals[name].shown / top
        width = 0 if totals[name].is_hidden else max(1.0, (_BARS_WIDTH - margin - 120) * share)
        parts.append(
            f'<text class="label" x="{margin - 10}" y="{y + 14}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="bar" x="{margin}" y="{y}" width="{width:.1f}" height="18" rx="3">'
            f"<title>{escape(name)}: {label}</title></rect>"
            f'<text class="value" x="{margin + width + 8:.1f}" y="{y + 14}">{label}</text>'
        )
    description = ", ".join(f"{name}: {label}" for name, label in labels.items())
    return _svg(step * len(totals) + 6, f"{title}. {description}", "".join(parts), _BARS_WIDTH)


def duration(milliseconds: float) -> str:
    """Return a duration in a unit that suits it."""
    for size, unit in _UNITS:
        if abs(milliseconds) >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds:g} ms"


@dataclass(frozen=True, slots=True)
class Scale:
    """The axis of values."""

    ticks: tuple[float, ...]
    #: The position of a value, from 0 to 1.
    place: Callable[[float], float]
    #: The text of a value.
    name: Callable[[float], str]


def counts(values: list[float]) -> Scale:
    """Return an axis from 0 for numbers."""
    top = _nice(max(values, default=0) or 1)
    ticks = tuple(top * tick / _TICKS for tick in range(_TICKS + 1))
    return Scale(ticks, lambda value: value / top, number)


def durations(values: list[float]) -> Scale:
    """Return an axis by powers of ten from 1 ms, so that an outage of hours does not hide milliseconds."""
    decades = max(1, math.ceil(math.log10(max([*values, 1.0]))))
    top = 10.0**decades
    ticks = tuple(tick for tick in _DURATION_TICKS if tick <= top)
    return Scale(ticks, lambda value: math.log10(max(1.0, value)) / decades, duration)


@dataclass(frozen=True, slots=True)
class Band:
    """Part of an axis of points that is marked."""

    #: Places between points: 0 is the first one.
    begin: float
    end: float
    title: str


def lines(
    title: str,
    names: Sequence[str],
    series: Mapping[str, Sequence[Total]],
    scale: Callable[[list[float]], Scale] = counts,
    bands: Sequence[Band] = (),
) -> str:
    """Return one line for each series over the same points; where a value is hidden the line has a gap.

    Args:
        title: what the lines show.
        series: the values of each, one for each point.
        scale: makes the axis of all values.
        bands: what is marked behind the lines.
    """
    axis = scale([total.shown for totals in series.values() for total in totals if not total.is_hidden])
    inner = _HEIGHT - _TOP - _BOTTOM
    step = (WIDTH - _MARGIN - _RIGHT) / max(1, len(names) - 1)

    def x(place: float) -> float:
        return _MARGIN + step * place if len(names) > 1 else (WIDTH + _MARGIN - _RIGHT) / 2

    def y(value: float) -> float:
        return _TOP + inner * (1 - axis.place(value))

    parts = [_band(band, x, inner) for band in bands] + [_grid(axis, y)]
    every = max(1, -(-len(names) // 10))
    parts += [
        f'<text class="tick" x="{x(index):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(name)}</text>'
        for index, name in enumerate(names)
        if index % every == 0
    ]
    ends: list[tuple[float, int, str]] = []
    for number_, (name, totals) in enumerate(series.items(), start=1):
        points = [(index, total.shown) for index, total in enumerate(totals) if not total.is_hidden]
        path = "".join(
            f"{'L' if place and points[place - 1][0] == index - 1 else 'M'}{x(index):.1f} {y(value):.1f}"
            for place, (index, value) in enumerate(points)
        )
        parts.append(f'<path class="line c{number_}" d="{path}"/>')
        parts += [
            f'<circle class="dot c{number_}" cx="{x(index):.1f}" cy="{y(value):.1f}" r="2.5">'
            f"<title>{escape(name)}, {escape(names[index])}: {totals[index].text(axis.name)}</title></circle>"
            for index, value in points
        ]
        if points:
            ends.append((y(points[-1][1]), number_, name))
    parts += _line_names(ends)
    svg = _svg(_HEIGHT, f"{title}: {', '.join(series)}, from {names[0]} to {names[-1]}", "".join(parts))
    head = ("", *series)
    body = [
        (name, *(brief(totals[index], axis.name) for totals in series.values())) for index, name in enumerate(names)
    ]
    return svg + _numbers(head, body)


def _band(band: Band, x: Callable[[float], float], height: float) -> str:
    begin = x(band.begin)
    width = max(3.0, x(band.end) - begin)
    return (
        f'<rect class="band" x="{begin:.1f}" y="{_TOP}" width="{width:.1f}" height="{height}">'
        f"<title>{escape(band.title)}</title></rect>"
    )


def _line_names(ends: list[tuple[float, int, str]]) -> list[str]:
    """Return the name of each line at its end, below each other where lines end close together."""
    ends = sorted(ends)
    places: list[float] = []
    for y, _, _ in ends:
        places.append(max(y + 4, places[-1] + _LABEL_HEIGHT) if places else y + 4)
    lowest = _HEIGHT - _BOTTOM + 4.0
    for index in reversed(range(len(places))):
        places[index] = min(places[index], lowest)
        lowest = places[index] - _LABEL_HEIGHT
    left = WIDTH - _RIGHT + 8
    texts = []
    for place, (_, number_, name) in zip(places, ends, strict=True):
        texts.append(
            f'<path class="line c{number_}" d="M{left} {place - 4:.1f}h22"/>'
            f'<text class="name" x="{left + 28}" y="{place:.1f}">{escape(name)}</text>'
        )
    return texts


def heat_map(title: str, rows: Sequence[str], columns: Sequence[str], totals: Mapping[tuple[int, int], Total]) -> str:
    """Return a field for each row and column with its number, darker where there is more; 0 without one."""
    top = max((total.shown for total in totals.values()), default=0) or 1
    margin = 170
    side, tall = (WIDTH - margin) / len(columns), 26
    parts = [
        f'<text class="tick" x="{margin + side * (index + 0.5):.1f}" y="12" text-anchor="middle">{escape(name)}</text>'
        for index, name in enumerate(columns)
    ]
    for row, name in enumerate(rows):
        upper = 20 + row * tall
        parts.append(f'<text class="label" x="{margin - 10}" y="{upper + 17}" text-anchor="end">{escape(name)}</text>')
        for column, hour in enumerate(columns):
            total = totals.get((row, column), Total(0))
            opacity = 0.04 if total.is_hidden else 0.06 + (_DARKEST - 0.06) * total.shown / top
            parts.append(
                f'<rect class="cell" x="{margin + side * column:.1f}" y="{upper}" width="{side - 2:.1f}"'
                f' height="{tall - 2}" rx="3" fill-opacity="{opacity:.2f}">'
                f"<title>{escape(name)} {escape(hour)}: {total.text(number)}</title></rect>"
                f'<text class="in" x="{margin + side * (column + 0.5) - 1:.1f}" y="{upper + 16}"'
                f' text-anchor="middle">{brief(total, short)}</text>'
            )
    body = [
        (name, *(brief(totals.get((row, column), Total(0)), number) for column in range(len(columns))))
        for row, name in enumerate(rows)
    ]
    return _svg(24 + tall * len(rows), title, "".join(parts)) + _numbers(("", *columns), body)


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a table; each row begins with its name."""
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in body
    )
    return f'<div class="wide"><table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table></div>'


def _numbers(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    return f"<details><summary>Numbers</summary>{table(head, body)}</details>"


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


def _svg(height: float, description: str, content: str, width: int = WIDTH) -> str:
    """Return a drawing.

    Args:
        description: what it shows, for those who do not see it.
    """
    wide = ' class="whole"' if width == WIDTH else ""
    return (
        f'<svg{wide} viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(description)}">{content}</svg>'
    )
