"""The time of an answer to a push request follows from times alone, never from what became of the request."""

from hypothesis import example, given
from hypothesis import strategies as st

from support.deciding import ALICE, installation
from wakupush.server.delivery.post_times import DEVICES, PostTimes
from wakupush.server.engine.answer_times import AGES, SLOT_SECONDS, answer_age, answer_slot

SECONDS = st.floats(0, 100)
WITHIN = st.floats(0.05, 10)
AGE = st.sampled_from((*AGES, 1.5))
#: What floats of this size may be wrong by.
ERROR = 1e-6


def leaves(**times):
    return answer_slot(**times) * SLOT_SECONDS


@given(seen=SECONDS, start=SECONDS, now=SECONDS, age=AGE, within=WITHIN)
def test_answers_leave_in_time(seen, start, now, age, within):
    time = leaves(seen=seen, start=start, now=now, age=age, within=within)
    first_step = min(AGES[0], within)
    assert time >= max(now, start + first_step) - ERROR, "not before its work is done"
    assert time <= max(start + age, start + first_step, now) + SLOT_SECONDS + ERROR, "not after its age"
    assert time <= max(seen + within, start + first_step, now) + SLOT_SECONDS + ERROR, "not too late for its sender"


@given(seen=SECONDS, start=SECONDS, age=AGE, within=WITHIN, work=st.lists(st.floats(0, 1), min_size=2))
def test_the_length_of_the_work_does_not_show(seen, start, age, within, work):
    """A filtered request is less work than one that is pushed: whatever was done by then, the slot is the same."""
    first_step = min(AGES[0], within)
    slots = {
        answer_slot(seen=seen, start=start, now=start + share * first_step, age=age, within=within) for share in work
    }
    assert len(slots) == 1


@given(percentile=st.none() | st.floats(0, 100), within=WITHIN)
@example(percentile=None, within=1.5)
def test_the_age_is_the_first_step_that_covers_posts(percentile, within):
    age = answer_age(percentile, within)
    assert age == within or age in AGES
    assert age <= within
    if percentile is None:
        assert age == within
    else:
        assert age >= min(percentile, within)
        assert not any(percentile <= step < age for step in AGES)


def devices(first, count):
    return [installation(ALICE, f"device {number}") for number in range(first, first + count)]


def test_the_slowest_of_a_hundred_devices_does_not_count():
    times = PostTimes()
    for number, device in enumerate(devices(0, DEVICES), 1):
        assert times.percentile is None
        times.note([device], float(number))
    assert times.percentile == 99.0


def test_one_device_counts_once():
    """The pushes to a device, or that there are none, show in no other answer."""
    times = PostTimes()
    for _ in range(10 * DEVICES):
        times.note(devices(0, 1), 60.0)
    assert times.percentile is None
    times.note(devices(1, DEVICES - 1), 0.1)
    assert times.percentile == 0.1


def test_the_percentile_stays_until_all_are_heard_again():
    times = PostTimes()
    times.note(devices(0, DEVICES), 0.1)
    times.note(devices(0, DEVICES - 1), 2.0)
    assert times.percentile == 0.1
    times.note(devices(DEVICES, 1), 2.0)
    assert times.percentile == 2.0
