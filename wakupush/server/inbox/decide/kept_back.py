"""Events of notifications that are not taken on: how many for which reason, without naming a user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from wakupush.model.entries import Entry
from wakupush.model.events import Event, EventKind, message_event
from wakupush.model.failures import Failure
from wakupush.protocol.request import Filtered
from wakupush.server.inbox.facts import Facts


def events_of(entry: Entry, reasons: Iterable[Failure | Filtered], facts: Facts) -> tuple[Event, ...]:
    """Return an event for each reason, with its count.

    What strangers ask for costs one row for each reason, not for each item.
    """
    return tuple(
        message_event(facts.task, entry, EventKind.REFUSED, facts.now, failure=reason, count=count)
        if isinstance(reason, Failure)
        else message_event(facts.task, entry, EventKind.FILTERED, facts.now, reason=reason.value, count=count)
        for reason, count in Counter(reasons).items()
    )
