"""What is parsed of a stranger's bytes is bounded before: by their fields, however short these are."""

import subprocess
import sys
from functools import partial

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from wakupush.model.failures import Failure
from wakupush.pb.application_metadata_pb2 import ApplicationMetadataMessage
from wakupush.pb.push_notification_pb2 import (
    PushNotificationRegistration,
    PushNotificationRequest,
)
from wakupush.protocol import application, payload, query, registration, request, segments, wire
from wakupush.protocol.errors import Refused
from wakupush.protocol.keys import PrivateKey

CLIENT, SERVER = PrivateKey(b"\1" * 32), PrivateKey(b"\2" * 32)
EMPTY_ITEM, EMPTY_KEY, UNKNOWN, GROUP = b"\x0a\x00", b"\x0a\x00", b"\x78\x00", b"\x7b\x7c"
PLAINTEXT_BYTES = 1_000_000


def read(kind, data, **limits):
    """Return the message, or the failure that it is refused with."""
    try:
        return wire.parse(kind, data, malformed=Failure.INNER_MALFORMED, too_many=Failure.QUERY_LIMIT, **limits)
    except Refused as refused:
        return refused.failure


def failure_of(work, *args, **kwargs):
    with pytest.raises(Refused) as refused:
        work(*args, **kwargs)
    return refused.value.failure


# Fields of every wire type, with numbers and lengths of one byte and of more.


def varint(number):
    parts = []
    while number > 0x7F:
        parts.append(0x80 | number & 0x7F)
        number >>= 7
    return bytes([*parts, number])


numbers = st.integers(1, 2**29 - 1) | st.integers(1, 20)
plain = st.one_of(
    st.builds(lambda number, value: varint(number << 3) + varint(value), numbers, st.integers(0, 2**64 - 1)),
    st.builds(lambda number, value: varint(number << 3 | 1) + value, numbers, st.binary(min_size=8, max_size=8)),
    st.builds(lambda number, value: varint(number << 3 | 2) + varint(len(value)) + value, numbers, st.binary()),
    st.builds(lambda number: varint(number << 3 | 2) + varint(300) + bytes(300), numbers),
    st.builds(lambda number, value: varint(number << 3 | 5) + value, numbers, st.binary(min_size=4, max_size=4)),
).map(lambda field: (field, 1))
groups = st.builds(
    lambda number, inner: (
        varint(number << 3 | 3) + b"".join(field for field, _ in inner) + varint(number << 3 | 4),
        2 + sum(count for _, count in inner),
    ),
    numbers,
    st.lists(plain, max_size=4),
)


@given(st.lists(plain | groups, max_size=12), st.integers(0, 20))
@example([(b"\x0b\x0c", 2), (b"\x0b\x0c", 2)], 3)  # groups without anything in them: a byte for each end
def test_too_many_fields_refuse_a_message(fields, most):
    data = b"".join(field for field, _ in fields)
    # A kind without a field of its own takes them all.
    result = read(registration.PushNotificationRegistrationResponse, data, most_fields=most)
    if sum(count for _, count in fields) > most:
        assert result is Failure.QUERY_LIMIT
    else:
        assert result is not Failure.QUERY_LIMIT


@given(st.binary(max_size=60) | st.lists(plain | groups).map(lambda all_: b"".join(each for each, _ in all_)[:-1]))
def test_scan_accepts_what_protobuf_accepts(data):
    for kind in (PushNotificationRequest, ApplicationMetadataMessage):
        try:
            whole = kind.FromString(data)
        except DecodeError:
            assert read(kind, data, most_fields=1) in {Failure.INNER_MALFORMED, Failure.QUERY_LIMIT}
        else:
            fields = next(most for most in range(len(data) + 1) if read(kind, data, most_fields=most) == whole)
            assert all(read(kind, data, most_fields=most) is Failure.QUERY_LIMIT for most in range(fields))


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x80", b"\x80", b"\x0a\x05abcd", b"\x09\0\0\0", b"\x0d\0", b"\x0e\0", b"\x0f\0", b"\x0a\0\x08"],
    ids=bytes.hex,
)
def test_what_ends_too_early_is_malformed(data):
    assert read(PushNotificationRequest, data, most_fields=1) is Failure.INNER_MALFORMED


