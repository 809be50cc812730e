"""The rules of queries as tables: what is asked, and what is revealed."""

import pytest

from wakupush.model.failures import Answer, Failure
from wakupush.model.registrations import QueriedDevice
from wakupush.pb.push_notification_pb2 import (
    PushNotificationQuery,
    PushNotificationQueryInfo,
    PushNotificationQueryResponse,
)
from wakupush.protocol import query
from wakupush.protocol.errors import Refused

TOKEN, INSTALLATION = "0fd8121c-34b8-4ceb-b88e-5acbf94501ad", "cf3695c5-ae8a-40d9-bf26-a554268f1475"
HASH = b"h" * 64


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([HASH], (HASH,)),
        ([HASH, HASH], (HASH,)),
        ([b"i" * 64, HASH, b"i" * 64], (b"i" * 64, HASH)),
        ([b"", b"x" * 63, HASH, b"x" * 65], (HASH,)),
        ([], Failure.QUERY_WITHOUT_KEYS),
        ([b""], Failure.QUERY_WITHOUT_KEYS),
        ([b"x" * 65, b"x" * 10], Failure.QUERY_WITHOUT_KEYS),
        ([HASH] * 5, Failure.QUERY_LIMIT),
        ([b""] * 5, Failure.QUERY_LIMIT),
    ],
)
def test_parse_query(keys, expected):
    try:
        result = query.parse_query(PushNotificationQuery(public_keys=keys).SerializeToString(), most_keys=4)
    except Refused as refused:
        result = refused.failure
    assert result == expected


def device(*, contacts_only, contacts):
    return QueriedDevice(
        key_hash=HASH,
        installation_id=INSTALLATION,
        version=7,
        access_token=TOKEN,
        grant=b"grant",
        allow_from_contacts_only=contacts_only,
        allowed_key_list=contacts,
    )


@pytest.mark.parametrize(
    ("contacts_only", "contacts", "revealed"),
    [
        (False, (), {"access_token": TOKEN}),
        (False, (b"item",), {"access_token": TOKEN}),
        (True, (b"item",), {"allowed_key_list": [b"item"]}),
        (True, (), {}),
    ],
)
def test_what_a_query_reveals(contacts_only, contacts, revealed):
    queried_device = device(contacts_only=contacts_only, contacts=contacts)
    always = {"public_key": HASH, "installation_id": INSTALLATION, "grant": b"grant", "version": 7}
    info = PushNotificationQueryInfo(**always, **revealed)
    assert query.reveal(queried_device) == info
    response = PushNotificationQueryResponse.FromString(query.encode_response(b"id", [queried_device, queried_device]))
    assert response == PushNotificationQueryResponse(info=[info, info], message_id=b"id", success=True)


def test_without_information_there_is_no_answer():
    with pytest.raises(Refused) as refused:
        query.encode_response(b"id", [])
    assert refused.value.failure is Failure.NOTHING_KNOWN
    assert refused.value.failure.answer is Answer.SILENCE
