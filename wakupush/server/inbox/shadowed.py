"""Messages that are decided in shadow: they are stored, and another server answers and pushes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from wakupush.model.events import EventKind, message_opened
from wakupush.model.shadow import Shadowed
from wakupush.runtime import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wakupush.model.answers import SealedAnswer
    from wakupush.model.entries import Task
    from wakupush.server.inbox.outcome import Outcome


def split(
    outcomes: Sequence[Outcome], sealed: Sequence[list[SealedAnswer]], task: Task, answers_since: float, now: float
) -> tuple[list[Outcome], list[list[SealedAnswer]], list[Shadowed]]:
    """Return outcomes without what another server does, their answers, and the messages that the other server answers.

    If a message was seen too early to be answered here, its changes are stored all the same. The parts of a message in
    segments are kept, too: the last part can complete it again.

    Args:
        outcomes: of messages of a task.
        sealed: the answer of each.
        task: that they came in.
        answers_since: see `wakupush.server.shadow.Shadow`.
        now: seconds since the epoch.
    """
    ours: list[Outcome] = []
    answers: list[list[SealedAnswer]] = []
    theirs: list[Shadowed] = []
    for outcome, answer in zip(outcomes, sealed, strict=True):
        if outcome.reply is None or outcome.entry.seen >= answers_since:
            ours.append(outcome)
            answers.append(answer)
            continue
        opened = message_opened(task, outcome.entry, now, EventKind.OPENED)
        ours.append(replace(outcome, events=opened, reply=None, request=None, admissions=(), forget=None))
        answers.append([])
        theirs.append(_shadowed(outcome, answer, task, is_over=answers_since < math.inf))
    return ours, answers, theirs


def _shadowed(outcome: Outcome, answer: list[SealedAnswer], task: Task, *, is_over: bool) -> Shadowed:
    request = outcome.request
    is_taken_on = request is not None and None in request.failures
    return Shadowed(
        queue=task.queue,
        entry=outcome.entry,
        is_over=is_over,
        request_id=request.message_id if request is not None and is_taken_on else None,
        items=len(request.failures) if request is not None else 0,
        answer_topic=answer[0].content_topic,
        answer_bytes=tuple(len(part.payload) for part in answer),
    )


def count(shadowed: Sequence[Shadowed]) -> None:
    """Count the answers that the other server is expected to give, once that is committed."""
    for each in shadowed:
        for size in each.answer_bytes:
            metrics.SHADOW_ANSWER_BYTES.labels(each.queue.name).observe(size)
