"""The evidence of a run with its indexes, and what it says of each notification."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

from chaos.evidence import Answered, DeviceId, Evidence, Happened, Pushed, Window
from chaos.plan import Notified, Sent
from wakupush.model.failures import BY_LABEL, Failure, Retry
from wakupush.model.queues import DISPATCH, REST

Key, Value = TypeVar("Key"), TypeVar("Value")

#: Seconds by which clocks and logs of different processes may differ.
SLACK = 1.0
#: The fault during which gorush keeps failures to itself: what failed then reads as delivered.
LOST_LOG = "gorush loses its log"
#: A delivery whose lease is found lost so many leases after its admission may have had another holder.
PUT_BACK_LEASES = 1.5
#: The part at fault where processes had to wait for a processor: they stood still.
MACHINE = "machine"
#: The events that a delivery has, without those that another one implies.
_OF_DELIVERIES = frozenset({"admitted", "delivered", "unknown", "failed", "expired", "dead_letter"})
#: The pools that post.
POSTING = frozenset({DISPATCH.name, REST})
#: The states of a delivery of which its sender is not told a success.
UNREACHED = frozenset({"failed", "expired", "dead_letter"})


def copies(envelopes: list[Sent]) -> int:
    """Return how often a message was sent whole; its parts count once together."""
    return round(sum(1 / message.parts for message in envelopes))


def states(history: list[Happened]) -> list[str]:
    """Return the state of a delivery after each of its events: ``open`` while it is tried, else that of its row."""
    event_states: list[str] = []
    for event in history:
        failure = BY_LABEL.get(event.failure or "", Failure.ATTEMPTS_EXHAUSTED)
        # What gorush's webhook reports late ends a delivery that had read as delivered, whatever it is.
        is_final = failure.retry is Retry.NEVER or event_states[-1:] == ["delivered"]
        if event.kind in {"delivered", "expired", "dead_letter"}:
            event_states.append(event.kind)
        else:
            event_states.append("failed" if event.kind == "failed" and is_final else "open")
    return event_states


def states_at(history: list[Happened], at: float, before: float = SLACK) -> set[str]:
    """Return the states that a delivery may have had at a time, as far as clocks tell.

    Args:
        before: seconds for which what was true before that time still counts.
    """
    steps = list(zip(history, states(history), strict=True))
    earlier = [state for event, state in steps if event.at <= at - before]
    return {state for event, state in steps if at - before < event.at <= at + SLACK} | set(earlier[-1:])


def _grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, in their order."""
    groups = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return dict(groups)


