"""The limits of a task: asked once, however often its transaction is repeated."""

from support.deciding import CountingLimiter, entry
from wakupush.model.limits import MINUTE, Limit
from wakupush.server.engine import limits
from wakupush.server.engine.limits import TaskLimits


def limit(name, number=1, *, most=9, after=None):
    return Limit(name, most, MINUTE, entry(number).hash, after=after)


def allows(verdicts, *limits):
    return [verdicts.allow(limit.name, limit.message, limit.position) for limit in limits]


def test_each_limit_is_asked_once():
    limiter = CountingLimiter()
    task_limits = TaskLimits(limiter)
    first, second, third = limit("name"), limit("name", 2, most=1), limit("name", 3)
    for _ in range(3):
        assert allows(task_limits.ask([first, second]), first, second) == [True, False]
    verdicts = task_limits.ask(iter([first, third]))
    assert allows(verdicts, first, second, third) == [True, False, True]
    assert [call for call in limiter.calls if call] == [[first, second], [third]]


def test_one_call_counts_what_passed_another_limit():
    first, held_back = limit("first"), limit("first", 2, most=1)
    after = [limit("second", after=first), limit("second", 2, after=held_back)]
    task_limits = TaskLimits(CountingLimiter())
    assert allows(task_limits.ask([first, after[0], held_back, after[1]]), first, held_back, *after) == [
        *(True, False, True, False)
    ]


def test_an_earlier_verdict_decides_what_comes_after():
    """A repeated transaction may meet a device that is new, in a request whose repeat was asked before."""
    limiter = CountingLimiter()
    task_limits = TaskLimits(limiter)
    first, held_back = limit("first"), limit("first", 2, most=1)
    task_limits.ask([first, held_back])
    after = [limit("second", after=first), limit("second", 2, after=held_back)]
    for _ in range(2):
        assert allows(task_limits.ask([first, held_back, *after]), *after) == [True, False]
    assert limiter.calls[1:] == [[limit("second")], []], "what is held back anyway is not counted"


def test_unasked_limits_let_through():
    assert allows(TaskLimits(CountingLimiter()).ask([]), limit("name")) == [True]


def test_redis_is_asked_for_a_bounded_number_at_once(monkeypatch):
    monkeypatch.setattr(limits, "ASKED_AT_ONCE", 3)
    limiter = CountingLimiter()
    first = limit("first", most=1)
    task_limits = [
        first,
        limit("second", after=first),
        held_back := limit("first", 2, most=1),
        *(limit("second", number, after=held_back) for number in range(2, 6)),
        *(limit("second", number, after=first) for number in range(6, 9)),
    ]
    verdicts = TaskLimits(limiter).ask(task_limits)
    assert allows(verdicts, *task_limits) == [True, True, False, *[False] * 4, *[True] * 3]
    assert [len(call) for call in limiter.calls] == [3, 3], "what is held back anyway is not asked"
