"""What is learned of users: only what is granted, only what is newer, devices by their last activity."""

import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakupush.client.drivers.storage import ACQUAINTANCE
from wakupush.client.rules.acquaintances import (
    ABSENT_SECONDS,
    KEEP_SECONDS,
    MOST_INSTALLATIONS,
    MOST_SERVERS,
    Acquaintance,
)
from wakupush.client.rules.querying import MOST_USERS, TokenQuery, group
from wakupush.pb.push_notification_pb2 import PushNotificationQueryResponse
from wakupush.protocol.advertisement import parse_advertisement
from wakupush.protocol.application import Opened, Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.grants import grant
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.query import Info, encode_info
from wakupush.protocol.sealing import seal

USER, SERVER, OTHER_SERVER, ME, EVE = (PrivateKey.generate() for _ in range(5))
TOKEN, NEW_TOKEN, PHONE, TABLET, DESKTOP = (str(uuid.uuid4()) for _ in range(5))


def info(server=SERVER, token=TOKEN, installation=PHONE, version=1, user=USER, **fields):
    values = {
        "key_hash": user.public_key.key_hash,
        "installation_id": installation,
        "version": version,
        "access_token": token,
        "grant": grant(user, server.public_key, token),
        "server_key": server.public_key.compressed,
        **fields,
    }
    return Info(**values)


def learn(*infos, friend=None, server=None, now=0.0, asker=ME):
    friend = friend or Acquaintance(user=USER.public_key)
    return friend.learn(infos, asker=asker, server=server and server.public_key, now=now)


def tokens(friend, now=0.0):
    return [way.access_token for way in friend.usable(now)]


def test_learns_from_advertisements_and_answers():
    assert tokens(learn(info())) == [TOKEN]
    answered = learn(info(server_key=b""), server=SERVER)
    assert [way.server for way in answered.usable(0)] == [SERVER.public_key]


def test_only_contacts_open_a_sealed_token():
    sealed = (bytes(40), seal(USER.shared_key(ME.public_key), TOKEN.encode()))
    listed = info(access_token="", allowed_key_list=sealed)
    assert tokens(learn(listed)) == [TOKEN]
    assert tokens(learn(listed, asker=EVE)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        info(grant=b""),
        info(grant=grant(EVE, SERVER.public_key, TOKEN)),
        info(grant=grant(USER, OTHER_SERVER.public_key, TOKEN)),
        info(grant=grant(USER, SERVER.public_key, NEW_TOKEN)),
        info(key_hash=EVE.public_key.key_hash),
        info(user=EVE),
        info(server_key=b"no key"),
        info(installation=""),
        info(installation="[/]no uuid"),
        info(installation="\x1b[2J"),
        info(token="no uuid"),
        info(access_token="", allowed_key_list=(seal(USER.shared_key(ME.public_key), b"no uuid"),)),
    ],
)
def test_infos_without_grant_or_token_are_ignored(wrong):
    assert learn(wrong).ways == ()


def test_answer_without_a_grant_is_ignored():
    assert learn(info(), server=OTHER_SERVER).ways == ()


def test_the_newest_registration_counts_in_any_order():
    old, new = info(version=1), info(version=2, token=NEW_TOKEN)
    assert tokens(learn(old, new)) == tokens(learn(new, old)) == [NEW_TOKEN]


def test_old_advertisement_revives_no_wrong_token():
    friend = learn(info()).without_token(PHONE, SERVER.public_key, TOKEN)
    assert tokens(friend) == []
    assert friend.is_to_be_asked(0)
    assert tokens(learn(info(), friend=friend)) == []
    assert tokens(learn(info(), friend=friend, server=SERVER)) == [TOKEN]
    assert tokens(learn(info(version=2, token=NEW_TOKEN), friend=friend)) == [NEW_TOKEN]


def test_wrong_token_is_asked_for_beside_other_devices():
    friend = learn(info(installation=DESKTOP), friend=learn(info()))
    wrong = friend.without_token(PHONE, SERVER.public_key, TOKEN, is_wrong=True).with_asked_at(0)
    assert not wrong.is_to_be_asked(ABSENT_SECONDS - 1)
    assert wrong.is_to_be_asked(ABSENT_SECONDS), "nobody told the new token"
    assert not learn(info(token=NEW_TOKEN), friend=wrong, server=SERVER).is_to_be_asked(ABSENT_SECONDS)
    tokenless = friend.without_token(PHONE, SERVER.public_key, TOKEN).with_asked_at(0)
    assert not tokenless.is_to_be_asked(ABSENT_SECONDS)


def test_another_token_is_not_wrong():
    friend = learn(info())
    assert friend.without_token(PHONE, SERVER.public_key, NEW_TOKEN).ways == friend.ways
    assert friend.without_token(TABLET, SERVER.public_key, TOKEN).ways == friend.ways
    assert friend.without_token(PHONE, OTHER_SERVER.public_key, TOKEN).ways == friend.ways


def test_old_tokens_are_a_last_resort():
    friend = learn(info(), now=100)
    assert not friend.is_to_be_asked(100 + KEEP_SECONDS - 1)
    later = 100 + KEEP_SECONDS + 1
    assert friend.is_to_be_asked(later)
    assert friend.usable(later) == []
    assert list(friend.devices(later, most=3)) == [PHONE]


def test_a_clock_set_back_makes_knowledge_old():
    friend = learn(info(), now=10 * KEEP_SECONDS)
    assert friend.usable(0) == []
    assert friend.with_asked_at(10 * KEEP_SECONDS).is_to_be_asked(0)
    assert len(friend.usable(10 * KEEP_SECONDS - 1)) == 1


