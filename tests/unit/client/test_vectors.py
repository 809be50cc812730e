"""The bytes that this client makes are those that the reference's client made, given the same keys and values."""

from dataclasses import replace
from random import Random

import pytest

from support import vectors
from wakupush.client.rules.acquaintances import Acquaintance, Way
from wakupush.client.rules.advertising import advertisement
from wakupush.client.rules.mailbox import Mailbox, open_advertisement
from wakupush.client.rules.querying import TokenQuery
from wakupush.client.rules.registering import Device, Enrolment, Options, Registrar, RegistrarState, Status
from wakupush.client.rules.sending import Content, Sending, TargetDevice
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import TokenType
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol import application, payload, sealing, topics
from wakupush.protocol.advertisement import encode_advertisement, parse_advertisement
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.query import encode_query, find_token, parse_response
from wakupush.protocol.registration import seal_registration

unhex = bytes.fromhex
FLOW = vectors.load("scenario_client_flow")
PARTIES = {party["name"]: party for party in FLOW["keys"]}
PRIVATE = vectors.private_keys("scenario_client_flow")
SERVER = PublicKey.from_hex(PARTIES["server"]["public_key"])
USERS = {unhex(party["public_key_hash"]): PublicKey.from_hex(party["public_key"]) for party in FLOW["keys"]}
#: What hashes in lists stand for, as far as the vectors tell: users.
AUTHORS = {user.author_hash: user for user in USERS.values()}


def recorded_messages(type_name):
    """Return the messages of a type that the reference's clients sent."""
    return [
        pytest.param(message, id=f"{step['name']}-{index}")
        for step in FLOW["steps"]
        for index, message in enumerate(step["send"])
        if message["application"]["type_name"] == type_name
    ]


def signer(message):
    return PRIVATE[message["application"]["signer_public_key"]]


@pytest.mark.parametrize("message", recorded_messages("PUSH_NOTIFICATION_REGISTRATION"))
def test_registration(message):
    recorded = message["application"]["registration"]
    theirs = PushNotificationRegistration.FromString(unhex(recorded["plaintext"]))
    key = signer(message)
    contacts = [user for user in USERS.values() for item in theirs.allowed_key_list if opens(key, user, item)]
    options = Options(
        enabled=theirs.enabled,
        contacts_only=theirs.allow_from_contacts_only,
        contacts=tuple(contacts),
        blocked_users=tuple(AUTHORS[each] for each in theirs.blocked_chat_list if each in AUTHORS),
        block_mentions=theirs.block_mentions,
    )
    client = Registrar(
        key, theirs.installation_id, RegistrarState(options=options, access_token=theirs.access_token), random=Random(1)
    )
    if theirs.unregister:
        ours = client.unregistration(SERVER, theirs.version)
    else:
        device = Device(
            token_type=TokenType(theirs.token_type), device_token=theirs.device_token, apn_topic=theirs.apn_topic
        )
        ours = client.registration(device, SERVER, theirs.version)
    # Sealed with another nonce each time: the same contacts open the same token.
    assert [unsealed(key, item) for item in ours.allowed_key_list] == [theirs.access_token.encode()] * len(contacts)
    assert len(contacts) == len(theirs.allowed_key_list)
    del ours.allowed_key_list[:]
    ours.allowed_key_list.extend(theirs.allowed_key_list)
    # Chats are hashes in the vectors; what they hash is not told.
    for name in ("blocked_chat_list", "muted_chat_list", "allowed_mentions_chat_list"):
        users = [each for each in getattr(theirs, name) if each in AUTHORS]
        if name == "blocked_chat_list":
            assert list(ours.blocked_chat_list) == users
        del getattr(ours, name)[:]
        getattr(ours, name).extend(getattr(theirs, name))
    assert ours.SerializeToString() == unhex(recorded["plaintext"])
    resealed = sealing.seal(key.shared_key(SERVER), ours.SerializeToString(), unhex(recorded["nonce"]))
    assert resealed == unhex(message["application"]["inner"])
    assert len(seal_registration(ours, key, SERVER)) == len(resealed)


def opens(key, user, item):
    try:
        sealing.unseal(key.shared_key(user), item)
    except sealing.UnsealableError:
        return False
    return True


def unsealed(key, item):
    [user] = [user for user in USERS.values() if opens(key, user, item)]
    return sealing.unseal(key.shared_key(user), item)


