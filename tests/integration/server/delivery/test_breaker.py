"""The circuit breaker on a real Redis, seen by several processes at once (each has a `Breaker` of its own)."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import REGISTRY

from support.rows import ANDROID, IOS
from wakupush.devnet.processes import free_port, wait_until
from wakupush.model.failures import Route
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import BreakerSettings, RedisSettings
from wakupush.server.delivery.breaker import Breaker

APN, FIREBASE = IOS, ANDROID
FAULT, WORKS, UNTOLD = [Route.BROKEN], [Route.WORKS], [Route.UNTOLD]


class Commands:
    """Counts what is asked of Redis."""

    def __init__(self, redis):
        self._redis = redis

    @property
    def count(self):
        return self._redis.info("stats")["total_commands_processed"]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def make(redis, monkeypatch):
    """Make the breakers of one process; all share what is in Redis, each has a clock of its own for its cache."""

    monkeypatch.setattr("wakupush.server.delivery.breaker.PROBES", 2)

    def make_it(probe_seconds=60.0, clock=None, **settings):
        options = BreakerSettings(**{"faults": 3, **settings})
        return Breaker(redis, options, probe_seconds, clock or uncached())

    return make_it


def uncached():
    """A clock by which everything that was read is out of date."""
    ticks = iter(range(10**9))
    return lambda: 10.0 * next(ticks)


def fail(breaker, times=3, platform=APN, probe=False):
    for _ in range(times):
        breaker.note(platform, FAULT, probe=probe)


def end_pause(redis):
    assert redis.delete("wakupush:breaker:ios:open")


def test_faults_in_a_row_open_one_platform_for_all(make):
    one, other = make(), make()
    fail(one, 2)
    assert other.is_closed(APN)
    fail(other, 1)
    assert not one.is_closed(APN)
    assert one.take_probes(APN, 5) == other.take_probes(APN, 5) == one.claimable(APN, 500) == 0
    assert one.is_closed(FIREBASE)
    assert one.take_probes(FIREBASE, 5) is None
    assert one.claimable(FIREBASE, 500) == 500


@pytest.mark.parametrize("routes", [WORKS, [*FAULT, *WORKS], [*WORKS, *UNTOLD, *FAULT]])
def test_a_post_that_shows_that_the_route_works_ends_the_row(make, routes):
    breaker = make()
    fail(breaker, 2)
    breaker.note(APN, routes, probe=False)
    fail(breaker, 2)
    assert breaker.is_closed(APN)


@pytest.mark.parametrize("routes", [UNTOLD, [*UNTOLD, *UNTOLD], []])
def test_what_says_nothing_about_the_route_counts_neither_way(make, routes):
    breaker = make()
    for _ in range(10):
        breaker.note(APN, routes, probe=False)
    assert breaker.is_closed(APN)
    fail(breaker, 2)
    breaker.note(APN, routes, probe=False)
    fail(breaker, 1)
    assert not breaker.is_closed(APN)


def test_few_processes_probe_and_a_success_closes_it(make, redis):
    breakers = [make() for _ in range(16)]
    fail(breakers[0])
    end_pause(redis)
    with ThreadPoolExecutor(16) as threads:
        probes = list(threads.map(lambda breaker: breaker.take_probes(APN, 8), breakers))
    assert sum(probes) == 2
    assert breakers[3].claimable(APN, 500) == 0
    breakers[probes.index(max(probes))].note(APN, WORKS, probe=True)
    assert all(breaker.is_closed(APN) for breaker in breakers)
    assert breakers[5].take_probes(APN, 8) is None


def test_only_the_fault_of_a_probe_opens_it_again(make, redis):
    breaker = make()
    fail(breaker)
    end_pause(redis)
    fail(breaker, 5)  # posts that were begun before it opened, and timed out since
    assert breaker.take_probes(APN, 1) == 1
    fail(breaker, 1, probe=True)
    assert breaker.claimable(APN, 9) == 0
    end_pause(redis)
    assert breaker.take_probes(APN, 9) == 2


def test_the_pause_ends_by_itself(make):
    breaker = make(pause=0.2)
    fail(breaker)
    wait_until(lambda: breaker.claimable(APN, 9) == 2, timeout=60, what="the pause is over")


def test_no_more_is_enqueued_than_the_probes(make, redis):
    clock = Clock()
    beat = make(clock=clock)
    fail(beat)
    end_pause(redis)
    assert beat.claimable(APN, 9) == 2
    beat.note_enqueued(APN, 2)
    assert beat.claimable(APN, 9) == 0
    beat.note_taken()
    assert beat.claimable(APN, 9) == 2, "they were over at once"
    beat.note_enqueued(APN, 2)
    clock.now = 1.0
    assert beat.claimable(APN, 9) == 2, "no worker has taken them: they may be lost"
    make().note(APN, WORKS, probe=True)
    assert beat.claimable(APN, 9) == 9, "it sees at once that it is closed"


def test_probes_enqueued_one_after_the_other_add_up(make, redis):
    clock = Clock()
    beat = make(clock=clock)
    fail(beat)
    end_pause(redis)
    for enqueued, expected_probes in ((1, 1), (0, 1), (1, 0)):
        beat.note_enqueued(APN, enqueued)
        assert beat.claimable(APN, 9) == expected_probes
        clock.now += 0.4
    beat.note_enqueued(APN, 0)
    clock.now = 1.9
    assert beat.claimable(APN, 9) == 2, "no worker has taken them: they may be lost"


def test_a_worker_that_saw_it_open_takes_probes(make, redis):
    worker = make(clock=Clock())
    fail(worker)
    assert worker.take_probes(APN, 9) == 0
    end_pause(redis)
    assert worker.take_probes(APN, 9) == 2


def test_a_prober_that_dies_holds_nobody_up(make, redis):
    breaker = make(probe_seconds=0.2)
    fail(breaker)
    end_pause(redis)
    assert breaker.take_probes(APN, 9) == 2
    wait_until(lambda: breaker.claimable(APN, 9) > 0, timeout=60, what="the probes are over")
    assert breaker.take_probes(APN, 9) == 2


def test_a_probe_that_tells_nothing_makes_room_for_another(make, redis):
    breaker = make()
    fail(breaker)
    end_pause(redis)
    assert breaker.take_probes(APN, 9) == 2
    breaker.note(APN, UNTOLD, probe=True)
    assert breaker.take_probes(APN, 9) == 1


def test_a_process_whose_slots_hang_adds_one_fault_a_second(make):
    clock = Clock()
    breaker, labels = make(clock=clock), {"app": "", "platform": "ios"}
    opened = REGISTRY.get_sample_value("wakupush_breaker_opened_total", labels) or 0
    for _ in range(9):  # a process that wakes up finds each of its tasks without a slot
        breaker.note_hang(APN)
    assert breaker.is_closed(APN)
    for clock.now in (1.0, 2.0, 3.0):  # nobody's posts get through
        breaker.note_hang(APN)
    assert not breaker.is_closed(APN)
    assert REGISTRY.get_sample_value("wakupush_breaker_opened_total", labels) == opened + 1


def test_slots_that_hang_in_one_process_stop_no_other(make):
    clock = Clock()
    hung, other = make(clock=clock), make()
    for second in range(20):
        clock.now = float(second)
        hung.note_hang(APN)
        assert other.is_closed(APN)
        other.note(APN, WORKS, probe=False)


def test_slots_that_hang_everywhere_open_it(make):
    for process in [make() for _ in range(3)]:
        process.note_hang(APN)
    assert not make().is_closed(APN)


def test_the_schedule_alone_shows_the_state(make, redis):
    def gauge_value():
        return REGISTRY.get_sample_value("wakupush_breaker_state", {"app": "", "platform": "ios"})

    beat, worker = make(), make()
    fail(worker)
    beat.show(APN)
    assert gauge_value() == 2
    end_pause(redis)
    beat.show(APN)
    assert gauge_value() == 1
    worker.note(APN, WORKS, probe=True)
    beat.show(APN)
    assert gauge_value() == 0
    fail(worker)
    assert not worker.is_closed(APN)
    assert worker.take_probes(APN, 9) == 0
    assert gauge_value() == 0


def test_while_all_is_well_redis_is_asked_once_a_second(make, redis):
    clock = Clock()
    breaker, commands = make(clock=clock), Commands(redis)
    before = commands.count
    for post in range(1000):
        clock.now = post / 100
        assert breaker.take_probes(APN, 8) is None
        assert breaker.is_closed(APN)
        breaker.note(APN, WORKS, probe=False)
    assert commands.count - before <= 10 + 1  # asking for the count is one


def test_what_another_process_found_is_known_a_second_later(make):
    clock = Clock()
    breaker = make(clock=clock)
    assert breaker.is_closed(APN)
    fail(make())
    assert breaker.is_closed(APN)
    clock.now = 1.0
    assert not breaker.is_closed(APN)


def test_without_redis_everything_is_let_through_and_counted():
    with open_redis(RedisSettings(url=f"redis://127.0.0.1:{free_port()}/0")) as redis:
        breaker = Breaker(redis, BreakerSettings(), 60.0, uncached())
        before = REGISTRY.get_sample_value("wakupush_breaker_failed_total")
        fail(breaker, 9)
        breaker.note(APN, WORKS, probe=False)
        breaker.note_hang(APN)
        assert breaker.is_closed(APN)
        assert breaker.take_probes(APN, 5) is None
        assert breaker.claimable(APN, 500) == 500
        assert REGISTRY.get_sample_value("wakupush_breaker_failed_total") > before