def test_silent_devices_are_notified_too():
    later = 2 * KEEP_SECONDS
    friend = learn(info(), now=0).with_asked_at(0)
    friend = learn(info(installation=DESKTOP), friend=friend, now=later).with_activity(DESKTOP, later)
    assert friend.is_to_be_asked(later)
    assert list(friend.devices(later, most=3)) == [DESKTOP, PHONE]
    # A server tells of the phone: for a day nobody is asked.
    acquaintance = learn(info(), friend=friend.with_asked_at(later), server=SERVER, now=later)
    assert not acquaintance.is_to_be_asked(later + KEEP_SECONDS - 1)
    # Nobody does: an hour later again.
    assert not friend.with_asked_at(later).is_to_be_asked(later + 1)
    assert friend.with_asked_at(later).is_to_be_asked(later + ABSENT_SECONDS)


def test_new_tokens_are_preferred():
    friend = learn(info(server=OTHER_SERVER), friend=learn(info(), now=0), now=2 * KEEP_SECONDS)
    [way] = friend.devices(2 * KEEP_SECONDS, most=3)[PHONE]
    assert way.server == OTHER_SERVER.public_key


def test_a_device_that_is_gone_is_not_notified():
    friend = learn(info(installation=DESKTOP), friend=learn(info())).without_token(PHONE, SERVER.public_key, TOKEN)
    assert list(friend.devices(0, most=3)) == [DESKTOP]
    assert not friend.is_to_be_asked(0)


def test_an_unknown_user_is_not_queried_again_at_once():
    friend = Acquaintance(user=USER.public_key).with_asked_at(100)
    assert not friend.is_to_be_asked(100 + ABSENT_SECONDS - 1)
    assert friend.is_to_be_asked(100 + ABSENT_SECONDS)


def test_devices_are_capped_by_last_activity():
    ids = [str(uuid.uuid4()) for _ in range(6)]
    friend = learn(*(info(installation=each) for each in ids))
    for number, at in ((4, 40.0), (2, 30.0), (0, 20.0), (1, 10.0)):
        friend = friend.with_activity(ids[number], at)
    friend = friend.with_activity(ids[2], 5.0)  # an old message says nothing new
    assert list(friend.devices(0, most=3)) == [ids[4], ids[2], ids[0]]
    assert list(friend.devices(0, most=3, only=(ids[1], ids[0]))) == [ids[0], ids[1]]
    assert friend.devices(0, most=3, only=()) == {}


def test_a_device_has_all_its_servers():
    friend = learn(info(), info(server=OTHER_SERVER))
    assert {way.server for way in friend.devices(0, most=3)[PHONE]} == {SERVER.public_key, OTHER_SERVER.public_key}


def test_what_strangers_send_is_bounded():
    infos = [info(installation=str(uuid.uuid4())) for _ in range(MOST_INSTALLATIONS + 30)]
    friend = learn(*infos)
    for number in range(100):
        friend = friend.with_activity(str(number), float(number))
    assert len({way.installation_id for way in friend.ways}) == MOST_INSTALLATIONS
    assert len(friend.activity) == MOST_INSTALLATIONS
    many = learn(*(info(server=PrivateKey.generate()) for _ in range(MOST_SERVERS + 5)))
    assert len(many.ways) == MOST_SERVERS


def test_it_is_kept_as_it_is_and_shows_no_token():
    friend = replace(learn(info()).with_activity(PHONE, 3.0).with_asked_at(5.0), push_key=EVE.public_key)
    assert ACQUAINTANCE.load(ACQUAINTANCE.dump(friend)) == friend
    assert TOKEN not in repr(friend)
    assert str(friend.push_key)[:14] not in repr(friend)


def test_users_of_one_server_are_queried_together():
    others = [PrivateKey.generate() for _ in range(3)]
    shared = [
        Acquaintance(user=each.public_key).learn([info(user=each)], asker=ME, server=None, now=0) for each in others
    ]
    strangers = [Acquaintance(user=PrivateKey.generate().public_key) for _ in range(2)]
    groups = group([*shared, *strangers])
    assert sorted(map(len, groups)) == [1, 1, 3]
    assert {each.public_key for each in others} in map(set, groups)
    assert group([]) == []
    crowd = [replace(shared[0], user=PrivateKey.generate().public_key) for _ in range(MOST_USERS + 1)]
    assert sorted(map(len, group(crowd))) == [1, MOST_USERS]


def response(message_id, *infos):
    return PushNotificationQueryResponse(info=map(encode_info, infos), message_id=message_id).SerializeToString()


def test_only_the_answer_to_the_very_query_is_read():
    query = TokenQuery([USER.public_key], PrivateKey.generate())
    kind = Type.PUSH_NOTIFICATION_QUERY_RESPONSE
    good = Opened(kind, response(query.message_id, info()), SERVER.public_key, b"")
    assert query.take_answer(good) == (info(),)
    assert query.take_answer(replace(good, inner=response(bytes(32), info()))) is None
    assert query.take_answer(replace(good, type=Type.PUSH_NOTIFICATION_RESPONSE)) is None
    assert query.take_answer(replace(good, inner=b"\xff")) is None


@given(st.binary(max_size=200))
def test_strangers_advertisements_are_read_or_refused(data):
    try:
        infos = parse_advertisement(data)
    except Refused:
        return
    assert learn(*infos).ways == ()
