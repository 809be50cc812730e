"""The recorded scenarios against the pure rules: every answer and notification."""

import dataclasses
from base64 import b64decode
from functools import cache, partial

import pytest

from support import dialects, vectors
from support.wanting import preferences
from wakupush.model.failures import Answer, Failure
from wakupush.model.notifications import NotificationType
from wakupush.model.registrations import QueriedDevice, Registration
from wakupush.pb.push_notification_pb2 import (
    PushNotificationQueryResponse,
    PushNotificationRegistrationResponse,
    PushNotificationReport,
    PushNotificationResponse,
)
from wakupush.protocol import (
    application,
    notification,
    payload,
    query,
    registration,
    request,
    segments,
    topics,
)
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.keys import PrivateKey, PublicKey

unhex = bytes.fromhex
open_registration = partial(registration.open_registration, most_bytes=1_000_000)
LIMITS = registration.Limits(list_items=1000, list_item_bytes=256, text_bytes=1024, registration_bytes=1_000_000)


class Server:
    """What the rules make of messages, given dicts for a database."""

    def __init__(self, key):
        self.key = key
        self.seen, self.pushed, self.parts, self.devices = set(), set(), {}, {}
        public = key.public_key
        names = (topics.personal_topic(public), topics.partitioned_topic(public))
        self.watched = {topics.content_topic(name): None for name in names}

    def receive(self, waku):
        """Return the answers (type, inner, recipient, topic name) and the notifications for gorush."""
        if waku["message_hash"] in self.seen or waku["content_topic"] not in self.watched:
            return [], []
        self.seen.add(waku["message_hash"])
        try:
            opened = self.open(b64decode(waku["payload"]), self.watched[waku["content_topic"]])
            answer_type, inner, notifications = {
                Type.PUSH_NOTIFICATION_REGISTRATION: self.register,
                Type.PUSH_NOTIFICATION_QUERY: self.reveal,
                Type.PUSH_NOTIFICATION_REQUEST: self.notify,
            }.get(opened.type, self.pass_over)(opened)
        except Refused:
            return [], []
        recipient = opened.signer
        answer = (answer_type, inner, recipient.uncompressed.hex(), topics.partitioned_topic(recipient))
        return [answer], notifications

    def open(self, sealed, topic_name):
        if topic_name is None:
            content = payload.open_asymmetric(sealed, self.key)
        else:
            content = payload.open_symmetric(sealed, symmetric_key(topic_name))
        found = application.read(content)
        if isinstance(found, segments.Segment):
            parts = self.parts.setdefault(found.entire_message_hash, [])
            parts.append(found)
            found = application.read(dataclasses.replace(content, data=segments.join(parts)))
        return found

    def register(self, opened):
        request_id = registration.request_id(opened.inner)
        answer_type, client = Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE, opened.signer
        try:
            message = open_registration(opened.inner, self.key, client)
            name = (client.key_hash, message.installation_id)
            device = registration.check(
                message,
                client=client,
                server=self.key.public_key,
                stored_version=self.devices[name].version if name in self.devices else 0,
                limits=LIMITS,
            )
        except Refused as refused:
            if refused.failure.answer is Answer.SILENCE:
                raise
            return answer_type, registration.encode_response(request_id, refused.failure), []
        self.devices[name] = device
        self.watched |= {topics.content_topic(topic): topic for topic in topics.query_topics(client.key_hash)}
        return answer_type, registration.encode_response(request_id, None), []

    def reveal(self, opened):
        wanted = query.parse_query(opened.inner, most_keys=1000)
        known = [
            QueriedDevice(
                key_hash=key_hash,
                installation_id=device.installation_id,
                version=device.version,
                access_token=device.access_token,
                grant=device.grant,
                allow_from_contacts_only=device.allow_from_contacts_only,
                allowed_key_list=device.allowed_key_list,
            )
            for (key_hash, _), device in sorted(self.devices.items())
            if key_hash in wanted and isinstance(device, Registration)
        ]
        return Type.PUSH_NOTIFICATION_QUERY_RESPONSE, query.encode_response(opened.message_id, known), []

    def notify(self, opened):
        asked, failures, notifications = request.parse_request(opened.inner, most_items=100), [], []
        for item in asked.items:
            device = self.devices.get((item.key_hash, item.installation_id))
            decision = request.decide(item, wanted(item, device), most_bytes=128)
            failures.append(decision if isinstance(decision, Failure) else None)
            key = request.delivery_key(asked.message_id, item)
            if decision is request.Admitted.ADMITTED and key not in self.pushed:
                self.pushed.add(key)
                notifications.append(for_gorush(item, device))
        return Type.PUSH_NOTIFICATION_RESPONSE, request.encode_response(asked, failures), notifications

    def pass_over(self, _opened):
        raise Refused(Failure.TYPE_UNSUPPORTED)


symmetric_key = cache(topics.symmetric_key)


