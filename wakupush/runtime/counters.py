"""Counters that exist at 0 before they count anything.

A labelled counter has no series until its first increase, and `increase` and `rate` of a series that begins at 1 are 0:
no alert would see a single event.
"""

from collections.abc import Iterable, Mapping

from prometheus_client import Counter

#: The series of counters, each by the values of its labels in their order.
Series = Mapping[Counter, Iterable[tuple[str, ...]]]


def begin(*tables: Series) -> None:
    """Create these series at 0; those that exist stay as they are.

    A pool of workers does it before it forks: its processes count as one.
    """
    for table in tables:
        for counter, rows in table.items():
            for labels in rows:
                counter.labels(*labels)
