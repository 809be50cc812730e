"""Showing how many dead letters there are."""

from __future__ import annotations

from wakupush.postgres import dead_letters
from wakupush.runtime import metrics
from wakupush.server.resources import Resources


def count_dead_letters(resources: Resources) -> None:
    """Show in the metrics how many dead letters there are."""
    with resources.pool.connection() as connection:
        counts = dead_letters.counts(connection)
    metrics.DEAD_LETTERS.clear()
    for (platform, reason), count in counts.items():
        metrics.DEAD_LETTERS.labels(platform.label, reason).set(count)
