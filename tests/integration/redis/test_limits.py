"""Limits that all workers share, counted in a real Redis: above a limit chance decides, for whoever asks."""

import itertools
import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from wakupush.model.limits import MINUTE, Limit
from wakupush.redis.limits import Limiter
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import RedisSettings

#: Each example is a round trip.
FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
#: Random numbers with which a chance is measured, up to one of these steps.
STEPS = 32
ALMOST_ONE = math.nextafter(1.0, 0.0)
numbers = itertools.count()


def limit(key="", *, most=3, cost=1, name="name", after=None, floor=0):
    return Limit(name, most, MINUTE, next(numbers).to_bytes(32, "big"), key=key, cost=cost, after=after, floor=floor)


def limits(*keys, **fields):
    return [limit(key, **fields) for key in keys]


def sample(metric, **labels):
    return REGISTRY.get_sample_value(metric, labels) or 0


def steps_let_through(redis, demands, *, now=600.0):
    """Return, for each demand, with how many of the random numbers 0/32, 1/32, … its last limit passes.

    Its chance is above that number less one, in 32nds, and not above that number.

    Args:
        demands: of each, the limits that are counted one after the other, as `most` and costs; or also those that were
            counted in the window before.
    """
    run = next(numbers)
    before, requested_limits, draws = [], [], []
    for place, (most, costs, *earlier_costs) in enumerate(demands):
        for step in range(STEPS):
            key = f"{run}-{place}-{step}"
            before += [limit(key, most=most, cost=cost) for costs_before in earlier_costs for cost in costs_before]
            requested_limits += [limit(key, most=most, cost=cost) for cost in costs]
            draws += [ALMOST_ONE] * (len(costs) - 1) + [step / STEPS]
    Limiter(redis, now=lambda: now - MINUTE).ask(before)
    verdicts = iter(Limiter(redis, draw=iter(draws).__next__, now=lambda: now).ask(requested_limits))
    return [sum([list(itertools.islice(verdicts, len(costs)))[-1] for _ in range(STEPS)]) for _, costs, *_ in demands]


def steps_of_each(redis, most, costs):
    """Return the same for each of these costs, if all of them are asked for."""
    others = [costs[:place] + costs[place + 1 :] for place in range(len(costs))]
    return steps_let_through(redis, [(most, [*rest, cost]) for rest, cost in zip(others, costs, strict=True)])


cost_lists = st.lists(st.integers(1, 5_000_000), min_size=1, max_size=6)
mosts = st.integers(1, 10_000_000)


@given(st.lists(st.integers(1, 5_000_000), max_size=50), st.integers(0, 1000))
@FEW
def test_demand_that_fits_passes(redis, costs, spare):
    requested_limits = [limit(f"fits {next(numbers)}", most=sum(costs) + spare + 1, cost=cost) for cost in costs]
    assert all(Limiter(redis, draw=lambda: ALMOST_ONE).ask(requested_limits))


@given(mosts, cost_lists)
@FEW
def test_at_most_twice_the_limit_passes(redis, most, costs):
    """And nobody is locked out."""
    steps = steps_of_each(redis, most, costs)
    assert all(steps)
    assert sum((step - 1) / STEPS * cost for step, cost in zip(steps, costs, strict=True)) < 2 * most


@given(mosts, cost_lists)
@FEW
def test_equal_demands_have_equal_chances(redis, most, costs):
    """And larger ones none that is better."""
    by_cost = sorted(zip(costs, steps_of_each(redis, most, costs), strict=True))
    for (cost, step), (larger, step_of_larger) in itertools.pairwise(by_cost):
        assert step >= step_of_larger
        assert cost < larger or step == step_of_larger


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 10_000), st.integers(1, 10_000))
@FEW
def test_large_answers_leave_others_their_share(redis, honest, strange, share, excess):
    """However much each of the stranger's costs."""
    costs = [share] * honest + [share + excess * share] * strange
    assert steps_of_each(redis, (honest + strange) * share, costs)[:honest] == [STEPS] * honest


@given(
    most=st.integers(1, 40),
    now=st.integers(1, 8),
    earlier=st.integers(0, 8),
    quarter=st.integers(0, 3),
    cost=st.integers(1, 100),
)
@FEW
def test_the_last_window_counts_by_its_share(redis, *, most, now, earlier, quarter, cost):
    """Of four times as many in the last window, as many count as there are quarters of it within the time."""
    [step, same] = steps_let_through(
        redis,
        [
            (most * cost, [cost] * now, [cost] * 4 * earlier),
            (most * cost, [cost] * (earlier * (4 - quarter) + now)),
        ],
        now=600.0 + quarter * MINUTE / 4,
    )
    assert step == same


def play(redis, arrivals, most, seed):
    """Play windows with so many arrivals, of which some are a stranger's; return who is let through in each."""
    chance, key, time = random.Random(seed), f"flood {next(numbers)}", [0.0]
    limiter = Limiter(redis, draw=chance.random, now=lambda: time[0])
    results = []
    for window, (honest, strange) in enumerate(arrivals, 10):
        senders = ["honest"] * honest + ["strange"] * strange
        chance.shuffle(senders)
        admitted_senders = []
        for batch in range(20):
            time[0] = MINUTE * (window + batch / 20)
            some = senders[batch::20]
            verdicts = limiter.ask([limit(key, most=most) for _ in some])
            admitted_senders += [sender for sender, is_through in zip(some, verdicts, strict=True) if is_through]
        results.append((admitted_senders.count("honest"), admitted_senders.count("strange")))
    return results


