"""When the answers to push requests leave: at a time that shows nothing of what became of the requests."""

from math import ceil
from typing import Final

#: Answers leave at multiples of this, in monotonic seconds, all that are due in a process together.
SLOT_SECONDS: Final = 0.05
#: How old a task is when its answers leave, in seconds, at least; the setting `answer_within` ends this list.
AGES: Final = (0.25, 0.5, 1.0)


def answer_age(post_seconds: float | None, within: float) -> float:
    """Return how many seconds after its task began an answer leaves: the first step that covers most posts.

    Args:
        post_seconds: see `wakupush.server.delivery.post_times.PostTimes`; None if it is not known.
        within: the last step.
    """
    steps = (step for step in AGES if step < within)
    return within if post_seconds is None else next((step for step in steps if post_seconds <= step), within)


def answer_slot(*, seen: float, start: float, now: float, age: float, within: float) -> int:
    """Return the number of the slot in which the answers of a task leave.

    Nothing that this depends on differs between a request that is filtered and one that is not. A task that waited
    for long in its queue still gets the first step, so that its work does not show in the time of its answer.

    Args:
        seen: when ingest saw its oldest request, by ingest's clock; all times are in monotonic seconds.
        start: of the task.
        now: after its commit.
        age: see `answer_age`.
        within: seconds after `seen` within which answers leave, if the task began early enough.
    """
    first_step = min(AGES[0], within)
    leaves = max(min(start + age, seen + within), start + first_step, now)
    return ceil(leaves / SLOT_SECONDS)
