"""The smaller parts of the client: storage, mailbox, advertiser, what a push is about, pacing."""

import json
import os
import uuid
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import profiles
from wakupush.client.config import Config
from wakupush.client.documents import UnreadableError
from wakupush.client.drivers.light import FILTER_PAUSE, FILTER_REQUESTS, Pacer
from wakupush.client.drivers.storage import (
    ACQUAINTANCE,
    ADVERTISING,
    REGISTRATION,
    SEEN,
    SETTINGS,
    Advertising,
    ClientSettings,
    SeenMessage,
    SqliteFile,
)
from wakupush.client.drivers.transport import Listeners
from wakupush.client.rules.accounts import Account
from wakupush.client.rules.acquaintances import Acquaintance, Way
from wakupush.client.rules.advertising import SETTLE_SECONDS, Advertiser, advertisement
from wakupush.client.rules.backoff import Backoff
from wakupush.client.rules.mailbox import MOST_KEPT, Mailbox, open_advertisement
from wakupush.client.rules.receiving import parse, receive, seal_message
from wakupush.client.rules.registering import Device, Enrolment, RegistrarState
from wakupush.model.platforms import TokenType
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import envelopes, topics
from wakupush.protocol.advertisement import parse_advertisement
from wakupush.protocol.application import Type
from wakupush.protocol.hashing import shake256_64
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.notification import PROFILES
from wakupush.protocol.query import Info

ME, EVE = PrivateKey.generate(), PrivateKey.generate()


# --- storage ---


def test_what_is_put_survives_and_is_the_owners_alone(tmp_path):
    path = tmp_path / "state"
    settings = ClientSettings(installation_id="i", push_key=b"secret", sending=True)
    with SqliteFile(path) as file:
        file.account("a").put(SETTINGS, "", ClientSettings())
        file.account("a").put(SETTINGS, "", settings)
        assert file.account("b").get(SETTINGS, "") is None
    assert path.stat().st_mode & 0o077 == 0
    with SqliteFile(path) as file:
        assert file.account("a").get(SETTINGS, "") == settings
    assert b"secret" not in repr(settings).encode()


def test_two_processes_may_use_a_file(tmp_path):
    with SqliteFile(tmp_path / "state") as one, SqliteFile(tmp_path / "state") as other:
        one.account("a").put(SEEN, "1", SeenMessage())
        other.account("a").put(SEEN, "2", SeenMessage())
        assert None not in {file.account("a").get(SEEN, name) for file in (one, other) for name in ("1", "2")}


def test_what_is_old_is_forgotten():
    with SqliteFile(":memory:") as file:
        storage = file.account("a")
        storage.put(SEEN, "1", SeenMessage())
        storage.forget(SEEN, 1.0)
        assert storage.get(SEEN, "1") == SeenMessage()
        storage.forget(SEEN, 1e12)
        assert storage.get(SEEN, "1") is None


def test_unreadable_document_hides_its_content(tmp_path):
    with SqliteFile(tmp_path / "state") as file:
        storage = file.account("a")
        storage.put(SETTINGS, "", ClientSettings())
        file.run("UPDATE documents SET value = ?", json.dumps({"push_key": "no hex but a secret"}))
        with pytest.raises(UnreadableError, match="settings") as caught:
            storage.get(SETTINGS, "")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def objects(value):
    """Return every object in a JSON value."""
    match value:
        case dict():
            return [value, *(descendant for each in value.values() for descendant in objects(each))]
        case list():
            return [descendant for each in value for descendant in objects(each)]
    return []


DEVICE = Device(token_type=TokenType.FIREBASE, device_token="t")
WAY = Way(installation_id="i", server=ME.public_key, access_token="t", version=1, learned_at=1.0)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (SETTINGS, ClientSettings()),
        (REGISTRATION, RegistrarState(device=DEVICE, enrolments=(Enrolment(server=ME.public_key),))),
        (ADVERTISING, Advertising()),
        (ACQUAINTANCE, Acquaintance(user=ME.public_key, ways=(WAY,))),
        (SEEN, SeenMessage()),
    ],
)
def test_fields_of_later_versions_are_refused(kind, value):
    count = len(objects(json.loads(kind.dump(value))))
    for number in range(count):
        later = json.loads(kind.dump(value))
        place = objects(later)[number]
        place["a later version's"] = 0.0
        is_free = kind is ACQUAINTANCE and place is later["activity"]  # its names are installations
        if not is_free:
            with pytest.raises(UnreadableError):
                kind.load(json.dumps(later))
    assert kind.load(kind.dump(value)) == value