@pytest.mark.parametrize("seed", range(3))
def test_a_flood_does_not_lock_others_out(redis, seed):
    """Not those who come after it in the window either, as first come first served would."""
    honest, strange, most = 100, 17 * 60, 200
    first, *steady = play(redis, [(honest, strange)] * 6, most, seed)
    begin = most * (1 + math.log((honest + strange) / most))
    assert sum(first) < 1.5 * begin
    assert all(0.5 * most < sum(counts) < 1.6 * most for counts in steady)
    fair = honest / (honest + strange)
    assert 0.4 * fair < sum(count for count, _ in steady) / sum(map(sum, steady)) < 1.8 * fair


# Counting.


def test_a_limit_counts_by_key_and_within_its_time(redis):
    now = [600.0]
    limiter = Limiter(redis, draw=lambda: 0.999, now=lambda: now[0])
    assert limiter.ask(limits(*["one"] * 4, "other")) == [True, True, True, False, True]
    now[0] = 659.0
    assert limiter.ask(limits("one")) == [False]
    now[0] = 660.0 + 59.0  # of the five before a sixtieth counts
    assert limiter.ask(limits("one", "one")) == [True, True]
    now[0] = 900.0
    assert limiter.ask(limits(*["one"] * 3)) == [True] * 3


def test_above_a_limit_chance_decides_by_demand(redis):
    draws = []
    limiter = Limiter(redis, draw=lambda: draws.append(1) or 0.5, now=lambda: 600.0)
    verdicts = limiter.ask(limits(*["one"] * 8))
    # 3 of 6 are the last that a half lets through.
    assert (verdicts, len(draws)) == ([True] * 5 + [False] * 3, 8)
    assert limiter.ask(limits(*["two"] * 4, most=100, cost=40)) == [True, True, True, True]
    assert limiter.ask(limits(*["two"] * 2, most=100, cost=200)) == [False, False]
    assert limiter.ask(limits("two", most=100, cost=10)) == [True]


def test_counters_expire(redis):
    Limiter(redis).ask(limits("one"))
    [key] = redis.keys("wakupush:limit*")
    assert 0 < redis.ttl(key) <= 2 * MINUTE


def test_a_limit_counts_what_passed_the_one_before(redis):
    """In one call; the rest leaves no counter, and is in no metric."""
    limiter = Limiter(redis, draw=lambda: 0.999, now=lambda: 600.0)
    first, held_back = limits("one", "one", name="first", most=1)
    second = [limit("new", name="second", after=first), limit("held back", name="second", after=held_back)]
    third = [limit("new", name="third", after=second[0]), limit("held back", name="third", after=second[1])]
    results = ("let_through", "held_back")
    counts = [sample("wakupush_limited_total", limit="second", result=result) for result in results]
    requested_limits = [first, second[0], held_back, second[1], *third, limit("other", name="second")]
    assert limiter.ask(requested_limits) == [True, True, False, False, True, False, True]
    assert {key.decode() for key in redis.keys("wakupush:limit:*")} == {
        "wakupush:limit:first:one:10",
        "wakupush:limit:second:new:10",
        "wakupush:limit:third:new:10",
        "wakupush:limit:second:other:10",
    }
    after = [sample("wakupush_limited_total", limit="second", result=result) for result in results]
    assert [new - old for new, old in zip(after, counts, strict=True)] == [2, 0]


def test_a_redis_without_an_answer_limits_nothing(redis, redis_server):
    failed = sample("wakupush_limiter_failed_total")
    with open_redis(RedisSettings(url=redis_server.url, timeout=0.1)) as impatient, capture_logs() as logs:
        redis.client_pause(10_000, all=False)
        try:
            verdicts = Limiter(impatient).ask([*limits("one", "one", most=1), limit(name="other")])
        finally:
            redis.client_unpause()
    assert verdicts == [True] * 3
    assert sample("wakupush_limiter_failed_total") - failed == 3
    assert [(log["event"], log["limit"], log["error"]) for log in logs] == [
        ("limit_not_checked", "name", "TimeoutError"),
        ("limit_not_checked", "other", "TimeoutError"),
    ]


def test_a_floor_counts_by_number_whatever_the_cost(redis):
    """Of ten that are all too large, as many as the floor says pass on average; below it all do."""
    draws = itertools.chain(itertools.repeat(ALMOST_ONE, 4), itertools.cycle([0.39, 0.41]))
    limiter = Limiter(redis, draw=draws.__next__, now=lambda: 600.0)
    verdicts = [limiter.ask([limit("user", most=10, cost=10_000, floor=4)])[0] for _ in range(11)]
    assert verdicts[:4] == [True] * 4
    # The tenth has a chance of 4 in 10, the eleventh of 4 in 11.
    assert verdicts[8:] == [True, False, False]
    assert Limiter(redis, draw=lambda: 0.33, now=lambda: 600.0).ask([limit("user", most=10, cost=10_000, floor=4)]) == [
        True
    ]


def test_counts_can_be_given_back(redis):
    limiter, counted = Limiter(redis), []
    first = limit("user", most=1)
    assert limiter.ask([first, limit("user", most=1, cost=5, after=first)], counted)[0]
    assert [cost for _, _, cost in counted] == [1, 5]
    limiter.give_back(counted)
    [key] = {key for _, key, _ in counted}
    assert redis.hgetall(key) == {b"number": b"0", b"cost": b"0"}
    redis.delete(key)
    limiter.give_back(counted)
    assert not redis.exists(key), "a counter that expired stays gone"