def wanted(item, device):
    if not isinstance(device, Registration):
        return None
    lists = ("blocked_chat_list", "muted_chat_list", "allowed_mentions_chat_list")
    fields = ("access_token", "enabled", "block_mentions", *lists)
    return preferences(item, **{name: getattr(device, name) for name in fields})


def for_gorush(item, device):
    return {
        "data": dialects.data(
            "status-2024",
            key_hash=item.key_hash,
            installation_id=item.installation_id,
            chat_id=item.chat_id,
            message=item.message,
        ),
        "message": notification.PROFILES["status-2024"].texts[NotificationType(item.type)],
        "platform": int(device.token_type),
        "tokens": [device.device_token],
        "topic": device.apn_topic,
    }


#: Where we deviate from the reference on purpose (docs/reference/conformance.md): the error in the answer to a message
#: (None: success), and how many notifications there are.
OURS = {
    "type_99": ("INTERNAL_ERROR", 0),
    "same_item_twice": (None, 1),
    "same_content_other_signer": (None, 1),
    "duplicate": (None, 1),
    "gorush_unreachable": (None, 1),
    "version_uint64_max": (None, 0),
    "no_transport_signature": (None, 0),
}


def expected(step):
    """Return the answers and notifications that a step of a scenario asks for."""
    recorded = [
        (
            reply["application"]["type"],
            in_order(reply["application"]),
            reply["payload_v1"]["recipient_public_key"],
            reply["topic_name"],
        )
        for reply in step["replies"]
    ]
    notifications = [entry for post in step["gorush_posts"] for entry in post["json"]["notifications"]]
    if step["name"] in OURS:
        error, count = OURS[step["name"]]
        unique = [entry for index, entry in enumerate(notifications) if entry not in notifications[:index]]
        return [answer(sent, error) for sent in step["send"]], unique[:count] if unique else count
    match step["spec_expect"]:
        case None:
            return recorded, notifications
        case {"replies": 0}:
            return [], notifications
        case {"success": False, **rest}:
            # The specification names no error for what is missing: MALFORMED_MESSAGE.
            error = rest.get("error_name", "MALFORMED_MESSAGE")
            return [answer(sent, error) for sent in step["send"]], notifications
    pytest.fail(f"unknown spec_expect in {step['name']}")


def in_order(layer):
    """Return the inner message; the recorded order of the infos in a query response is that of an index."""
    inner = unhex(layer["inner"])
    if layer["type"] != Type.PUSH_NOTIFICATION_QUERY_RESPONSE:
        return inner
    response = PushNotificationQueryResponse.FromString(inner)
    response.info.sort(key=lambda info: (info.public_key, info.installation_id))
    return response.SerializeToString()


def answer(sent, error):
    """Return the answer that a message must have, made of what was recorded of it."""
    layer = sent["application"]
    if "registration" in layer:
        number = PushNotificationRegistrationResponse.ErrorType.Value(error) if error else 0
        message = PushNotificationRegistrationResponse(
            success=not error, error=number, request_id=unhex(layer["registration"]["request_id"])
        )
        answer_type = Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE
    else:
        number = PushNotificationReport.ErrorType.Value(error) if error else 0
        reports = [
            PushNotificationReport(
                success=not error,
                error=number,
                public_key=unhex(item["public_key"]),
                installation_id=item["installation_id"],
            )
            for item in layer["fields"]["requests"]
        ]
        message = PushNotificationResponse(message_id=unhex(layer["fields"]["message_id"]), reports=reports)
        answer_type = Type.PUSH_NOTIFICATION_RESPONSE
    recipient = PublicKey.from_hex(layer["signer_public_key"])
    return (
        answer_type,
        message.SerializeToString(),
        recipient.uncompressed.hex(),
        f"contact-discovery-{recipient.partition}",
    )


@cache
def run(scenario):
    """Return the answers and notifications of each step of a scenario."""
    (key,) = (key for key in vectors.load(scenario)["keys"] if key["name"] == "server")
    server, outcomes = Server(PrivateKey.from_hex(key["private_key"])), {}
    for step in vectors.load(scenario)["steps"]:
        deliveries = [sent for sent in step["send"] for _ in range(step["deliver_times"])]
        received = [server.receive(sent["waku_message"]) for sent in deliveries]
        answers, notifications = ([entry for pair in received for entry in pair[part]] for part in (0, 1))
        outcomes[step["name"]] = answers, notifications
    return outcomes


STEPS = [
    pytest.param(scenario, step, id=f"{scenario.removeprefix('scenario_')}-{step['name']}")
    for scenario in vectors.SCENARIOS
    for step in vectors.load(scenario)["steps"]
]


@pytest.mark.parametrize(("scenario", "step"), STEPS)
def test_step(scenario, step):
    answers, notifications = run(scenario)[step["name"]]
    expected_answers, expected_notifications = expected(step)
    assert answers == expected_answers
    assert notifications == expected_notifications or len(notifications) == expected_notifications


def test_every_deviation_is_the_name_of_a_step():
    assert OURS.keys() <= {case.values[1]["name"] for case in STEPS}
