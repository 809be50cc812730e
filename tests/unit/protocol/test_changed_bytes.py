"""One changed byte of what was good: it is never its signer's, and never another message."""

import pytest

from support.strangers import CLIENT, SERVER, SHARED, TOKEN, attempt, failure_of, open_registration
from wakupush.model.failures import Failure
from wakupush.pb.push_notification_pb2 import (
    PushNotificationRegistration,
)
from wakupush.protocol import (
    application,
    grants,
    payload,
    registration,
)


def changed(good):
    """Return `good` with one bit changed, for each of its bytes."""
    for at in range(len(good)):
        yield good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :]


def resized(good):
    return [b"", good[:-1], good[1:], good + b"\0", b"\0" + good, good * 2]


SEALED = {
    "asymmetric": (payload.seal_asymmetric(b"data", SERVER.public_key, CLIENT), payload.open_asymmetric, SERVER),
    "symmetric": (payload.seal_symmetric(b"data", SHARED, CLIENT), payload.open_symmetric, SHARED),
}


@pytest.mark.parametrize(("sealed", "open_", "key"), SEALED.values(), ids=SEALED)
def test_changed_payload_is_not_for_us(sealed, open_, key):
    assert open_(sealed, key).data == b"data"
    for other in [*changed(sealed), *resized(sealed)]:
        assert failure_of(open_, other, key) is Failure.NOT_FOR_US


def test_changed_registration_is_undecryptable():
    sealed = registration.seal_registration(PushNotificationRegistration(version=1), CLIENT, SERVER.public_key)
    for other in [*changed(sealed), *resized(sealed)]:
        assert failure_of(open_registration, other, SERVER, CLIENT.public_key) is Failure.REGISTRATION_UNDECRYPTABLE


def test_changed_grant_is_none():
    good = grants.grant(CLIENT, SERVER.public_key, TOKEN)
    for other in [*changed(good), *resized(good)]:
        assert not grants.is_granted(other, CLIENT.public_key, SERVER.public_key, TOKEN)


def test_changed_signed_payload_is_never_its_signers():
    good = payload.encode(b"data", CLIENT)
    for other in [*changed(good), *resized(good)]:
        opened = attempt(payload.decode, other)
        assert opened is None or opened.signer != CLIENT.public_key


def test_changed_metadata_is_never_its_signers():
    good = application.wrap(20, b"inner", CLIENT)
    message = application.unwrap(good)
    for other in [*changed(good), *resized(good)]:
        opened = attempt(application.unwrap, other)
        if opened is not None and opened.signer == CLIENT.public_key:
            assert opened.inner == b"inner", "the signature covers the inner message alone"
            assert opened.message_id != message.message_id
