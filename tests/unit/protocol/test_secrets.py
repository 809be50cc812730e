"""No repr, text or error ever shows a token, a private key or a content."""

from functools import partial

import pytest

from wakupush.model import waku_message
from wakupush.model.failures import Failure
from wakupush.model.platforms import TokenType
from wakupush.model.registrations import Address, Installation, QueriedDevice, Registration
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol import application, ecies, payload, query, registration, request, segments
from wakupush.protocol.errors import Refused
from wakupush.protocol.keys import InvalidKeyError, PrivateKey, PublicKey, recover
from wakupush.protocol.sealing import UnsealableError, seal, unseal

SECRET = "Plantedsecret"
PLANTED = SECRET.encode()
KEY = PrivateKey(PLANTED + bytes(19))
OTHER = PrivateKey(b"\1" * 32)
PUBLIC = OTHER.public_key
open_registration = partial(registration.open_registration, most_bytes=1000)


def traces(value):
    """Return all ways in which text shows the planted secret."""
    text = "\n".join([repr(value), str(value), f"{value}", f"{value!r:s}"]).lower()
    return [form for form in (SECRET.lower(), PLANTED.hex(), repr(PLANTED + bytes(19)).lower()) if form in text]


TEXTS = dict.fromkeys(("device_token", "access_token"), SECRET)
LISTS = ("allowed_key_list", "blocked_chat_list", "muted_chat_list", "allowed_mentions_chat_list")
VALUES = {
    "PrivateKey": KEY,
    "key in a list": [KEY],
    "Registration": Registration(
        installation_id="i",
        version=1,
        token_type=TokenType.APN,
        grant=PLANTED,
        enabled=True,
        apn_topic="t",
        allow_from_contacts_only=False,
        block_mentions=False,
        **TEXTS,
        **dict.fromkeys(LISTS, (PLANTED,)),
    ),
    "Item": request.Item(
        key_hash=b"h",
        installation_id="i",
        access_token=SECRET,
        type=1,
        chat_id=PLANTED,
        author=PLANTED,
        message=PLANTED,
    ),
    "Address": Address(Installation(b"h", b"i"), PLANTED, PLANTED, PLANTED),
    "QueriedDevice": QueriedDevice(
        key_hash=b"h",
        installation_id="i",
        version=1,
        access_token=SECRET,
        grant=PLANTED,
        allow_from_contacts_only=False,
        allowed_key_list=(PLANTED,),
    ),
    "ApplicationMessage": application.ApplicationMessage(1, PLANTED, PUBLIC, b"id"),
    "Opened": application.Opened(1, PLANTED, PUBLIC, b"id"),
    "Payload": payload.Payload(PLANTED, PUBLIC, PLANTED),
    "Segment": segments.Segment(bytes(32), 0, 1, PLANTED),
    "WakuMessage": waku_message.WakuMessage(payload=PLANTED, content_topic="t"),
}
VALUES["Request"] = request.Request(b"id", (VALUES["Item"],))


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_repr(value):
    assert traces(value) == []


def test_a_secret_would_be_found():
    assert traces(KEY.secret)
    assert traces(KEY.secret.hex())
    assert traces(PushNotificationRegistration(device_token=SECRET))


LIMITS = registration.Limits(list_items=0, list_item_bytes=0, text_bytes=0, registration_bytes=0)
GOOD = {"version": 2, "installation_id": "cf3695c5-ae8a-40d9-bf26-a554268f1475"}


def check(**fields):
    message = PushNotificationRegistration(**fields)
    registration.check(
        message, client=KEY.public_key, server=PUBLIC, stored_version=fields.get("version", 0) // 3, limits=LIMITS
    )


CALLS = {
    "private key, not hex": partial(PrivateKey.from_hex, SECRET),
    "private key, long": partial(PrivateKey.from_hex, KEY.secret.hex() + "00"),
    "private key, one odd digit": partial(PrivateKey.from_hex, KEY.secret.hex()[:-1] + "g"),
    "private key, short bytes": partial(PrivateKey, PLANTED),
    "private key, out of range": partial(PrivateKey, b"\xff" * 16 + PLANTED + b"\xff" * 3),
    "public key, short": partial(PublicKey, b"\2" + PLANTED),
    "public key, no point": partial(PublicKey, b"\4" + PLANTED + bytes(51)),
    "public key, not hex": partial(PublicKey.from_hex, SECRET),
    "signature": partial(recover, bytes(32), PLANTED),
    "signature, 65 bytes": partial(recover, bytes(32), PLANTED + b"\xff" * 52),
    "ECIES": partial(ecies.decrypt, b"\4" + PLANTED * 20, KEY),
    "ECIES, changed": partial(ecies.decrypt, ecies.encrypt(PLANTED, KEY.public_key) + b"x", KEY),
    "sealed": partial(unseal, KEY.secret, PLANTED * 20),
    "sealed, short": partial(unseal, KEY.secret, PLANTED[:5]),
    "payload": partial(payload.decode, b"\3\xff\xff\xff" + PLANTED),
    "payload, signed": partial(payload.decode, b"\5\1" + PLANTED * 10),
    "payload, too large": partial(payload.encode, PLANTED * (2**24 // len(PLANTED) + 1)),
    "metadata": partial(application.unwrap, b"\xff" + PLANTED),
    "metadata, text": partial(application.unwrap, b"\x0a\x7f" + PLANTED),
    "registration, sealed": partial(open_registration, PLANTED * 5, OTHER, KEY.public_key),
    "registration, no protobuf": partial(
        open_registration, seal(OTHER.shared_key(KEY.public_key), PLANTED), OTHER, KEY.public_key
    ),
    "registration, no UTF-8": partial(
        open_registration,
        seal(OTHER.shared_key(KEY.public_key), b"\x12\x0e" + PLANTED + b"\xff"),
        OTHER,
        KEY.public_key,
    ),
    "registration, installation": partial(check, version=1, installation_id=SECRET),
    "registration, access token": partial(check, **GOOD, access_token=SECRET),
    "registration, grant": partial(check, **GOOD, access_token=GOOD["installation_id"], grant=PLANTED),
    "registration, answer": partial(registration.encode_response, PLANTED, Failure.NOT_FOR_US),
    "query": partial(query.parse_query, b"\x0a\x7f" + PLANTED, most_keys=1),
    "request": partial(request.parse_request, b"\x0a\x7f" + PLANTED, most_items=100),
    "segment": partial(segments.join, [segments.Segment(bytes(32), 0, 1, PLANTED)]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_error(call):
    with pytest.raises((Refused, InvalidKeyError, UnsealableError, ValueError)) as raised:
        call()
    error = raised.value
    assert error.__cause__ is None
    while error is not None:
        assert traces(error) == []
        assert traces(error.args) == []
        error = error.__context__