@pytest.mark.parametrize("message", recorded_messages("CONTACT_CODE_ADVERTISEMENT"))
def test_advertisement(message):
    inner, key = unhex(message["application"]["inner"]), signer(message)
    infos = parse_advertisement(inner)
    assert encode_advertisement(infos) == inner
    [info] = infos
    options = Options(contacts_only=not info.access_token)
    token = info.access_token or found_token(info, key)
    enrolment = Enrolment(server=SERVER, status=Status.REGISTERED, version=info.version)
    state = RegistrarState(options=options, access_token=token, enrolments=(enrolment,))
    [ours] = Registrar(key, info.installation_id, state, random=Random(1)).infos()
    assert encode_advertisement([ours]) == encode_advertisement([without_list(info)])
    name = topics.contact_code_topic(key.public_key)
    assert message["topic_name"] == name
    topic_key = topics.symmetric_key(name)
    data = unhex(message["payload_v1"]["data"])
    # Before the public message stand the bundles of the reference's encryption, which go with it.
    contact_code = data[: data.index(unhex(message["application"]["metadata"])) - 4]
    sealed = advertisement(key, infos, topic_key=topic_key, timestamp=1, contact_code=contact_code)
    opened = payload.open_symmetric(sealed.payload, topic_key)
    assert (opened.data, opened.signer) == (data, key.public_key)
    assert sealed.content_topic == message["waku_message"]["content_topic"]
    theirs = WakuMessage(payload=vectors.ciphertext_of(message), content_topic=sealed.content_topic)
    assert open_advertisement(theirs, topic_key).inner == inner


def found_token(info, key):
    contacts = (PrivateKey.from_hex(party["private_key"]) for party in FLOW["keys"])
    return next(filter(None, (find_token(info, key.public_key, contact) for contact in contacts)))


def without_list(info):
    return replace(info, allowed_key_list=())


@pytest.mark.parametrize("message", recorded_messages("PUSH_NOTIFICATION_QUERY"))
def test_query(message):
    fields = message["application"]["fields"]
    users = [USERS[unhex(each)] for each in fields["public_keys"]]
    ours = TokenQuery(users, signer(message))
    assert encode_query(user.key_hash for user in users) == unhex(message["application"]["inner"])
    assert ours.topic == message["topic_name"]
    assert ours.message_id == unhex(message["application"]["message_id"])
    topic_key = topics.symmetric_key(ours.topic)
    sealed = ours.message(topic_key, 1)
    assert sealed.timestamp == 1
    data = payload.open_symmetric(sealed.payload, topic_key)
    assert data.data == unhex(message["application"]["metadata"])
    assert sealed.content_topic == message["waku_message"]["content_topic"]
    # The reference signs this layer with the chat key, and so tells who asks; we do not.
    assert data.signer == signer(message).public_key


@pytest.mark.parametrize("message", recorded_messages("PUSH_NOTIFICATION_REQUEST"))
def test_request(message):
    fields = message["application"]["fields"]
    targets = [
        TargetDevice(
            USERS[unhex(item["public_key"])],
            item["installation_id"],
            Content(
                type=NotificationType(item["type"]),
                chat_id=unhex(item["chat_id"]),
                author=unhex(item["author"]),
                message=unhex(item["message"]),
            ),
            [
                Way(
                    installation_id=item["installation_id"],
                    server=SERVER,
                    access_token=item["access_token"],
                    version=1,
                    learned_at=0,
                )
            ],
        )
        for item in fields["requests"]
    ]
    [asking] = Sending(unhex(fields["message_id"]), targets, random=Random(1)).due(0)
    assert asking.inner == unhex(message["application"]["inner"])
    metadata = application.wrap(Type.PUSH_NOTIFICATION_REQUEST, asking.inner, signer(message))
    assert metadata == unhex(message["application"]["metadata"])


def answers():
    return [
        pytest.param(reply, id=f"{step['name']}-{index}")
        for step in FLOW["steps"]
        for index, reply in enumerate(step["replies"])
    ]


@pytest.mark.parametrize("reply", answers())
def test_opens_every_answer_of_the_reference(reply):
    key = PRIVATE[reply["payload_v1"]["recipient_public_key"]]
    box = Mailbox(key)
    message = WakuMessage(payload=vectors.ciphertext_of(reply), content_topic=reply["waku_message"]["content_topic"])
    assert box.content_topic == message.content_topic
    opened = box.take(message)
    assert (opened.signer, opened.inner) == (SERVER, unhex(reply["application"]["inner"]))


@pytest.mark.parametrize(
    "reply",
    [each for each in answers() if each.values[0]["application"]["type"] == Type.PUSH_NOTIFICATION_QUERY_RESPONSE],
)
def test_learns_what_the_reference_client_learns(reply):
    """A token is found exactly where the recorded client then used one: with an open device, or as a contact."""
    response = parse_response(unhex(reply["application"]["inner"]))
    asker = next(
        PrivateKey.from_hex(party["private_key"])
        for party in FLOW["keys"]
        if any(each["public_key"] == reply["payload_v1"]["recipient_public_key"] for each in party["ephemeral_keys"])
    )
    for info in response.infos:
        user = USERS[info.key_hash]
        acquaintance = Acquaintance(user=user).learn([info], asker=asker, server=SERVER, now=0)
        expected = info.access_token or any(opens(asker, user, item) for item in info.allowed_key_list)
        assert bool(acquaintance.ways) == bool(expected)
