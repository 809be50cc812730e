"""A plot of the simulation as SVG: load and depth, replicas, latency, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, LEFT, GAP = 800, 150, 60, 34
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")


@dataclass(frozen=True)
class Line:
    """A line of a plot: its name and its points, seconds and value."""

    name: str
    points: Sequence[tuple[float, float]]


def plot(samples: Sequence, latencies: Sequence[tuple[float, float]]) -> str:
    """Return the SVG of a simulation; see `benchmarks.autoscaling`."""
    end = max(sample.at for sample in samples)

    def over(name: str) -> list[tuple[float, float]]:
        return [(sample.at, getattr(sample, name)) for sample in samples]

    plots = [
        ("requests a second", [Line("arriving", over("rate"))]),
        (
            "messages",
            [Line("queued", over("queued")), Line("due", over("due")), Line("under way", over("under_way"))],
        ),
        ("workers", [Line("wanted", over("wanted")), Line("running", over("running"))]),
        (
            "seconds from node to gorush",
            [Line("median", _windows(latencies, end, 0.5)), Line("p95", _windows(latencies, end, 0.95))],
        ),
    ]
    parts = [_one(title, lines, end, index * (HEIGHT + GAP)) for index, (title, lines) in enumerate(plots)]
    total = len(plots) * (HEIGHT + GAP) + 20
    style = "<style>text{font:12px sans-serif;fill:#333}</style>"
    background = f'<rect width="{WIDTH + LEFT + 20}" height="{total}" fill="white"/>'
    size = f'viewBox="0 0 {WIDTH + LEFT + 20} {total}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{background}{"".join(parts)}</svg>\n'


def _windows(latencies: Sequence[tuple[float, float]], end: float, quantile: float) -> list[tuple[float, float]]:
    """Return a quantile of the latencies of every 3 s."""
    found = []
    for start in range(0, int(end), 3):
        some = sorted(latency for at, latency in latencies if start <= at < start + 3)
        if some:
            found.append((start + 1.5, some[int(len(some) * quantile)]))
    return found


def _one(title: str, lines: list[Line], end: float, top: float) -> str:
    most = max((value for line in lines for _, value in line.points), default=0) or 1
    bottom = top + GAP + HEIGHT - 20
    high = HEIGHT - 20

    def place(at: float, value: float) -> str:
        return f"{LEFT + at / end * WIDTH:.1f},{bottom - value / most * high:.1f}"

    parts = [f'<text x="{LEFT}" y="{top + 18}">{title}</text>']
    for share in (0, 0.5, 1):
        y = bottom - share * high
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share * most:.3g}</text>')
    for at in range(0, int(end), 30):
        x = LEFT + at / end * WIDTH
        parts.append(f'<text x="{x:.1f}" y="{bottom + 14:.1f}" text-anchor="middle">{at} s</text>')
    for index, (line, colour) in enumerate(zip(lines, COLOURS, strict=False)):
        points = " ".join(place(at, value) for at, value in line.points)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        x = LEFT + 220 + 110 * index
        parts.append(f'<text x="{x}" y="{top + 18}" style="fill:{colour}">{line.name}</text>')
    return "".join(parts)