def test_a_number_without_an_end_costs_nothing():
    """10 bytes of a number are looked at; read to its end it would take minutes."""
    assert read(PushNotificationRequest, b"\x80" * 10_000_000) is Failure.INNER_MALFORMED
    assert read(PushNotificationRequest, b"\x0a" + b"\xff" * 10_000_000) is Failure.INNER_MALFORMED


# Each kind of message.


def asking(items):
    return EMPTY_ITEM * items + b"\x12\x01i"


def test_of_too_many_items_only_the_first_are_read():
    answered = request.parse_request(PushNotificationRequest(requests=[{"type": 1}] * 9, message_id=b"i")
                                     .SerializeToString(), most_items=3)  # fmt: skip
    assert (answered.message_id, len(answered.items), answered.too_many) == (b"i", 3, True)
    assert request.parse_request(asking(8 * 200), most_items=200).too_many
    assert failure_of(request.parse_request, asking(10 * 200), most_items=200) is Failure.REQUEST_LIMIT


def test_unknown_fields_are_no_way_around():
    noise = UNKNOWN * 20_000
    assert failure_of(request.parse_request, noise + asking(1), most_items=200) is Failure.REQUEST_LIMIT
    assert failure_of(query.parse_query, noise, most_keys=1000) is Failure.QUERY_LIMIT
    assert failure_of(application.unwrap, noise) is Failure.METADATA_MALFORMED
    assert segments.parse(noise) is None
    for depth in (1, 90):
        nested = (b"\x7b" * depth + b"\x7c" * depth) * 20_000
        assert failure_of(query.parse_query, nested, most_keys=1000) is Failure.QUERY_LIMIT


def test_a_query_of_empty_keys_is_too_many():
    assert failure_of(query.parse_query, EMPTY_KEY * 1001, most_keys=1000) is Failure.QUERY_LIMIT
    assert failure_of(query.parse_query, EMPTY_KEY * 1_000_000, most_keys=1000) is Failure.QUERY_LIMIT


def test_registration_is_measured_before_parsing():
    message = PushNotificationRegistration(version=1, muted_chat_list=[b""] * 1000)
    opened = partial(
        registration.open_registration,
        registration.seal_registration(message, CLIENT, SERVER.public_key),
        SERVER,
        CLIENT.public_key,
    )
    assert opened(most_bytes=message.ByteSize()) == message
    assert failure_of(opened, most_bytes=message.ByteSize() - 1) is Failure.REGISTRATION_TOO_LARGE


#: 7.8 MB, as much as a message in segments may have, of the shortest fields.
HOSTILE = {
    "items": (request.parse_request, {"most_items": 200}, EMPTY_ITEM),
    "items and unknown fields": (request.parse_request, {"most_items": 200}, EMPTY_ITEM + UNKNOWN),
    "keys": (query.parse_query, {"most_keys": 1000}, EMPTY_KEY),
    "metadata": (lambda data: application.read(payload.Payload(data, None)), {}, UNKNOWN),
    "groups": (lambda data: application.read(payload.Payload(data, None)), {}, GROUP),
    "registration": (
        lambda data: registration.open_registration(
            registration.seal(CLIENT.shared_key(SERVER.public_key), data),
            SERVER,
            CLIENT.public_key,
            most_bytes=PLAINTEXT_BYTES,
        ),
        {},
        b"\x3a\x00",
    ),
}
MESSAGE_BYTES = 7_800_000
MEASURE = """
import sys
sys.path[:0] = [{folder!r}]
from test_wire import HOSTILE, MESSAGE_BYTES, Refused
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
work, limits, field = HOSTILE[{name!r}]
data = field * (MESSAGE_BYTES // len(field))
before = peak()
try:
    work(data, **limits)
    print("read")
except Refused as refused:
    print(refused.failure.label)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize("name", HOSTILE)
def test_message_memory_is_bounded_before_parsing(name):
    """However it is made, reading it takes less than four times its bytes: 7.8 MB of empty items took 400 MB."""
    code = MEASURE.format(folder=__file__.rpartition("/")[0], name=name)
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    outcome, grown = process.stdout.split()
    assert outcome != "read"
    assert int(grown) < 4 * MESSAGE_BYTES