@dataclass(frozen=True)
class Case:
    """Evidence with its indexes."""

    evidence: Evidence

    @cached_property
    def messages(self) -> dict[str, list[Sent]]:
        """The envelopes of each application message."""
        envelopes = {message.envelope: message for message in self.evidence.sent}
        return _grouped((message.id, message) for message in envelopes.values())

    @cached_property
    def received(self) -> dict[str, list[float]]:
        """When each message was handled, by trace id."""
        return _grouped((event.trace_id, event.at) for event in self.evidence.events if event.kind == "received")

    @cached_property
    def answers(self) -> dict[str, list[Answered]]:
        """The answers to each application message, in the order in which they left."""
        in_order = sorted(self.evidence.answers, key=lambda answer: answer.at)
        return _grouped((answer.id, answer) for answer in in_order)

    @cached_property
    def pushes(self) -> dict[str, list[Pushed]]:
        """The attempts of each notification."""
        return _grouped((push.delivery_key, push) for push in self.evidence.pushes)

    @cached_property
    def deliveries(self) -> dict[tuple[str, str], list[Happened]]:
        """The events of each delivery, by trace id and installation, in their order."""
        in_order = sorted(self.evidence.events, key=lambda event: event.at)
        return _grouped(
            ((event.trace_id, event.installation), event)
            for event in in_order
            if event.installation and event.kind in _OF_DELIVERIES
        )

    @cached_property
    def unregistered(self) -> dict[str, list[float]]:
        """When each installation unregistered."""
        return _grouped(
            (event.installation, event.at)
            for event in self.evidence.events
            if event.kind == "unregistered" and event.installation
        )

    @cached_property
    def withheld(self) -> Counter[str]:
        """How many notifications of each message were refused or filtered, by trace id."""
        counts: Counter[str] = Counter()
        for event in self.evidence.events:
            if event.kind in {"refused", "filtered"} and not event.installation:
                counts[event.trace_id] += event.count
        return counts

    @cached_property
    def silences(self) -> set[str]:
        """The trace ids of messages that are not answered: too old, or repeated too often."""
        silent = {failure.label for failure in (Failure.REQUEST_EXPIRED, Failure.REQUEST_OVER)}
        silent.add(Failure.REPEATED_TOO_OFTEN.label)
        return {event.trace_id for event in self.evidence.events if event.failure in silent}

    def notifications(self) -> Iterator[tuple[list[Sent], int, Notified]]:
        """Yield each notification that was asked for, with its envelopes and its place in them."""
        for envelopes in self.messages.values():
            for position, item in enumerate(envelopes[0].items):
                yield envelopes, position, item

    def handled(self, envelopes: list[Sent]) -> list[Sent]:
        """Return the envelopes that were handled."""
        return [message for message in envelopes if message.trace_id in self.received]

    def pseudonym(self, item: Notified) -> str:
        """Return the pseudonym of the device that a notification is for."""
        return self.evidence.pseudonyms.get(DeviceId(item.key_hash, item.installation_id), "")

    def history(self, envelopes: list[Sent], item: Notified) -> list[Happened]:
        """Return the events of a notification, in their order."""
        pseudonym = self.pseudonym(item)
        events = [event for message in envelopes for event in self.deliveries.get((message.trace_id, pseudonym), ())]
        return sorted(events, key=lambda event: event.at) if len(envelopes) > 1 else events

    def delivered(self, item: Notified) -> list[Pushed]:
        """Return the attempts of a notification that the platform took."""
        return [push for push in self.pushes.get(item.delivery_key, ()) if push.outcome == "delivered"]

    def doubled(self, envelopes: list[Sent], item: Notified) -> list[str | None]:
        """Return for each time that a notification was delivered again the unknown outcome before.

        It is None if there is none, or none that a fault explains.
        """
        delivered = sorted(push.at for push in self.delivered(item))
        if len(delivered) < 2:
            return []
        history = self.history(envelopes, item)
        unknown = [(before, event) for before, event in pairwise(history) if event.kind == "unknown"]
        reasons: list[str | None] = []
        for first, second in pairwise(delivered):
            between = [
                event
                for before, event in unknown
                if first - SLACK <= event.at <= second + SLACK and self.is_explained(before, event)
            ]
            reasons.append(between[0].failure if between else None)
            unknown = [(before, event) for before, event in unknown if event not in between[:1]]
        return reasons

    def is_explained(self, before: Happened, unknown: Happened) -> bool:
        """Return whether a fault explains that the outcome of an attempt is unknown.

        Args:
            before: the event of the delivery before: its admission, or the outcome of the attempt before.
            unknown: the outcome.
        """
        if unknown.failure != Failure.LEASE_LOST.label:
            # The process that posted wrote the outcome; one that stood still meets its own time-out.
            return any(
                fault.part in {"gorush", MACHINE} or unknown.pid in fault.pids
                for fault in self.faults(before.at, unknown.at)
            )
        # Only of a first attempt an event names the process that held the lease, unless that put the delivery back and
        # another one took it later.
        is_first = before.kind == "admitted" and unknown.at - before.at < PUT_BACK_LEASES * self.evidence.lease
        holders = frozenset({before.pid}) if is_first else None
        return any(
            # Nobody could store the outcome.
            fault.part in {"postgres", MACHINE}
            or (fault.pids & holders if holders else fault.part in POSTING and fault.pids)
            for fault in self.faults(before.at, unknown.at)
        )

    def faults(self, begin: float, end: float) -> list[Window]:
        """Return the faults that were at work some time between these times."""
        return [fault for fault in self.evidence.faults if fault.began - SLACK <= end and begin <= fault.ended + SLACK]

    def longest_fault(self, begin: float, end: float) -> float:
        """Return the seconds that the longest fault lasted which was at work between these times; 0 without one."""
        return max((fault.ended - fault.began for fault in self.faults(begin, end)), default=0.0)

    @cached_property
    def lost(self) -> set[str]:
        """The ids of messages of which something happened that Postgres lost: it may happen again, and otherwise."""
        spans = [(fault.began - SLACK, fault.ended + SLACK) for fault in self.evidence.faults if fault.loses]
        if not spans:
            return set()
        ids = set()
        for id_, envelopes in self.messages.items():
            times = [message.at for message in envelopes]
            times += [answer.at for answer in self.answers.get(id_, ())]
            times += [push.at for item in envelopes[0].items for push in self.pushes.get(item.delivery_key, ())]
            if any(begin <= at <= end for at in times for begin, end in spans):
                ids.add(id_)
        return ids

    def log_lost(self, item: Notified) -> bool:
        """Return whether gorush kept a failure of a notification to itself: nobody can know then that it failed."""
        windows = [fault for fault in self.evidence.faults if fault.name == LOST_LOG]
        return any(
            fault.began - SLACK <= push.at <= fault.ended + SLACK and push.outcome != "delivered"
            for push in self.pushes.get(item.delivery_key, ())
            for fault in windows
        )

    def reports(self, envelopes: list[Sent], position: int) -> list[tuple[float, str]]:
        """Return what the answers to a request said of one of its items, and when each left."""
        items = len(envelopes[0].items)
        return [
            (answer.at, answer.results[position])
            for answer in self.answers.get(envelopes[0].id, ())
            if len(answer.results) == items
        ]
