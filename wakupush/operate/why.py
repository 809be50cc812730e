"""Why a push did not arrive: the events of a message, hop by hop, and one sentence that says what to do."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from psycopg import Connection
from redis import Redis

from wakupush.model.dead_letters import PastEvent
from wakupush.model.events import EventKind, period_of
from wakupush.model.failures import BY_LABEL, Failure, Retry
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.model.queues import DISPATCH
from wakupush.operate import breakers
from wakupush.postgres import dead_letters, history
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PublicKey
from wakupush.redis import presence
from wakupush.redis.breaker import BreakerState

#: What an operator can do about a failure, by its label. `conclusion` has a sentence for the others.
ADVICE: Final = {
    # The sender, or the app.
    "wrong_token": "the sender has an old access token: its app has to query the user again",
    "not_registered": "the device is not registered here: it unregistered, or its token died and it did not come back",
    "device_gone": "the device unregistered, or registered anew, before the push: nothing is to be done",
    "unwanted": "the receiver changed its wishes before the push: nothing is to be done",
    "notification_type_unknown": "the app asks for a type that this release does not know: upgrade",
    "notification_too_large": "the app sends more than a push can carry",
    "request_limit": "the request has more items than the limit: the app has to send several",
    "request_over": "the same request was handled before: nothing is to be done",
    "request_expired": "it came too late: workers were behind (`wakupush status`), or a clock is off",
    "repeated_too_often": "the sender repeats it more often than it gets answers: nothing is to be done",
    "payload_too_large": "the content is larger than the platform takes: see the profile of the app",
    "version_outdated": "the device has a newer registration here: its app has to use the next version",
    "version_zero": "the app sends no version",
    "grant_invalid": "the grant names another server key or access token: see which public key the app has",
    "device_token_invalid": "the device token has not the form that its platform gives out",
    "token_type_unsupported": "the app asks for a platform that this server does not serve",
    "apn_topic_without_app": "no app of the settings has this bundle id: add it to its topics",
    "firebase_without_app": "no app of the settings takes Firebase devices: set firebase = true for one",
    "registration_rate_limit": "too many new users within an hour: see WAKUPUSH_LIMITS__FIRST_REGISTRATIONS_PER_HOUR",
    "installation_limit": "the user has more devices than the limit, or registers too often",
    # The device, and the platform.
    "token_unregistered": "the device token is dead: the app was removed, or has to register anew",
    "token_rejected": "Apple or Google does not know the token: wrong APNs environment, bundle id or Firebase project?",
    "token_doubted": "too many tokens of this platform are bad to be believed: `wakupush tokens list`",
    "sender_mismatch": "the token belongs to another Firebase project than gorush's credentials",
    "rate_limited": "the platform limits this device",
    "credentials_rejected": "Apple or Google refuses gorush's credentials: renew them",
    "platform_unavailable": "the platform fails: see its status page",
    "platform_unreachable": "gorush does not reach the platform: see its network",
    "platform_timed_out": "the platform does not answer: see gorush's network, and the platform's status page",
    "platform_unclear": "gorush's answer does not say what failed: see its log",
    # Ours.
    "gorush_unreachable": "gorush does not listen: start it (`wakupush doctor`)",
    "gorush_timed_out": "gorush does not answer in time: is its queue full?",
    "gorush_failed": "gorush fails: see its log",
    "gorush_throttled": "gorush, or a proxy before it, limits us (429)",
    "gorush_refused": "gorush refuses the notification: see its log",
    "gorush_unreadable": "gorush's answer cannot be read: is it gorush that answers there?",
    "gorush_dropped": "gorush has this platform switched off: see its configuration",
    "lease_lost": "the worker that posted died: the push may have arrived",
    "app_gone": "no app of the settings takes the device any more: `wakupush apps assign`",
    "quarantined": "no worker could handle it, three times: `wakupush quarantine list`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What is known of a message."""

    trace_id: str
    #: The oldest first.
    events: Sequence[PastEvent]
    conclusion: str


def by_trace_id(connection: Connection, identity: Identity, trace_id: str, since: datetime) -> Story:
    """Return what became of a message.

    Args:
        trace_id: 16 hex digits, the first of the message's hash.
        since: when the message came, or before.
    """
    event_trace_id = identity.event_trace_id(trace_id)
    # Code of the previous release wrote the message's own.
    events = dead_letters.past(connection, [trace_id, event_trace_id], since)
    return Story(trace_id=trace_id, events=events, conclusion=conclusion(events, datetime.now(UTC)))


def by_user(
    connection: Connection,
    identity: Identity,
    user: PublicKey,
    window: tuple[datetime, timedelta],
    *,
    period_days: int,
) -> list[Story]:
    """Return what became of the messages about a user; it reads all events of that time, and no others.

    Args:
        window: a time, and how long before and after it.
        period_days: of pseudonyms.
    """
    around, within = window
    since, until = around - within, around + within
    first, last = (period_of(time.timestamp(), period_days) for time in (since, until))
    pseudonyms = [identity.user_pseudonym(user.key_hash, period) for period in range(first, last + 1)]
    stories = []
    for trace_id, time in history.messages_of(connection, pseudonyms, since, until):
        events = dead_letters.past(connection, [trace_id], time)
        stories.append(Story(trace_id=trace_id, events=events, conclusion=conclusion(events, datetime.now(UTC))))
    return stories


