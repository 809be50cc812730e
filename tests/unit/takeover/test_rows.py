"""Rows of the reference's tables as strangers, other versions or accidents may have left them."""

import json
import sqlite3
from contextlib import closing
from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from wakupush.devnet import messages
from wakupush.model.registrations import Registration
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.registration import Limits
from wakupush.takeover import rows, source
from wakupush.takeover.schema import CREATE, REGISTRATIONS, REQUESTS

SERVER, CLIENT = PrivateKey.generate(), PrivateKey.generate()
IDENTITY = Identity.of(SERVER)
LIMITS = Limits(list_items=5, text_bytes=100, registration_bytes=2_000)
INSTALLATION = "5a6baa5b-87a5-6d24-7b15-18303ea8c3d9"
SECRET = "the-device-token"

value = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=80),
    st.binary(max_size=3000),
    st.sampled_from([INSTALLATION, INSTALLATION.upper(), f"urn:uuid:{INSTALLATION}", f"{{{INSTALLATION}}}"]),
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "token_type": st.integers(0, 5),
        "device_token": st.text(max_size=150),
        "access_token": st.text(max_size=20).map(lambda text: SECRET + text),
        "grant": st.binary(max_size=70),
        "apn_topic": st.text(max_size=120),
        "installation_id": st.text(max_size=40),
        "version": st.integers(0, 2**63 - 1),
        "unregister": st.booleans(),
        "enabled": st.booleans(),
        "allow_from_contacts_only": st.booleans(),
        "muted_chat_list": st.lists(st.binary(max_size=200), max_size=7),
        "allowed_key_list": st.lists(st.binary(max_size=200), max_size=7),
    },
)


def reference(registrations=(), requests=()):
    connection = sqlite3.connect(":memory:")
    connection.executescript(CREATE.replace(" NOT NULL", ""))
    connection.executemany(f"INSERT INTO {REGISTRATIONS} VALUES (?, ?, ?, ?)", registrations)
    connection.executemany(f"INSERT INTO {REQUESTS} VALUES (?)", [(each,) for each in requests])
    connection.text_factory = bytes
    return connection


def read_all(registrations, most_installations=50):
    with closing(reference(registrations)) as connection:
        return [
            rows.read(row, IDENTITY, LIMITS)
            for batch in source.rows(connection, most_bytes=2_000, most_installations=most_installations)
            for row in batch
        ]


def registered(**changed):
    content = messages.registration(CLIENT, SERVER.public_key, installation_id=INSTALLATION, device_token=SECRET)
    for name, each in changed.items():
        if isinstance(each, list):
            getattr(content, name).extend(each)
        else:
            setattr(content, name, each)
    return content


@given(st.lists(st.tuples(value, value, value, value), max_size=6))
def test_of_any_row_comes_a_change_or_a_reason(strange):
    good = (CLIENT.public_key.key_hash, INSTALLATION, 1, registered().SerializeToString())
    readings = read_all([*strange, good])
    for reading in readings:
        assert reading.change is not None or [each.taken for each in reading.reports] == [False]
        for report in reading.reports:
            assert report.installation_id is None or len(report.installation_id) in {32, 36, 38, 45}
    assert isinstance(readings[-1].change.registration, Registration)
    assert not readings[-1].reports


@given(fields)
def test_any_registration_yields_a_change_or_a_reason(changed):
    content = registered(**changed)
    row = CLIENT.public_key.key_hash, content.installation_id, content.version, content.SerializeToString()
    [reading] = read_all([row])
    text = json.dumps([asdict(report) for report in reading.reports])
    assert SECRET not in text
    if reading.change is None:
        assert not reading.reports[0].taken
        return
    registration = reading.change.registration
    assert (registration.installation_id, registration.version) == (content.installation_id, content.version)
    assert registration.device_token == content.device_token
    assert registration.muted_chat_list == tuple(content.muted_chat_list)
    # What a platform is given is never more than it could be given before.
    assert "\0" not in registration.device_token
    assert not set(registration.apn_topic) & set("\r\n\0")


@given(st.lists(value, unique_by=repr))
def test_of_any_request_comes_an_id_or_nothing(requests):
    with closing(reference(requests=requests)) as connection:
        batches = list(source.requests(connection))
    assert {len(each) for ids, _ in batches for each in ids} <= {16, 32}
    # A value that is there already is refused by SQLite itself, before it is a row.
    assert sum(len(ids) + refused for ids, refused in batches) == len(requests)


def test_many_batches_and_large_rows(monkeypatch):
    monkeypatch.setattr(source, "BATCH_BYTES", 3_000)
    content = registered(device_token="x" * 90, muted_chat_list=[b"y" * 128] * 5)
    many = [
        (CLIENT.public_key.key_hash, INSTALLATION[:-4] + f"{number:04}", 1, content.SerializeToString())
        for number in range(50)
    ]
    assert len(read_all(many)) == 50
    huge = PushNotificationRegistration(device_token="x" * 5_000).SerializeToString()
    [reading] = read_all([(CLIENT.public_key.key_hash, INSTALLATION, 1, huge)])
    assert reading.reports[0].reason == "registration_too_large"


def test_rows_of_one_user_cost_what_rows_of_many_do():
    """Of a user with many unregistered installations each row was looked at for each other."""
    many = [(CLIENT.public_key.key_hash, f"{INSTALLATION[:-4]}{number:04}", 1, None) for number in range(4_000)]
    steps = []
    with closing(reference(many)) as connection:
        connection.set_progress_handler(lambda: steps.append(None), 1_000)
        assert sum(map(len, source.rows(connection, most_bytes=2_000, most_installations=50))) == 4_000
    assert len(steps) * 1_000 < 200 * 4_000


def test_only_what_a_user_has_too_many_of_is_told():
    other = PrivateKey.generate().public_key.key_hash
    many = []
    for number in range(5):
        content = registered(installation_id=f"{INSTALLATION[:-4]}{number:04}")
        users = (CLIENT.public_key.key_hash, other)[: 2 if number < 3 else 1]
        many += [(user, content.installation_id, content.version, content.SerializeToString()) for user in users]
        many.append((CLIENT.public_key.key_hash, f"{INSTALLATION[:-4]}1{number:03}", 1, None))
    reports = [report for reading in read_all(many, most_installations=3) for report in reading.reports]
    assert [(each.key_hash, each.installation_id[-4:], each.reason) for each in reports] == [
        (CLIENT.public_key.key_hash.hex(), "0003", "installation_limit"),
        (CLIENT.public_key.key_hash.hex(), "0004", "installation_limit"),
    ]


def test_no_value_shows_a_registration():
    row = CLIENT.public_key.key_hash, INSTALLATION, 1, registered().SerializeToString()
    with closing(reference([row])) as connection:
        [[reference_row]] = source.rows(connection, most_bytes=2_000, most_installations=50)
    assert SECRET not in repr(reference_row)
    assert SECRET not in repr(rows.read(reference_row, IDENTITY, LIMITS))
