"""The arithmetic of `make bench-against`."""

import math

import pytest

from benchmarks.against.__main__ import Ratios, is_noisy, missed, ratios_of_cpu, spread
from benchmarks.loads import AT_ONCE, IN_50_MS, LOADS, Measured

[SOON] = [load for load in LOADS if load.name == AT_ONCE]
[SLOW] = [load for load in LOADS if load.name == IN_50_MS]


def measured(micros, per_second=100.0, p99=None):
    return Measured(cpu={"worker": micros * 0.75, "postgres": micros * 0.25}, per_second=per_second, p99=p99)


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


def test_aim_is_met_if_the_ratios_bound_meets_it():
    met = [(measured(100.0), measured(50.0 + number, 190.0)) for number in range(10)]
    assert ratios_of_cpu(met).upper == pytest.approx(0.57)
    assert missed([SOON], {AT_ONCE: met}) == []
    unsure = [(measured(100.0), measured(55.0 + number, 190.0)) for number in range(10)]
    assert ratios_of_cpu(unsure).median < 0.6
    assert missed([SOON], {AT_ONCE: unsure}) == [f"{AT_ONCE}: CPU time is 0.59 (at most 0.62), not 0.6"]
    slower = [(measured(100.0), measured(50.0, 170.0))] * 10
    assert missed([SOON], {AT_ONCE: slower}) == [f"{AT_ONCE}: 1.70 (at least 1.70) as many, not 1.8"]


def test_slow_gorush_is_compared_with_a_fast_one():
    soon = [(measured(100.0), measured(50.0, 200.0))] * 10
    late = [(measured(100.0), measured(50.0, 180.0))] * 10
    assert missed([SOON, SLOW], {AT_ONCE: soon, IN_50_MS: late}) == [
        f"{IN_50_MS}: 0.90 of what there are at once, not 0.95"
    ]