def waits_for(redis: Redis, story: Story) -> str | None:
    """Return what a push waits for now, one sentence; None if it does not wait.

    Raises:
        RedisError: Redis does not answer.
    """
    if story.conclusion != _STATES[EventKind.ADMITTED]:
        return None
    admitted = next(event for event in story.events if event.kind == EventKind.ADMITTED)
    app_platform = AppPlatform(admitted.app or "", Platform[(admitted.platform or "").upper()])
    running = {process.role for process in presence.read(redis) if not process.is_gone}
    [breaker] = breakers.statuses(redis, [app_platform])
    if breaker.view.state is not BreakerState.CLOSED:
        state = breaker.view.state.name.lower()
        return f"it waits: the breaker of {app_platform.title} is {state}; why posts fail: `wakupush why --last-hour`"
    if f"worker {DISPATCH.name}" not in running:
        return "it waits: no `wakupush worker dispatch` runs; start it"
    return f"it waits for gorush's answer, or for a slot while other posts for {app_platform.title} do: is gorush slow?"


def conclusion(events: Sequence[PastEvent], now: datetime) -> str:
    """Return one sentence about a message: what became of it, and what to do.

    Args:
        events: of the message, the oldest first.
    """
    if not events:
        return (
            "nothing is known of it: no node of ours heard it, it is not for this server, or its events are past their"
            " retention; see `wakupush status`, and whether the sender uses this server's key and shard"
        )
    events = _without_ends_before_a_retry(events)
    kinds = {event.kind for event in events}
    last = {event.kind: event for event in events}
    if EventKind.DEAD_LETTER in kinds:
        return f"no attempt is left{_because(events)}; after the repair: `wakupush dead-letters retry`"
    if EventKind.EXPIRED in kinds:
        label = last[EventKind.EXPIRED].failure
        is_request = label == Failure.REQUEST_EXPIRED.label
        return f"it was too old to push{f': {_advice(label)}' if is_request else _because(events)}"
    if EventKind.REFUSED in kinds:
        return f"refused: {_advice(last[EventKind.REFUSED].failure)}"
    outcome = next((event for event in reversed(events) if event.kind in _OUTCOMES), None)
    return _of_outcome(outcome, now) if outcome is not None else _state(kinds, events[-1].queue)


def _without_ends_before_a_retry(events: Sequence[PastEvent]) -> list[PastEvent]:
    """Leave out the ends of deliveries that an operator sent again: the device has later outcomes."""
    latest = {event.installation_pseudonym: event.time for event in events if event.kind in _OUTCOMES}
    return [
        event
        for event in events
        if event.kind not in {EventKind.DEAD_LETTER, EventKind.EXPIRED}
        or event.installation_pseudonym is None
        or event.time >= latest.get(event.installation_pseudonym, event.time)
    ]


_OUTCOMES: Final = frozenset({EventKind.DELIVERED, EventKind.FAILED, EventKind.UNKNOWN})
#: The first that occurred counts.
_STATES: Final = {
    EventKind.ADMITTED: "it waits for its push: are dispatch workers running, and is a breaker open? `wakupush status`",
    EventKind.FILTERED: "accepted, not pushed by the receiver's choice",
    EventKind.REGISTERED: "the registration is stored, and answered",
    EventKind.UNREGISTERED: "the device is unregistered, and that is answered",
    EventKind.SEGMENT: "parts of it are missing: the sender, or a node, lost them",
}
_NOTHING_OF_ITS_OWN: Final = (
    "it was answered, and nothing of its own was pushed: it repeats an earlier request, or the device gets more than"
    " WAKUPUSH_LIMITS__PUSHES_PER_DEVICE_PER_MINUTE, and this push is in the one that it gets each minute instead"
)


def _state(kinds: Collection[str], queue: str) -> str:
    """Return what there is to say of a message without an outcome."""
    state = next((text for kind, text in _STATES.items() if kind in kinds), None)
    if state is None and EventKind.ANSWERED in kinds:
        return _NOTHING_OF_ITS_OWN if queue == DISPATCH.name else "it was answered"
    return state or "a worker has taken it, and is not done"


def _of_outcome(outcome: PastEvent, now: datetime) -> str:
    if outcome.kind == EventKind.DELIVERED:
        return "gorush took it: if the phone shows nothing, see gorush's log, and try `wakupush test-push`"
    failure = BY_LABEL.get(outcome.failure or "")
    advice = _advice(outcome.failure)
    if failure is None or failure.retry is Retry.NEVER:
        return f"failed for good: {advice}"
    age = (now - outcome.time).total_seconds()
    return f"it failed {age:.0f} s ago and is tried again: {advice}"


def _because(events: Sequence[PastEvent]) -> str:
    failures = [event.failure for event in events if event.failure and event.kind in _OUTCOMES]
    return f": {_advice(failures[-1])}" if failures else ""


def _advice(label: str | None) -> str:
    return ADVICE.get(label or "", f"{label}: see docs/reference/failures.md")