# --- mailbox ---


def seal(inner, *, sender=EVE, most_bytes=envelopes.MOST_MESSAGE_BYTES):
    return envelopes.to_key(
        sender, ME.public_key, Type.PUSH_NOTIFICATION_RESPONSE, inner, timestamp=1, most_bytes=most_bytes
    )


def test_messages_come_out_as_they_went_in():
    [message] = seal(b"hello")
    opened = Mailbox(ME).take(message)
    assert (opened.inner, opened.signer, opened.type) == (b"hello", EVE.public_key, Type.PUSH_NOTIFICATION_RESPONSE)
    assert message.content_topic == topics.content_topic(topics.partitioned_topic(ME.public_key))
    assert Mailbox(EVE).take(message) is None


@pytest.mark.parametrize("version", [0, 1])
def test_messages_of_either_version_are_read(version):
    """A Status app sends 1 up to 2.37, and 0 from 2.40 on; the payload is the same."""
    [message] = seal(b"hello")
    assert Mailbox(ME).take(replace(message, version=version)).inner == b"hello"
    listed = advertisement(ME, [info("phone")], topic_key=bytes(32), timestamp=1)
    assert open_advertisement(replace(listed, version=version), bytes(32)) == open_advertisement(listed, bytes(32))


def test_segments_join_in_any_order_of_one_sender():
    inner = os.urandom(5000)
    box, parts = Mailbox(ME, 100), seal(inner, most_bytes=2000)
    foreign = seal(inner, most_bytes=2000, sender=PrivateKey.generate())
    assert len(parts) > 3
    Random(1).shuffle(parts)
    results = [box.take(part) for part in (foreign[0], *parts[:-1], parts[0])]
    assert set(results) == {None}
    assert box.take(parts[-1]).inner == inner


def test_segments_that_are_never_complete_are_bounded():
    box = Mailbox(ME, 100)
    for _ in range(MOST_KEPT):
        for part in seal(os.urandom(3000), most_bytes=2000)[:2]:
            assert box.take(part) is None
    assert sum(map(len, box._parts.values())) <= MOST_KEPT


def test_unexpected_segments_are_not_stored():
    box = Mailbox(ME)
    assert [box.take(part) for part in seal(os.urandom(1500), most_bytes=2000)] == [None, None]
    assert not box._parts


@given(st.binary(max_size=300))
def test_what_strangers_send_is_nothing(data):
    assert Mailbox(ME).take(WakuMessage(payload=data, content_topic="")) is None


# --- advertising ---


def info(installation):
    return Info(key_hash=bytes(64), installation_id=installation, version=1, access_token="t", grant=b"g")


def test_advertises_on_change_then_periodically():
    advertiser = Advertiser(100)
    assert advertiser.due([info("me")], 1e9) is None
    advertiser.advertise_soon(10)
    assert advertiser.due([info("me")], 10) is None
    assert advertiser.due([info("me")], 10 + SETTLE_SECONDS) == [info("me")]
    assert advertiser.due([info("me")], 110) is None
    assert advertiser.due([info("me")], 111) == [info("me")]


def test_advertises_when_the_clock_is_set_back():
    advertiser = Advertiser(100)
    advertiser.next_at = 1000.0
    assert advertiser.due([info("me")], 950) is None
    assert advertiser.due([info("me")], 500) == [info("me")]


def test_unregistration_is_advertised_once():
    advertiser = Advertiser(100)
    advertiser.advertise_soon(0)
    assert advertiser.due([], 1) == []
    assert advertiser.next_at is None


def test_installations_are_handed_on_while_heard_of():
    advertiser = Advertiser(100)
    advertiser.learn([info("tablet"), info("desktop")], "me", 0)
    advertiser.learn([info("me"), info("stale")], "me", 0)  # our own, as it comes back
    advertiser.advertise_soon(0)
    assert advertiser.due([info("me")], 1) == [info("me"), info("tablet")]
    advertiser.advertise_soon(300)
    assert advertiser.due([info("me")], 301) == [info("me")]


def test_an_unregistered_installation_is_not_handed_on():
    phone, tablet = Advertiser(100), Advertiser(100)
    phone.learn([info("tablet")], "phone", 0)
    tablet.learn([info("phone")], "tablet", 0)
    phone.advertise_soon(1)
    infos = phone.due([], 2)
    assert infos == []
    tablet.learn(infos, "tablet", 2)
    tablet.advertise_soon(3)
    assert tablet.due([info("tablet")], 4) == [info("tablet")]


