"""How much beat enqueues: by what workers take, by full slots, and after a breaker closed."""

import pytest

from support.rows import ANDROID, IOS
from wakupush.server.beat.pace import Pace

SIZE = 10


def enqueue(pace, work=IOS, *, waiting=0, now=0.0, **state):
    """Enqueue all that is allowed at a look; return how many deliveries."""
    pace.look(waiting)
    deliveries = pace.allowed(work, SIZE, now=now, **state)
    pace.note(work, deliveries, -(-deliveries // SIZE), now=now)
    return deliveries


def settle(throughput, least=2):
    """Return how many tasks beat adds at a look, once it is used to workers that take so many from look to look."""
    pace, waiting, added = Pace(least), 0, []
    for look in range(60):
        added.append(enqueue(pace, waiting=waiting, now=look / 10) / SIZE)
        waiting = max(0, waiting + added[-1] - throughput)
    return sum(added[-20:]) / 20, waiting


@pytest.mark.parametrize("throughput", [1, 2, 8, 100, 1000])
def test_workers_get_as_much_as_they_take(throughput):
    added, waiting = settle(throughput)
    assert added == pytest.approx(throughput, rel=0.1)
    assert waiting <= max(2, 2 * throughput)


def test_depth_shrinks_when_workers_go_away():
    pace = Pace(2)
    for look in range(6):
        enqueue(pace, now=look / 10)
    assert enqueue(pace, now=0.6) == 2 * 2**6 * SIZE
    for _ in range(8):
        enqueue(pace, waiting=200, now=0.7)
    assert enqueue(pace, waiting=1, now=0.8) == SIZE


def test_full_queue_leaves_one_task_a_second():
    pace = Pace(2)
    enqueued = [
        enqueue(pace, work, waiting=500, now=second / 2) for second in range(4) for work in (IOS, ANDROID, None)
    ]
    assert enqueued == [0] * 6 + [SIZE] * 3 + [0] * 3


def test_backlog_begins_slowly_after_breaker_closed():
    pace = Pace(2)
    for look in range(20):
        enqueue(pace, ANDROID, now=look / 10)
    assert enqueue(pace, now=10.0, closed=False) == 3
    assert [enqueue(pace, now=10.0 + second) for second in (0, 5, 10, 20)] == [3, 6, 12, 48]
    assert enqueue(pace, ANDROID, now=30.0) > 1000, "the other platform was well"


def test_full_slots_slow_one_platform_down():
    pace = Pace(2)
    for look in range(10):
        enqueue(pace, now=look / 10)
    before = enqueue(pace, now=1.0)
    slower = [enqueue(pace, now=2.0 * second + 2, full=True) for second in range(4)]
    assert slower == [before // 2**n for n in range(1, 5)]
    assert enqueue(pace, ANDROID, now=10.0) >= before
    recovering = [enqueue(pace, now=11 + look / 10) for look in range(100)]
    assert recovering == sorted(recovering)
    assert recovering[-1] >= before
