"""Counters and histograms that exist at 0 before they count anything.

With labels they have no series until the first increase, and `increase` and `rate` of a series that begins at 1 are 0:
no alert would see a single event.
"""

from collections.abc import Iterable, Mapping

from prometheus_client import Counter, Histogram

#: The series of metrics, each by the values of its labels in their order.
Series = Mapping[Counter | Histogram, Iterable[tuple[str, ...]]]


def begin(*tables: Series) -> None:
    """Create these series at 0; those that exist stay as they are.

    A pool of workers does it before it forks: its processes count as one.
    """
    for table in tables:
        for metric, rows in table.items():
            for labels in rows:
                metric.labels(*labels)
