"""Above a limit chance decides: capacity divided by demand, for whoever asks."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakupush.model.limits import MINUTE, Demand, Limit, chance, demand


def limit(most, cost=1):
    return Limit("name", most, MINUTE, bytes(32), cost=cost)


costs = st.lists(st.integers(1, 5_000_000), min_size=1, max_size=50)
mosts = st.integers(1, 10_000_000)


def chances(most, asked):
    """Return the chance of each of these costs, when all of them are asked for."""
    whole = Demand(len(asked), sum(asked))
    return [chance(limit(most, cost), whole) for cost in asked]


@given(mosts, costs)
def test_what_fits_is_let_through_whatever_it_is(most, asked):
    if sum(asked) <= most:
        assert set(chances(most, asked)) == {1.0}


@given(mosts, costs)
def test_twice_the_limit_at_most_passes(most, asked):
    found = chances(most, asked)
    assert all(0.0 < each <= 1.0 for each in found)
    assert sum(each * cost for each, cost in zip(found, asked, strict=True)) <= 2 * most * (1 + 1e-9)


@given(mosts, costs)
def test_equal_demands_have_equal_chances(most, asked):
    found = sorted(zip(asked, chances(most, asked), strict=True))
    assert all(more <= less for (_, less), (_, more) in pairwise(found))


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 10_000), st.integers(1, 10_000))
def test_large_answers_leave_the_fair_share_to_others(honest, strange, share, more):
    """However much each of the stranger's costs."""
    most = (honest + strange) * share
    found = chances(most, [share] * honest + [share + more * share] * strange)
    assert found[:honest] == pytest.approx([1.0] * honest)


@given(
    st.builds(Demand, st.integers(1, 100), st.integers(1, 100)),
    st.builds(Demand, st.integers(0, 100), st.integers(0, 100)),
    st.floats(0, 1),
)
def test_previous_window_counts_in_proportion(now, before, elapsed):
    asked = demand(now, before, elapsed)
    assert (now.number, now.cost) <= (asked.number, asked.cost)
    assert asked.number <= now.number + before.number
    assert demand(now, before, 1.0) == now


def windows(arrivals, most, seed):
    """Play windows, each with so many arrivals of which some are a stranger's; return who was let through in each."""
    draw = random.Random(seed)
    before, found = Demand(0, 0), []
    for honest, strange in arrivals:
        kinds = ["honest"] * honest + ["strange"] * strange
        draw.shuffle(kinds)
        through = []
        for number, kind in enumerate(kinds, 1):
            asked = demand(Demand(number, number), before, number / len(kinds))
            if draw.random() < chance(limit(most), asked):
                through.append(kind)
        before = Demand(len(kinds), len(kinds))
        found.append((through.count("honest"), through.count("strange")))
    return found


@given(st.integers(0, 2**32))
def test_seventeen_messages_a_second_lock_nobody_out(seed):
    """Not those who come after them in the window either, as first come first served would."""
    honest, strange, most = 100, 17 * 60, 200
    first, *steady = windows([(honest, strange)] * 6, most, seed)
    begins = most * (1 + math.log((honest + strange) / most))
    assert sum(first) < 1.5 * begins
    assert all(0.5 * most < sum(each) < 1.6 * most for each in steady)
    fair = honest / (honest + strange)
    assert 0.4 * fair < sum(each for each, _ in steady) / sum(map(sum, steady)) < 1.8 * fair
