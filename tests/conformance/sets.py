"""The sets of vectors that the suite runs."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OF_2024, OF_2026 = TESTS / "vectors", TESTS / "vectors_2026"


def chosen(config: pytest.Config) -> list[Path]:
    """Return the directories of ``--vectors``, without it those of both years.

    Raises:
        pytest.UsageError: one of them is no directory.
    """
    sets = config.getoption("vectors") or [OF_2024, OF_2026]
    for directory in sets:
        if not directory.is_dir():
            raise pytest.UsageError(f"--vectors: there is no directory {directory}")
    return sets