@pytest.mark.parametrize("contacts", [1, 3000])
def test_lists_that_do_not_fit_are_left_out(contacts):
    sealed = tuple(os.urandom(64) for _ in range(contacts))
    listed = replace(info("phone"), access_token="", allowed_key_list=sealed)
    message = advertisement(ME, [listed] * 2, topic_key=bytes(32), timestamp=1)
    assert len(message.payload) < envelopes.MOST_MESSAGE_BYTES
    infos = parse_advertisement(open_advertisement(message, bytes(32)).inner)
    assert [each.allowed_key_list for each in infos] == [sealed if contacts == 1 else ()] * 2
    assert {each.grant for each in infos} == {b"g"}


# --- what a push is about ---


def data(profile, account, message=b"", chat="chat"):
    return parse(
        profiles.data(
            profile,
            key_hash=account.push_key.public_key.key_hash,
            installation_id=account.installation_id,
            chat_id=shake256_64(chat.encode()),
            message=message,
        )
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_yields_account_chat_and_message(profile):
    accounts = [Account.of(PrivateKey.generate(), str(uuid.uuid4())) for _ in range(3)]
    message, message_id = seal_message(EVE, accounts[1].key.public_key, 1, b"hello")
    message_ids = set()
    received = receive(data(profile, accounts[1], message), accounts, ["other", "chat"], message_ids.__contains__)
    assert (received.account, received.chat_id, received.repeated) == (accounts[1], "chat", False)
    assert (received.message.inner, received.message.signer) == (b"hello", EVE.public_key)
    assert received.message.message_id == message_id
    message_ids.add(message_id)
    assert receive(data(profile, accounts[1], message), accounts, [], message_ids.__contains__).repeated


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("message", [b"", b"not for us", seal_message(EVE, EVE.public_key, 1, b"x")[0]])
def test_what_cannot_be_opened_is_to_be_fetched(profile, message):
    account = Account.of(ME, str(uuid.uuid4()))
    received = receive(data(profile, account, message, chat="unknown"), [account], ["chat"], lambda _: True)
    assert (received.message, received.chat_id, received.repeated) == (None, None, False)


def test_a_push_for_somebody_else_is_none():
    account, other = (Account.of(PrivateKey.generate(), str(uuid.uuid4())) for _ in range(2))
    assert receive(data("both", other), [account], [], lambda _: False) is None


def test_an_anonymous_account_is_found_by_its_push_key():
    account = Account.of(ME, str(uuid.uuid4()), PrivateKey.generate())
    assert account.is_anonymous
    message, _ = seal_message(EVE, ME.public_key, 1, b"hello")
    assert receive(data("status", account, message), [account], [], lambda _: False).message.inner == b"hello"


JSON = st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)


@given(st.dictionaries(st.sampled_from(["chat_id", "chatId", "message", "publicKey", "installation_ids"]), JSON))
def test_any_data_can_be_parsed(values):
    account = Account.of(ME, str(uuid.uuid4()))
    assert receive(parse(values), [account], [], lambda _: False) is None


# --- pacing ---


def test_filter_requests_are_spread():
    pacer, now, times = Pacer(FILTER_PAUSE, FILTER_REQUESTS), 1000.0, []
    for _ in range(100):
        now += pacer.wait(now)
        times.append(now)
    assert all(later - earlier >= FILTER_PAUSE - 1e-6 for earlier, later in pairwise(times))
    assert all(later - first >= 60 - 1e-6 for first, later in zip(times, times[FILTER_REQUESTS:], strict=False))
    assert Pacer(FILTER_PAUSE, FILTER_REQUESTS).wait(5.0) == 0


def test_waits_double_up_to_the_most():
    waits = [Backoff(first=2, most=20).wait(attempt, Random(1)) for attempt in range(1, 8)]
    bounds = [2, 4, 8, 16, 20, 20, 20]
    assert all(bound <= wait <= 1.2 * bound for bound, wait in zip(bounds, waits, strict=True))


def test_failing_listener_spares_the_others():
    listeners, got = Listeners(), []
    message = WakuMessage(payload=b"", content_topic="t")
    with listeners.listening("t", lambda _: 1 / 0):
        with listeners.listening("t", got.append):
            listeners.deliver([message, WakuMessage(payload=b"", content_topic="other")])
        assert got == [message]
        assert "t" in listeners.receivers


def test_fewer_than_three_devices_are_refused():
    with pytest.raises(ValueError, match="at least 3"):
        Config(most_devices=2)
