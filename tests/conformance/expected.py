"""What a step of a recorded scenario must come to with our server, from the file alone."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf import text_format

from conformance import profiles
from conformance.deviations import (
    EVERYWHERE,
    REGISTRATION,
    REQUEST,
    deviation_of,
    gorush_trouble,
    is_unknown_type,
    items,
    type_of,
)
from support.profiles import ADDED_KEYS
from wakupush.pb.push_notification_pb2 import (
    PushNotificationQueryResponse,
    PushNotificationRegistrationResponse,
    PushNotificationReport,
    PushNotificationResponse,
)
from wakupush.protocol import topics
from wakupush.protocol.application import Type
from wakupush.protocol.hashing import shake256_64
from wakupush.protocol.keys import PublicKey

unhex = bytes.fromhex

RESPONSES = {
    Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE: PushNotificationRegistrationResponse,
    Type.PUSH_NOTIFICATION_QUERY_RESPONSE: PushNotificationQueryResponse,
    Type.PUSH_NOTIFICATION_RESPONSE: PushNotificationResponse,
}
#: Types of notification.
MENTION, CONTACT_REQUEST = 2, 4
#: gorush's numbers of the platforms; a topic of the latter would broadcast.
IOS, FIREBASE = 1, 2
#: Name of the property of a test report that says by which rule a step was compared.
VERDICT = "conformance"
EXACT, BY_SPECIFICATION, BY_DEVIATION, NOT_COMPARED = "exact", "by specification", "by listed deviation", "not compared"


@dataclass(frozen=True, order=True)
class Answer:
    """All of an answer that is compared."""

    type: int
    inner: bytes
    #: Who signed the application layer, and the transport layer.
    signer: str
    transport_signer: str
    recipient: str
    content_topic: str

    def __str__(self) -> str:
        """Return it as people read it."""
        content = text_format.MessageToString(RESPONSES[self.type].FromString(self.inner), as_one_line=True)
        signers = f"signed by {self.signer[:10]}… in {self.transport_signer[:10]}…"
        return f"{Type.Name(self.type)} to {self.recipient[:10]}… on {self.content_topic} {signers}: {content}"


@dataclass(frozen=True)
class Row:
    """A row of the registrations table, as the vectors know it."""

    registered: bool
    version: int


#: The rows of a server by (hash of the public key, installation id).
Rows = dict[tuple[str, str], Row]
Changes = dict[tuple[str, str], Row | None]


@dataclass(frozen=True)
class Expected:
    """What a step must come to."""

    verdict: str
    answers: list[Answer]
    #: As `flat` gives them.
    pushes: list[str]
    #: Rows that the step adds or changes; None where it takes one away.
    changes: Changes
    #: How gorush fails, see `gorush_trouble`.
    trouble: int | str | None
    #: Why this step of the file is not understood.
    fault: Exception | None = None


class Scenario:
    """A recorded scenario and what each of its steps must come to."""

    def __init__(self, path: Path) -> None:
        raw = json.loads(path.read_text())
        self.name = path.stem.removeprefix("scenario_")
        self.path = path
        self.profile = profiles.of(path.parent)
        self.steps = raw["steps"]
        (self.server,) = (PublicKey.from_hex(key["public_key"]) for key in raw["keys"] if key["name"] == "server")
        #: The registration in force of each device, by the same key as in `Rows`; grows with the steps.
        self.devices: dict[tuple[str, str], dict] = {}
        self.expected: list[Expected] = []
        reference: Rows = {}
        for step in self.steps:
            after = _reference_rows(step)
            changes = {key: after.get(key) for key in reference | after if reference.get(key) != after.get(key)}
            try:
                expected = self._expect(step, changes)
            except Exception as error:  # noqa: BLE001 - what nobody foresaw fails its own step, and no other
                expected = Expected("not understood", [], [], changes, gorush_trouble(step), error)
            self.expected.append(expected)
            reference = after

    def _expect(self, step: dict, changes: Changes) -> Expected:
        answers = [_recorded(reply) for reply in step["replies"]]
        pushes = [each for post in step["gorush_posts"] for each in post["json"]["notifications"]]
        verdict = EXACT if step["compare"] == "exact" else NOT_COMPARED
        if step["spec_expect"] is not None:
            verdict, pushes, changes = BY_SPECIFICATION, [], {}
            answers = self._as_specified(step, **step["spec_expect"])
        deviation = deviation_of(step)
        if deviation:
            verdict = BY_SPECIFICATION if step["spec_expect"] else BY_DEVIATION
            answers = ANSWERS[deviation.answers](self, step, answers)
            pushes = PUSHES[deviation.pushes](self, step, pushes)
            changes = ROWS[deviation.rows](self, step, changes)
        ours = pushes
        for everywhere in EVERYWHERE:
            ours = PUSHES[everywhere.pushes](self, step, ours)
        if ours != pushes:
            verdict, pushes = (verdict if verdict == BY_SPECIFICATION else BY_DEVIATION), ours
        changes = changes | self._enter_registrations(step, answers)
        return Expected(verdict, answers, [flat(push) for push in pushes], changes, gorush_trouble(step))

    def _as_specified(
        self, step: dict, *, replies: int | None = None, success: bool | None = None, error_name: str = ""
    ) -> list[Answer]:
        """Return the answers that `spec_expect` asks for."""
        if replies == 0:
            return []
        assert replies is None, f"spec_expect asks for {replies} replies, and not for which"
        assert success is not None, "spec_expect says neither how many replies nor whether there is success"
        # Where the specification names no error for what is missing or faulty: the general one.
        return [
            self.answer(message, "" if success else error_name or GENERAL_ERROR[type_of(message)])
            for message in answered_messages(step)
        ]

    def answer(self, request: dict, error: str) -> Answer:
        """Return the answer to a registration or a request, for all items alike; an empty error is success."""
        content = request["application"]
        if type_of(request) == REGISTRATION:
            kind = Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE
            number = PushNotificationRegistrationResponse.ErrorType.Value(error) if error else 0
            request_id = shake256_64(unhex(content["inner"]))
            message = PushNotificationRegistrationResponse(success=not error, error=number, request_id=request_id)
        else:
            kind = Type.PUSH_NOTIFICATION_RESPONSE
            number = PushNotificationReport.ErrorType.Value(error) if error else 0
            message = PushNotificationResponse(message_id=message_id(request))
            for item in items(request):
                key_hash, installation_id = unhex(item["public_key"]), item["installation_id"]
                message.reports.add(
                    success=not error, error=number, public_key=key_hash, installation_id=installation_id
                )
        server = self.server.uncompressed.hex()
        return to(signer(request), Answer(kind, message.SerializeToString(), server, server, "", ""))

    def push(self, item: dict, kind: int) -> dict:
        """Return the notification of a type that an item of a request makes."""
        device = self.devices[item["public_key"], item["installation_id"]]
        names = {"chatId": "chat_id", "encryptedMessage": "message", "publicKey": "public_key"}
        data = {name: f"0x{item[field]}" for name, field in names.items()}
        is_ios = device["token_type"] == IOS
        if is_ios and kind in profiles.IOS_LINKS[self.profile]:
            data["deepLink"] = profiles.IOS_LINKS[self.profile][kind]
        return {
            "data": data,
            "message": profiles.TEXTS[self.profile][kind],
            "platform": device["token_type"],
            "tokens": [device["device_token"]],
            "topic": device["apn_topic"],
            **(profiles.IOS_FIELDS[self.profile] if is_ios else {}),
        }

    def _enter_registrations(self, step: dict, answers: list[Answer]) -> Rows:
        """Enter what was accepted, and return the rows that a successful unregister leaves."""
        responses = [
            PushNotificationRegistrationResponse.FromString(answer.inner)
            for answer in answers
            if answer.type == Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE
        ]
        accepted = {response.request_id for response in responses if response.success}
        rows = {}
        for key, fields, inner in registrations(step):
            if shake256_64(inner) in accepted:
                self.devices[key] = fields
                if fields["unregister"]:
                    rows[key] = Row(registered=False, version=fields["version"])
        return rows


#: Of a refusal for which the specification names no error.
GENERAL_ERROR = {REGISTRATION: "MALFORMED_MESSAGE", REQUEST: "INTERNAL_ERROR"}


def _internal_error_for_unknown_types(_: Scenario, step: dict, answers: list[Answer]) -> list[Answer]:
    types = {
        message_id(message): [is_unknown_type(item) for item in items(message)]
        for message in step["send"]
        if type_of(message) == REQUEST
    }
    return [_refuse_unknown_types(answer, types) for answer in answers]


def _refuse_unknown_types(answer: Answer, types: dict[bytes, list[bool]]) -> Answer:
    if answer.type != Type.PUSH_NOTIFICATION_RESPONSE:
        return answer
    response = PushNotificationResponse.FromString(answer.inner)
    for report, is_unknown in zip(response.reports, types[response.message_id], strict=True):
        if is_unknown and report.success:
            report.success, report.error = False, PushNotificationReport.INTERNAL_ERROR
    return replace(answer, inner=response.SerializeToString())


def _without_unknown_types(scenario: Scenario, step: dict, pushes: list[dict]) -> list[dict]:
    return _without(scenario, pushes, [item for item in _pushed_to(scenario, step) if is_unknown_type(item)])


def _without_contact_requests_by_blocked_authors(scenario: Scenario, step: dict, pushes: list[dict]) -> list[dict]:
    if scenario.profile != profiles.OF_2024:
        return pushes
    return _without(
        scenario,
        pushes,
        [
            item
            for item in _pushed_to(scenario, step)
            if item["type"] == CONTACT_REQUEST
            and item["author"] in scenario.devices[item["public_key"], item["installation_id"]]["blocked_chat_list"]
        ],
    )


def _pushed_to(scenario: Scenario, step: dict) -> list[dict]:
    """Return the items of a step that name a registered device."""
    requested_items = [item for message in answered_messages(step) for item in items(message)]
    return [item for item in requested_items if (item["public_key"], item["installation_id"]) in scenario.devices]


def _without(scenario: Scenario, pushes: list[dict], kept_back: list[dict]) -> list[dict]:
    """Return notifications without those of some items, which the reference sends as mentions."""
    removals = Counter(flat(scenario.push(item, MENTION)) for item in kept_back)
    rest = []
    for push in pushes:
        if removals[flat(push)] > 0:
            removals[flat(push)] -= 1
        else:
            rest.append(push)
    return rest


def _one_for_each_message(_: Scenario, step: dict, answers: list[Answer]) -> list[Answer]:
    by_id = {PushNotificationResponse.FromString(answer.inner).message_id: answer for answer in answers}
    return [to(signer(message), by_id[message_id(message)]) for message in step["send"]]


def _distinct(_: Scenario, __: dict, pushes: list[dict]) -> list[dict]:
    return [push for index, push in enumerate(pushes) if push not in pushes[:index]]


def _without_disabled(scenario: Scenario, _: dict, pushes: list[dict]) -> list[dict]:
    disabled = {fields["device_token"] for fields in scenario.devices.values() if not fields["enabled"]}
    return [push for push in pushes if not disabled.intersection(push["tokens"])]


def _without_topic_for_firebase(_: Scenario, __: dict, pushes: list[dict]) -> list[dict]:
    return [push | {"topic": ""} if push["platform"] == FIREBASE and push.get("topic") else push for push in pushes]


def _recorded_or_asked_for(scenario: Scenario, step: dict, pushes: list[dict]) -> list[dict]:
    return pushes or [
        scenario.push(item, item["type"]) for message in answered_messages(step) for item in items(message)
    ]


def _recorded_or_success(scenario: Scenario, step: dict, answers: list[Answer]) -> list[Answer]:
    return answers or _success(scenario, step, answers)


def _success(scenario: Scenario, step: dict, _: list[Answer]) -> list[Answer]:
    return [scenario.answer(message, "") for message in answered_messages(step)]


def _rows_as_sent(_: Scenario, step: dict, __: dict) -> dict:
    return {key: Row(not fields["unregister"], fields["version"]) for key, fields, _ in registrations(step)}


def _as_it_is(_: Scenario, __: dict, outcome: object) -> object:
    return outcome


#: What `Deviation` names; each gets the scenario, the step and the outcome that would be expected without it.
ANSWERS = {
    "": _as_it_is,
    "success": _success,
    "recorded_or_success": _recorded_or_success,
    "one_for_each_message": _one_for_each_message,
    "internal_error_for_unknown_types": _internal_error_for_unknown_types,
}
PUSHES = {
    "": _as_it_is,
    "distinct": _distinct,
    "without_disabled": _without_disabled,
    "without_topic_for_firebase": _without_topic_for_firebase,
    "without_unknown_types": _without_unknown_types,
    "without_contact_requests_by_blocked_authors": _without_contact_requests_by_blocked_authors,
    "recorded_or_asked_for": _recorded_or_asked_for,
}
ROWS = {"": _as_it_is, "as_sent": _rows_as_sent, "none": lambda *_: {}}


def flat(push: dict) -> str:
    """Return a notification as text that can be compared: without the keys that we add, and an empty topic."""
    fields = {name: value for name, value in push.items() if name not in ADDED_KEYS and (name, value) != ("topic", "")}
    return json.dumps(fields, sort_keys=True)


def in_order(answer_type: int, inner: bytes) -> bytes:
    """Return the inner message of an answer; infos of a query response are a set, so they are sorted here."""
    if answer_type != Type.PUSH_NOTIFICATION_QUERY_RESPONSE:
        return inner
    response = PushNotificationQueryResponse.FromString(inner)
    response.info.sort(key=lambda info: (info.public_key, info.installation_id))
    return response.SerializeToString()


def to(recipient: PublicKey, answer: Answer) -> Answer:
    """Return an answer as it is to be sent to a recipient."""
    content_topic = topics.content_topic(f"contact-discovery-{recipient.partition}")
    return replace(answer, recipient=recipient.uncompressed.hex(), content_topic=content_topic)


def answered_messages(step: dict) -> list[dict]:
    """Return the messages of a step whose answers tell of success or failure."""
    return [message for message in step["send"] if type_of(message) in (REGISTRATION, REQUEST)]


def signer(message: dict) -> PublicKey:
    """Return who signed a message: at the application layer, else at the transport layer."""
    return PublicKey.from_hex(
        message["application"].get("signer_public_key") or message["payload_v1"].get("signer_public_key")
    )


def message_id(message: dict) -> bytes:
    """Return the message id in a request."""
    return unhex((message["application"].get("fields") or {}).get("message_id", ""))


def registrations(step: dict) -> list[tuple[tuple[str, str], dict, bytes]]:
    """Return the registrations of a step that can be read: the key as in `Rows`, the fields, the sealed bytes."""
    return [
        (
            (signer(message).key_hash.hex(), fields["installation_id"]),
            fields,
            unhex(message["application"]["inner"]),
        )
        for message in step["send"]
        if type_of(message) == REGISTRATION
        and (fields := message["application"].get("registration", {}).get("fields")) is not None
    ]


def _recorded(reply: dict) -> Answer:
    content, transport = reply["application"], reply["payload_v1"]
    return Answer(
        content["type"],
        in_order(content["type"], unhex(content["inner"])),
        content["signer_public_key"],
        transport["signer_public_key"],
        transport["recipient_public_key"],
        topics.content_topic(reply["topic_name"]),
    )


def _reference_rows(step: dict) -> Rows:
    return {
        (row["public_key_hash"], row["installation_id"]): Row(row["registered"], int(row["version"]))
        for row in step["server_rows_after"]
    }
