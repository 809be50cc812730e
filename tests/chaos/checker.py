"""The checker: what the evidence of a run says against the server. Plain functions from `Evidence` to violations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median

from chaos.case import MACHINE, POSTING, SLACK, UNREACHED, Case, copies, states, states_at
from chaos.evidence import DeviceId, Evidence, Happened, Sample, Stored
from chaos.plan import SUCCESS, Fate, Notified, Sent
from wakupush.model.failures import Failure
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol.keys import PrivateKey
from wakupush.server.engine.store import HOLD_SECONDS
from wakupush.waku.publisher import _TRIES, MOST_WAIT, PUBLISH_SECONDS

#: Seconds after which publishing an answer is given up.
MOST_PUBLISH_SECONDS = _TRIES * PUBLISH_SECONDS + MOST_WAIT
#: Seconds: a slot of answers, and what it takes to look, to publish and to arrive.
JUST_BEFORE = 0.2


class Kind(StrEnum):
    """What a server can be found guilty of."""

    LOST = "a message was never handled"
    HANDLED_TWICE = "a message was handled more than once"
    QUARANTINED = "a message was put aside although nothing was wrong with it"
    UNANSWERED = "a message was handled and never answered"
    ANSWERED_WRONGLY = "an answer is not what it has to be"
    ANSWERED_INCONSISTENTLY = "the answers to a message contradict each other"
    UNTRUE = "an answer does not say what became of the notification"
    FALSE_SUCCESS = "a success left after the notification had failed"
    NOT_PUSHED = "a notification that was taken on never reached the platform"
    PUSHED_WRONGLY = "a notification was pushed that must not be"
    PUSHED_TWICE = "a notification was pushed more often than unknown outcomes explain"
    LEASE_CUT_SHORT = "a delivery was taken from its worker before its lease was over"
    UNACCOUNTED = "what became of a notification is not recorded, or recorded twice"
    STARVED = "something waited much longer than a fault explains"
    REGISTRATION_WRONG = "what is stored of a device is not its last registration"
    LEFT_IN_FLIGHT = "something is still to be done although all is quiet"
    LEFT_OVER = "something is stored that serves nothing any more"
    ENDED = "a process ended although nobody killed it"
    MEMORY_GREW = "a process needs more memory the longer it runs"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    kind: Kind
    #: Which message, delivery, device or process.
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind.name} {self.subject}: {self.detail}"


#: A process may need so much more at the end of its time than at its beginning: a factor, and bytes on top.
GROWTH_FACTOR, GROWTH_BYTES = 1.25, 8 * 2**20
#: Seconds after its start that a process needs to reach its size, and how long it must have run then to be judged.
WARM_SECONDS, JUDGED_SECONDS = 20.0, 60.0
#: The least part of a lease that its holder has for certain: a lease begins with a transaction, an event shows its end.
LEASE_SHARE = 0.7


def judge(evidence: Evidence) -> list[Violation]:
    """Return everything that the evidence says against the server."""
    case = Case(evidence)
    return [violation for check in CHECKS for violation in check(case)]


def check_handled(case: Case) -> Iterator[Violation]:
    """Every envelope is handled, and none twice; what is in the ledger has events."""
    for message in {message.envelope: message for message in case.evidence.sent}.values():
        times = len(case.received.get(message.trace_id, ()))
        in_ledger = message.envelope in case.evidence.ledger
        if message.envelope in case.evidence.quarantined:
            reason = case.evidence.quarantined[message.envelope]
            yield Violation(Kind.QUARANTINED, message.trace_id, f"{message.kind}: {reason}")
        elif not times or not in_ledger:
            where = "in the ledger without an event" if in_ledger else "not in the ledger, though it has events"
            how = where if times or in_ledger else f"sent at {message.at:.3f}"
            yield Violation(Kind.LOST, message.trace_id, f"{message.kind}: {how}")
        elif times > 1:
            yield Violation(Kind.HANDLED_TWICE, message.trace_id, f"{message.kind}: {times} times")


def check_answered(case: Case) -> Iterator[Violation]:
    """Every envelope that was handled is answered, those of the same message each."""
    for id_, envelopes in case.messages.items():
        nobody = envelopes[0].kind == "query" and len(envelopes[0].mortal) == len(envelopes[0].devices)
        expected = copies([message for message in case.handled(envelopes) if message.trace_id not in case.silences])
        answers = len(case.answers.get(id_, ()))
        if answers < expected and not nobody:
            detail = f"{envelopes[0].kind} sent at {envelopes[0].at:.3f}: {answers} answers"
            yield Violation(Kind.UNANSWERED, envelopes[0].trace_id, f"{detail} to {expected} envelopes")


def check_told(case: Case) -> Iterator[Violation]:
    """Every answer is one of those that the message may get, and there is no answer that nobody asked for."""
    last = last_registrations(case.evidence.sent)
    certain = {message.id for message in last.values()}
    for id_, answers in case.answers.items():
        if id_ not in case.messages:
            yield Violation(Kind.ANSWERED_WRONGLY, id_[:16], "nobody asked")
            continue
        message = case.messages[id_][0]
        for pair in {(answer.results, answer.about) for answer in answers}:
            if wrong := _wrong(message, *pair, is_last=id_ in certain):
                yield Violation(Kind.ANSWERED_WRONGLY, message.trace_id, f"{message.kind}: {wrong}")


def _wrong(message: Sent, results: tuple[str, ...], about: tuple[str, ...], *, is_last: bool) -> str:
    """Return what is wrong with an answer, nothing if it is right."""
    match message.kind:
        case "registration":
            allowed = (SUCCESS,) if is_last and not message.mortal else message.allowed_results
            return "" if results[0] in allowed else f"{results[0]}, not {' or '.join(allowed)}"
        case "query":
            registered = {f"{device} {token}" for device, token in message.devices}
            alive = {f"{device} {token}" for device, token in message.devices if device not in message.mortal}
            right = results and alive <= set(results) <= registered and len(set(results)) == len(results)
            return "" if right else f"{len(results)} devices, not the {len(registered)} that are registered"
        case _:
            if about != tuple(item.installation_id for item in message.items):
                return "the reports are not those of its items"
            pairs = zip(results, message.items, strict=True)
            return ", ".join(
                f"{one}, not {' or '.join(item.allowed_results)}"
                for one, item in pairs
                if one not in item.allowed_results
            )


def check_consistent(case: Case) -> Iterator[Violation]:
    """All answers to one envelope say the same; another envelope may be answered otherwise, once.

    What the answers say of a notification changes only if something happened to it: an error follows a success only
    after it failed, and a success an error only after it was admitted since, or if it failed just before: the worker
    looks again a slot before an answer leaves.
    """
    for id_, answers in case.answers.items():
        envelopes = case.messages.get(id_, [])
        different = {answer.results for answer in answers}
        if envelopes and len(different) > copies(envelopes) and id_ not in case.lost:
            variants = " | ".join(sorted(",".join(results) for results in different))
            yield Violation(Kind.ANSWERED_INCONSISTENTLY, id_[:16], f"{copies(envelopes)} envelopes: {variants}")
    for envelopes, position, item in case.notifications():
        if envelopes[0].id in case.lost or copies(envelopes) == 1 or case.unregistered.get(case.pseudonym(item)):
            continue
        history = case.history(envelopes, item)
        for (first, one), (second, other) in pairwise(case.reports(envelopes, position)):
            if (one == SUCCESS) == (other == SUCCESS):
                continue
            until = [(it, state) for it, state in zip(history, states(history), strict=True) if it.at <= second + SLACK]
            admitted = max((it.at for it, _ in until if it.kind == "admitted"), default=0.0)
            # An error leaves after what it reports.
            latest = second + SLACK if one == SUCCESS else first
            failures = [it.at for it, state in until if state == "failed" and it.at <= latest] or [0.0]
            # An error may report the failure before another envelope was admitted, although that failed by now, too.
            has_changed = admitted > failures[0] or second - failures[-1] <= JUST_BEFORE
            if not (failures[-1] if one == SUCCESS else has_changed):
                detail = f"{one}, then {other} after {second - first:.1f} s"
                detail += f"; admitted {second - admitted:.1f} s and failed {second - failures[-1]:.1f} s before"
                yield Violation(Kind.ANSWERED_INCONSISTENTLY, item.delivery_key[:16], detail)


def check_true(case: Case) -> Iterator[Violation]:
    """An error means that the device was not reached; success that it was, or that the delivery is kept.

    A success that leaves after the delivery ended otherwise is false, whatever a later envelope is told. But beat
    cannot look again: it publishes what a worker committed that died, could not reach Postgres, or found no node.
    And nobody can look if the device unregistered meanwhile, because the row of the delivery is gone.
    """
    for envelopes, position, item in case.notifications():
        if envelopes[0].id in case.lost:
            continue
        reports = case.reports(envelopes, position)
        results = {report for _, report in reports}
        delivered = case.delivered(item)
        if results and SUCCESS not in results and delivered:
            yield Violation(
                Kind.UNTRUE, item.delivery_key[:16], f"{' and '.join(sorted(results))}, but it was delivered"
            )
        row = case.evidence.deliveries.get(item.delivery_key)
        if item.fate is Fate.KEPT and SUCCESS in results and not case.log_lost(item):
            state = row.state if row else "gone"
            has_expired = state == "expired" and _has_outlived(case, case.history(envelopes, item))
            if state not in {"pending", "posting", "dead_letter"} and not has_expired:
                yield Violation(Kind.UNTRUE, item.delivery_key[:16], f"SUCCESS, but the delivery is {state}")
        history = case.history(envelopes, item)
        for at, report in reports:
            # What a node is being handed cannot be called back. If it is slow, it is handed twice.
            is_slow = any(fault.part in {"node", MACHINE} for fault in case.faults(at - MOST_PUBLISH_SECONDS, at))
            possible = states_at(history, at, (MOST_PUBLISH_SECONDS if is_slow else PUBLISH_SECONDS) + SLACK)
            if report == SUCCESS and possible and possible <= UNREACHED:
                ended = max(event.at for event in history if event.at <= at)
                # Its row went with the device, so another envelope is told what its request was told before.
                if any(ended - SLACK <= moment <= at for moment in case.unregistered.get(case.pseudonym(item), ())):
                    continue
                parts = {fault.part for fault in case.faults(history[0].at, at)}
                if at - history[0].at >= HOLD_SECONDS - SLACK and parts & {*POSTING, "postgres", "node"}:
                    continue
                story = _story([(when, f"told {what}") for when, what in reports], history)
                detail = f"the success left {at - ended:.1f} s after the delivery was {' or '.join(sorted(possible))}"
                detail += f": {story}; faults: {', '.join(sorted(parts))}"
                yield Violation(Kind.FALSE_SUCCESS, item.delivery_key[:16], detail)


def check_pushed(case: Case) -> Iterator[Violation]:
    """What was admitted reaches the platform, and what must not does not."""
    requested_keys = set()
    for envelopes, _, item in case.notifications():
        requested_keys.add(item.delivery_key)
        delivered = case.delivered(item)
        if item.fate in {Fate.NEVER, Fate.KEPT} and delivered:
            yield Violation(Kind.PUSHED_WRONGLY, item.delivery_key[:16], f"its fate is {item.fate}")
        row = case.evidence.deliveries.get(item.delivery_key)
        history = case.history(envelopes, item)
        if late := _pushes_after_expiry(case, item, history):
            yield Violation(Kind.PUSHED_WRONGLY, item.delivery_key[:16], f"{late} pushes after it had expired")
        has_expired = row is not None and row.state == "expired"
        has_expired = has_expired and _has_outlived(case, history) and _was_held_up(case, history)
        is_due = item.fate is Fate.MUST and case.handled(envelopes) and not case.log_lost(item)
        if is_due and not delivered and not has_expired:
            attempts = len(case.pushes.get(item.delivery_key, ()))
            yield Violation(Kind.NOT_PUSHED, item.delivery_key[:16], f"{attempts} attempts in gorush's log, row: {row}")
    for delivery_key in case.pushes.keys() - requested_keys:
        yield Violation(Kind.PUSHED_WRONGLY, delivery_key[:16], "nobody asked for it")


def _has_outlived(case: Case, history: list[Happened]) -> bool:
    """Return whether a notification was tried for as long as it lives."""
    return history[-1].at - history[0].at >= case.evidence.time_to_live - SLACK


def _was_held_up(case: Case, history: list[Happened]) -> bool:
    """Return whether gorush was at fault, or had been a short while before, when a notification expired."""
    since = history[-1].at - case.evidence.delivery_patience
    return any(fault.part == "gorush" for fault in case.faults(since, history[-1].at))


def _pushes_after_expiry(case: Case, item: Notified, history: list[Happened]) -> int:
    """Return how many attempts to push a notification began when it had expired."""
    if all(event.kind != "expired" for event in history):
        return 0
    return sum(states_at(history, push.at) == {"expired"} for push in case.pushes.get(item.delivery_key, ()))


def check_pushed_once(case: Case) -> Iterator[Violation]:
    """A notification is pushed again only after an outcome that was recorded as unknown, and that a fault explains."""
    for envelopes, _, item in case.notifications():
        reasons = case.doubled(envelopes, item)
        if None in reasons and envelopes[0].id not in case.lost:
            pushes = [(push.at, f"pushed, {push.outcome}") for push in case.pushes[item.delivery_key]]
            story = _story(pushes, case.history(envelopes, item))
            detail = f"delivered {len(reasons) + 1} times, explained: {reasons}: {story}"
            yield Violation(Kind.PUSHED_TWICE, item.delivery_key[:16], detail)


def _story(others: list[tuple[float, str]], history: list[Happened]) -> str:
    """Return the events of a notification and what else happened to it, each with its time, in their order."""
    events = [(event.at, f"{event.kind} {event.failure or ''} by {event.pid}") for event in history]
    return "; ".join(f"{at:.1f} {what}" for at, what in sorted(others + events))


def check_leases(case: Case) -> Iterator[Violation]:
    """An attempt that lost its lease had it for the time of a lease, since what happened to the delivery before."""
    for envelopes, _, item in case.notifications():
        for before, event in pairwise(case.history(envelopes, item)):
            if event.failure == Failure.LEASE_LOST.label and event.kind == "unknown":
                duration = event.at - before.at
                if duration < case.evidence.lease * LEASE_SHARE:
                    detail = f"attempt {event.attempt} lost after {duration:.1f} s of {case.evidence.lease:g} s"
                    yield Violation(Kind.LEASE_CUT_SHORT, item.delivery_key[:16], detail)


def check_accounted(case: Case) -> Iterator[Violation]:
    """Each notification of a request that was handled is recorded in exactly one place.

    That is the row of its delivery, whose state is that of its last event; or the event of an admission whose row went
    when the device unregistered; or the count of those that the request had refused or filtered.
    """
    for envelopes in case.messages.values():
        handled = case.handled(envelopes)
        if not envelopes[0].items or not handled or envelopes[0].id in case.lost:
            continue
        admitted = 0
        for item in envelopes[0].items:
            history = case.history(envelopes, item)
            admitted += any(event.kind == "admitted" for event in history)
            if detail := _misrecorded(case, item, history):
                yield Violation(Kind.UNACCOUNTED, item.delivery_key[:16], detail)
        rest = len(envelopes[0].items) - admitted
        withheld = [case.withheld[message.trace_id] for message in handled]
        is_silent = any(message.trace_id in case.silences for message in handled)
        # Of several envelopes one may have been refused what another one admitted.
        if not is_silent and (max(withheld) < rest or (copies(handled) == 1 and max(withheld) > rest)):
            detail = f"{len(envelopes[0].items)} items: {admitted} admitted, {withheld} refused or filtered"
            yield Violation(Kind.UNACCOUNTED, envelopes[0].trace_id, detail)


def _misrecorded(case: Case, item: Notified, history: list[Happened]) -> str:
    """Return how the row of a delivery contradicts its events; nothing if it does not."""
    row = case.evidence.deliveries.get(item.delivery_key)
    if row is None:
        unregister_times = case.unregistered.get(case.pseudonym(item), ())
        is_gone = not history or any(at >= history[0].at - SLACK for at in unregister_times)
        return "" if is_gone else "it was admitted, and there is no row of it"
    if not history:
        return f"its row is {row.state}, and it has no events"
    state = "open" if row.state in {"pending", "posting"} else row.state
    # Transactions of the same moment may be numbered otherwise than they were committed.
    last = states_at(history, history[-1].at)
    return "" if state in last else f"its row is {row.state}, and its last event says {states(history)[-1]}"


def check_waits(case: Case) -> Iterator[Violation]:
    """Nothing that is due waits much longer than the faults at work in that time, a delivery twice as long."""
    begin = min((message.at for message in case.evidence.sent), default=0.0)
    for message in {message.envelope: message for message in case.evidence.sent}.values():
        handled = min(case.received.get(message.trace_id, ()), default=message.at)
        if handled - message.at > case.longest_fault(message.at, handled) + case.evidence.message_patience:
            yield Violation(
                Kind.STARVED, message.trace_id, f"{message.kind} was handled after {handled - message.at:.0f} s"
            )
    for envelopes, _, item in case.notifications():
        history = case.history(envelopes, item)
        for (one, other), state in zip(pairwise(history), states(history), strict=False):
            wait = other.at - one.at
            # What piled up during a fault takes as long to drain, beside new requests.
            patience = 2 * case.longest_fault(one.at, other.at) + case.evidence.delivery_patience
            if state == "open" and wait > patience:
                waits = f"{one.kind} ({one.failure}) to {other.kind} ({other.failure})"
                detail = f"{wait:.0f} s from {waits}, since {one.at - begin:.0f} s after the first message"
                yield Violation(Kind.STARVED, item.delivery_key[:16], detail)


def check_registrations(case: Case) -> Iterator[Violation]:
    """Of every device its last valid version is stored, and nothing of those that left but that version."""
    last = last_registrations(case.evidence.sent)
    for device, message in last.items():
        row = case.evidence.registrations.get(device)
        expected = expected_row(message)
        if row != expected:
            yield Violation(Kind.REGISTRATION_WRONG, device.installation_id, _difference(row, expected))
    for device in case.evidence.registrations.keys() - last.keys():
        yield Violation(Kind.REGISTRATION_WRONG, device.installation_id, "it never registered validly")


def last_registrations(messages: tuple[Sent, ...]) -> dict[DeviceId, Sent]:
    """Return the registration with the highest version of each device that registered validly."""
    newest: dict[DeviceId, tuple[int, Sent]] = {}
    for each in messages:
        if each.kind == "registration" and SUCCESS in each.allowed_results:
            content = PushNotificationRegistration.FromString(bytes.fromhex(each.content))
            device = DeviceId(_key_hash(each.client), content.installation_id)
            if content.version > newest.get(device, (0, each))[0]:
                newest[device] = content.version, each
    return {device: each for device, (_, each) in newest.items()}


def expected_row(message: Sent) -> Stored:
    """Return what has to be stored of a registration."""
    content = PushNotificationRegistration.FromString(bytes.fromhex(message.content))
    if content.unregister:
        return Stored(version=content.version, registered=False)
    return Stored(version=content.version, registered=True, content=columns(content))


def columns(content: PushNotificationRegistration) -> dict[str, object]:
    """Return the content of a registration as it is compared."""
    return {
        "token_type": int(content.token_type),
        "device_token": content.device_token,
        "access_token": content.access_token,
        "grant": content.grant.hex(),
        "enabled": content.enabled,
        "apn_topic": content.apn_topic,
        "allow_from_contacts_only": content.allow_from_contacts_only,
        "block_mentions": content.block_mentions,
        "blocked_chat_list": sorted({each.hex() for each in content.blocked_chat_list}),
    }


def _difference(row: Stored | None, expected: Stored) -> str:
    if row is None:
        return f"nothing is stored, not even version {expected.version}"
    if (row.version, row.registered) != (expected.version, expected.registered):
        return (
            f"version {row.version} ({'registered' if row.registered else 'gone'}) is stored, "
            f"not {expected.version} ({'registered' if expected.registered else 'gone'})"
        )
    names = [name for name, value in expected.content.items() if row.content.get(name) != value]
    return f"version {row.version} differs in {', '.join(names) or 'what is left of it'}"


def _key_hash(client: str) -> str:
    return PrivateKey(bytes.fromhex(client)).public_key.key_hash.hex()


def check_in_flight(case: Case) -> Iterator[Violation]:
    """Nothing is left to be done."""
    for name, count in case.evidence.in_flight.items():
        if count:
            yield Violation(Kind.LEFT_IN_FLIGHT, name, str(count))


def check_leftovers(case: Case) -> Iterator[Violation]:
    """Nothing is stored that serves nothing any more."""
    for name, count in case.evidence.leftovers.items():
        if count:
            yield Violation(Kind.LEFT_OVER, name, str(count))


def check_processes(case: Case) -> Iterator[Violation]:
    """No process ends by itself."""
    for name, count in case.evidence.died.items():
        if count:
            yield Violation(Kind.ENDED, name, f"{count} times")


def check_memory(case: Case) -> Iterator[Violation]:
    """No process that ran long enough needs much more at the end than at the beginning."""
    runs: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in case.evidence.memory:
        if sample.age >= WARM_SECONDS:
            runs[sample.name, sample.pid].append(sample)
    for (name, pid), samples in runs.items():
        samples.sort(key=lambda sample: sample.at)
        if samples[-1].at - samples[0].at < JUDGED_SECONDS:
            continue
        quarter = max(1, len(samples) // 4)
        first = median(sample.rss for sample in samples[:quarter])
        last = median(sample.rss for sample in samples[-quarter:])
        if last > first * GROWTH_FACTOR + GROWTH_BYTES:
            yield Violation(Kind.MEMORY_GREW, f"{name} ({pid})", f"from {first / 2**20:.0f} to {last / 2**20:.0f} MB")


CHECKS: tuple[Callable[[Case], Iterator[Violation]], ...] = (
    check_handled,
    check_answered,
    check_told,
    check_consistent,
    check_true,
    check_pushed,
    check_pushed_once,
    check_leases,
    check_accounted,
    check_waits,
    check_registrations,
    check_in_flight,
    check_leftovers,
    check_processes,
    check_memory,
)
