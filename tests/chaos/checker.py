"""The checker: what the evidence of a run says against the server. Plain functions from `Evidence` to violations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from statistics import median

from chaos.evidence import Answered, DeviceId, Evidence, Happened, Pushed, Sample, Stored
from chaos.plan import SUCCESS, Fate, Notified, Sent
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol.keys import PrivateKey


class Kind(StrEnum):
    """What a server can be found guilty of."""

    LOST = "a message was never handled"
    HANDLED_TWICE = "a message was handled more than once"
    QUARANTINED = "a message was put aside although nothing was wrong with it"
    UNANSWERED = "a message was handled and never answered"
    ANSWERED_WRONGLY = "an answer is not what it has to be"
    ANSWERED_INCONSISTENTLY = "the answers to a message contradict each other"
    UNTRUE = "an answer does not say what became of the notification"
    NOT_PUSHED = "a notification that was taken on never reached the platform"
    PUSHED_WRONGLY = "a notification was pushed that must not be"
    PUSHED_TWICE = "a notification was pushed more often than unknown outcomes explain"
    LEASE_CUT_SHORT = "a delivery was taken from its worker before its lease was over"
    REGISTRATION_WRONG = "what is stored of a device is not its last registration"
    LEFT_IN_FLIGHT = "something is still to be done although all is quiet"
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


#: Seconds by which clocks and logs of different processes may differ.
SLACK = 1.0
#: A process may need so much more at the end of its time than at its beginning: a factor, and bytes on top.
GROWTH_FACTOR, GROWTH_BYTES = 1.25, 8 * 2**20
#: Seconds after its start that a process needs to reach its size, and how long it must have run then to be judged.
WARM_SECONDS, JUDGED_SECONDS = 20.0, 60.0
#: The fault during which gorush keeps failures to itself: what failed then reads as delivered.
LOST_LOG = "gorush loses its log"


@dataclass(frozen=True)
class Case:
    """Evidence with its indexes."""

    evidence: Evidence

    @cached_property
    def messages(self) -> dict[str, list[Sent]]:
        """The envelopes of each application message."""
        found = defaultdict(list)
        for sent in self.evidence.sent:
            found[sent.id].append(sent)
        return dict(found)

    @cached_property
    def received(self) -> Counter[str]:
        """How often each message was handled, by trace id."""
        return Counter(event.trace_id for event in self.evidence.events if event.kind == "received")

    @cached_property
    def answers(self) -> dict[str, list[Answered]]:
        """The answers to each application message."""
        found = defaultdict(list)
        for answer in self.evidence.answers:
            found[answer.id].append(answer)
        return dict(found)

    @cached_property
    def pushes(self) -> dict[str, list[Pushed]]:
        """The attempts of each notification."""
        found = defaultdict(list)
        for push in self.evidence.pushes:
            found[push.delivery_key].append(push)
        return dict(found)

    @cached_property
    def deliveries(self) -> dict[tuple[str, str], list[Happened]]:
        """The events of each delivery, by trace id and installation."""
        found = defaultdict(list)
        for event in self.evidence.events:
            if event.installation:
                found[event.trace_id, event.installation].append(event)
        return dict(found)

    def notifications(self) -> Iterator[tuple[list[Sent], int, Notified]]:
        """Yield each notification that was asked for, with its envelopes and its place in them."""
        for envelopes in self.messages.values():
            for position, item in enumerate(envelopes[0].items):
                yield envelopes, position, item

    def is_handled(self, envelopes: list[Sent]) -> bool:
        """Say whether one of the envelopes was handled."""
        return any(self.received[sent.trace_id] for sent in envelopes)

    def events_of(self, envelopes: list[Sent], item: Notified) -> list[Happened]:
        """Return what happened to a notification."""
        pseudonym = self.evidence.pseudonyms.get(DeviceId(item.key_hash, item.installation_id), "")
        return [event for sent in envelopes for event in self.deliveries.get((sent.trace_id, pseudonym), ())]

    def delivered(self, item: Notified) -> list[Pushed]:
        """Return the attempts of a notification that the platform took."""
        return [push for push in self.pushes.get(item.delivery_key, ()) if push.outcome == "delivered"]

    def doubled(self, envelopes: list[Sent], item: Notified) -> list[str | None]:
        """Return for each time that a notification was delivered again the unknown outcome before; None without one."""
        delivered = sorted(push.at for push in self.delivered(item))
        events = sorted(self.events_of(envelopes, item), key=lambda event: event.at)
        unknown = [event for event in events if event.kind == "unknown"]
        reasons = []
        for first, second in pairwise(delivered):
            between = [event for event in unknown if first - SLACK <= event.at <= second + SLACK]
            reasons.append(between[0].failure if between else None)
            unknown = [event for event in unknown if event not in between[:1]]
        return reasons

    def log_lost(self, item: Notified) -> bool:
        """Say whether gorush kept a failure of a notification to itself: nobody can know then that it failed."""
        windows = [fault for fault in self.evidence.faults if fault.name == LOST_LOG]
        return any(
            fault.began - SLACK <= push.at <= fault.ended + SLACK and push.outcome != "delivered"
            for push in self.pushes.get(item.delivery_key, ())
            for fault in windows
        )


def judge(evidence: Evidence) -> list[Violation]:
    """Return everything that the evidence says against the server."""
    case = Case(evidence)
    return [violation for check in CHECKS for violation in check(case)]


def check_handled(case: Case) -> Iterator[Violation]:
    """Every envelope is handled, and none twice."""
    for sent in {sent.envelope: sent for sent in case.evidence.sent}.values():
        times = case.received[sent.trace_id]
        if sent.envelope in case.evidence.quarantined:
            reason = case.evidence.quarantined[sent.envelope]
            yield Violation(Kind.QUARANTINED, sent.trace_id, f"{sent.kind}: {reason}")
        elif not times:
            yield Violation(Kind.LOST, sent.trace_id, f"{sent.kind} sent at {sent.at:.3f}")
        elif times > 1:
            yield Violation(Kind.HANDLED_TWICE, sent.trace_id, f"{sent.kind}: {times} times")


def check_answered(case: Case) -> Iterator[Violation]:
    """Every message that was handled is answered."""
    for id_, envelopes in case.messages.items():
        nobody = envelopes[0].kind == "query" and len(envelopes[0].mortal) == len(envelopes[0].devices)
        if case.is_handled(envelopes) and id_ not in case.answers and not nobody:
            yield Violation(
                Kind.UNANSWERED, envelopes[0].trace_id, f"{envelopes[0].kind} sent at {envelopes[0].at:.3f}"
            )


def check_told(case: Case) -> Iterator[Violation]:
    """Every answer is one of those that the message may get, and there is no answer that nobody asked for."""
    last = last_registrations(case.evidence.sent)
    certain = {sent.id for sent in last.values()}
    for id_, answers in case.answers.items():
        if id_ not in case.messages:
            yield Violation(Kind.ANSWERED_WRONGLY, id_[:16], "nobody asked")
            continue
        sent = case.messages[id_][0]
        for told in {(answer.told, answer.about) for answer in answers}:
            if wrong := _wrong(sent, *told, is_last=id_ in certain):
                yield Violation(Kind.ANSWERED_WRONGLY, sent.trace_id, f"{sent.kind}: {wrong}")


def _wrong(sent: Sent, told: tuple[str, ...], about: tuple[str, ...], *, is_last: bool) -> str:
    """Return what is wrong with an answer, nothing if it is right."""
    match sent.kind:
        case "registration":
            allowed = (SUCCESS,) if is_last and not sent.mortal else sent.told
            return "" if told[0] in allowed else f"{told[0]}, not {' or '.join(allowed)}"
        case "query":
            registered = {f"{device} {token}" for device, token in sent.devices}
            alive = {f"{device} {token}" for device, token in sent.devices if device not in sent.mortal}
            right = told and alive <= set(told) <= registered and len(set(told)) == len(told)
            return "" if right else f"{len(told)} devices, not the {len(registered)} that are registered"
        case _:
            if about != tuple(item.installation_id for item in sent.items):
                return "the reports are not those of its items"
            pairs = zip(told, sent.items, strict=True)
            return ", ".join(f"{one}, not {' or '.join(item.told)}" for one, item in pairs if one not in item.told)


def check_consistent(case: Case) -> Iterator[Violation]:
    """All answers to one envelope say the same; another envelope may be answered otherwise, once."""
    for id_, answers in case.answers.items():
        envelopes = {sent.envelope for sent in case.messages.get(id_, ())}
        different = {answer.told for answer in answers}
        if envelopes and len(different) > len(envelopes):
            said = " | ".join(sorted(",".join(told) for told in different))
            yield Violation(Kind.ANSWERED_INCONSISTENTLY, id_[:16], f"{len(envelopes)} envelopes: {said}")


def check_true(case: Case) -> Iterator[Violation]:
    """An error means that the device was not reached; success that it was, or that the delivery is kept."""
    for envelopes, position, item in case.notifications():
        answers = case.answers.get(envelopes[0].id, ())
        told = {answer.told[position] for answer in answers if len(answer.told) == len(envelopes[0].items)}
        delivered = case.delivered(item)
        if told and SUCCESS not in told and delivered:
            yield Violation(Kind.UNTRUE, item.delivery_key[:16], f"{' and '.join(sorted(told))}, but it was delivered")
        kept = case.evidence.deliveries.get(item.delivery_key)
        if item.fate is Fate.KEPT and SUCCESS in told and not case.log_lost(item):
            state = kept.state if kept else "gone"
            if state not in {"pending", "posting", "dead_letter"}:
                yield Violation(Kind.UNTRUE, item.delivery_key[:16], f"SUCCESS, but the delivery is {state}")


def check_pushed(case: Case) -> Iterator[Violation]:
    """What was admitted reaches the platform, and what must not does not."""
    asked = set()
    for envelopes, _, item in case.notifications():
        asked.add(item.delivery_key)
        delivered = case.delivered(item)
        if item.fate in {Fate.NEVER, Fate.KEPT} and delivered:
            yield Violation(Kind.PUSHED_WRONGLY, item.delivery_key[:16], f"its fate is {item.fate}")
        if item.fate is Fate.MUST and not delivered and case.is_handled(envelopes) and not case.log_lost(item):
            kept = case.evidence.deliveries.get(item.delivery_key)
            attempts = len(case.pushes.get(item.delivery_key, ()))
            yield Violation(
                Kind.NOT_PUSHED, item.delivery_key[:16], f"{attempts} attempts in gorush's log, row: {kept}"
            )
    for delivery_key in case.pushes.keys() - asked:
        yield Violation(Kind.PUSHED_WRONGLY, delivery_key[:16], "nobody asked for it")


def check_pushed_once(case: Case) -> Iterator[Violation]:
    """A notification is pushed again only after an outcome that was recorded as unknown."""
    for envelopes, _, item in case.notifications():
        reasons = case.doubled(envelopes, item)
        if None in reasons:
            detail = f"delivered {len(reasons) + 1} times, unknown outcomes in between: {reasons}"
            yield Violation(Kind.PUSHED_TWICE, item.delivery_key[:16], detail)


def check_leases(case: Case) -> Iterator[Violation]:
    """A first attempt that lost its lease had it for the time of a lease."""
    for envelopes, _, item in case.notifications():
        began = None
        for event in sorted(case.events_of(envelopes, item), key=lambda event: event.at):
            if event.kind == "admitted":
                began = event.at
            elif event.kind == "unknown" and event.failure == "lease_lost" and event.attempt == 1 and began is not None:
                held = event.at - began
                if held < case.evidence.lease - SLACK:
                    detail = f"lost after {held:.1f} s of {case.evidence.lease:g} s"
                    yield Violation(Kind.LEASE_CUT_SHORT, item.delivery_key[:16], detail)


def check_registrations(case: Case) -> Iterator[Violation]:
    """Of every device its last valid version is stored, and nothing of those that left but that version."""
    last = last_registrations(case.evidence.sent)
    for device, sent in last.items():
        stored = case.evidence.registrations.get(device)
        expected = expected_row(sent)
        if stored != expected:
            yield Violation(Kind.REGISTRATION_WRONG, device.installation_id, _difference(stored, expected))
    for device in case.evidence.registrations.keys() - last.keys():
        yield Violation(Kind.REGISTRATION_WRONG, device.installation_id, "it never registered validly")


def last_registrations(sent: tuple[Sent, ...]) -> dict[DeviceId, Sent]:
    """Return the registration with the highest version of each device that registered validly."""
    found: dict[DeviceId, tuple[int, Sent]] = {}
    for each in sent:
        if each.kind == "registration" and SUCCESS in each.told:
            content = PushNotificationRegistration.FromString(bytes.fromhex(each.content))
            device = DeviceId(_key_hash(each.client), content.installation_id)
            if content.version > found.get(device, (0, each))[0]:
                found[device] = content.version, each
    return {device: each for device, (_, each) in found.items()}


def expected_row(sent: Sent) -> Stored:
    """Return what has to be stored of a registration."""
    content = PushNotificationRegistration.FromString(bytes.fromhex(sent.content))
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


def _difference(stored: Stored | None, expected: Stored) -> str:
    if stored is None:
        return f"nothing is stored, not even version {expected.version}"
    if (stored.version, stored.registered) != (expected.version, expected.registered):
        return (
            f"version {stored.version} ({'registered' if stored.registered else 'gone'}) is stored, "
            f"not {expected.version} ({'registered' if expected.registered else 'gone'})"
        )
    names = [name for name, value in expected.content.items() if stored.content.get(name) != value]
    return f"version {stored.version} differs in {', '.join(names) or 'what is left of it'}"


def _key_hash(client: str) -> str:
    return PrivateKey(bytes.fromhex(client)).public_key.key_hash.hex()


def check_in_flight(case: Case) -> Iterator[Violation]:
    """Nothing is left to be done."""
    for name, count in case.evidence.in_flight.items():
        if count:
            yield Violation(Kind.LEFT_IN_FLIGHT, name, str(count))


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
    check_registrations,
    check_in_flight,
    check_memory,
)
