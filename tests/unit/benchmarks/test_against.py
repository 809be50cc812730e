"""The arithmetic of `make bench-against`."""

import math

import pytest

from benchmarks.against.__main__ import Ratios, is_noisy, spread
from benchmarks.loads import Measured


def measured(micros):
    return Measured(cpu={"worker": micros * 0.75, "postgres": micros * 0.25}, per_second=100.0)


@pytest.mark.parametrize(
    ("count", "place"),
    [(1, None), (3, None), (4, 4), (10, 8), (20, 14)],  # of a coin that is thrown so often
)
def test_bound_covers_nine_of_ten_medians(count, place):
    ratios = Ratios([1.0 + number / 100 for number in range(1, count + 1)])
    assert ratios.upper == (math.inf if place is None else 1.0 + place / 100)
    assert ratios.lower == (0.0 if place is None else 1.0 + (count + 1 - place) / 100)


def test_the_order_of_the_pairs_is_nobodys_advantage():
    assert Ratios([0.5, 0.9, 0.7, 0.6]).upper == Ratios([0.9, 0.5, 0.6, 0.7]).upper == 0.9


def test_the_base_says_how_noisy_it_was():
    assert spread([100.0, 110.0, 105.0]) == pytest.approx(10 / 105)
    assert not is_noisy([(measured(base), measured(1)) for base in (100, 110, 105)])
    assert is_noisy([(measured(base), measured(1)) for base in (100, 120, 105)])
