"""The server's keys: a key file, and what another key for clients leaves as it is."""

import dataclasses

import pytest

from support.deciding import IDENTITY
from wakupush.operate import identities
from wakupush.protocol import topics
from wakupush.protocol.identity import Identity, parse, to_text
from wakupush.protocol.keys import InvalidKeyError, PrivateKey

#: What another key changes.
CHANGING = {"private_key", "previous", "by_topic", "by_id", "root", "opened_key"}


def derived(identity):
    return {
        field.name: getattr(identity, field.name)
        for field in dataclasses.fields(identity)
        if field.name not in CHANGING
    } | {"_derive": identity._derive("a purpose"), "at_rest": identity.at_rest._derive("a purpose")}


def secrets(identity):
    return [key.secret for key in (*identity.keys, identity.root)]


def test_rotation_and_retirement_leave_derived_keys():
    once = identities.rotate(IDENTITY)
    twice = identities.rotate(once)
    last = identities.retire(twice)
    assert derived(once) == derived(twice) == derived(last) == derived(IDENTITY)
    assert [key.public_key for key in twice.previous] == [once.public_key, IDENTITY.public_key]
    assert (last.public_key, last.previous) == (twice.public_key, ())
    assert derived(Identity.of(once.private_key)) != derived(IDENTITY)
    assert len({identity.opened_key for identity in (IDENTITY, once, twice)}) == 3
    assert last.opened_key == twice.opened_key


def test_a_key_file_is_read_as_it_was_written():
    assert to_text(IDENTITY) == IDENTITY.private_key.secret.hex() + "\n"
    identity = IDENTITY
    for change in (identities.rotate, identities.rotate, identities.retire, identities.rotate):
        copy = parse(to_text(identity))
        assert (secrets(copy), derived(copy)) == (secrets(identity), derived(identity))
        identity = change(identity)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ab" * 31,
        "zz" * 32,
        "00" * 32,
        f"{'01' * 32}\n{'02' * 32}",
        f"{'01' * 32}\nprevious",
        f"{'01' * 32}\nroot {'02' * 32}\nroot {'03' * 32}",
        f"previous {'01' * 32}",
    ],
)
def test_other_files_hold_no_key(text):
    with pytest.raises(InvalidKeyError) as refused:
        parse(text)
    assert not any(part in str(refused.value) for part in ("0101", "0202", "0303", "abab", "zz"))


def test_registrations_name_keys_but_the_root():
    identity = identities.rotate(IDENTITY)
    old, new = IDENTITY.public_key, identity.public_key
    assert identity.id_of(old) is None
    assert identity.id_of(new) == new.key_hash[:8]
    assert [identity.by_id.get(each) for each in (None, new.key_hash[:8], b"another.")] == [old, new, None]
    assert None not in identities.retire(identity).by_id
    assert identity.key_of(old).secret == IDENTITY.private_key.secret
    with pytest.raises(KeyError):
        identity.key_of(PrivateKey(b"\7" * 32).public_key)


def test_each_topic_has_the_keys_that_may_open_it():
    """Two keys of a server have a partitioned topic in common, now and then."""
    first = IDENTITY.private_key
    keys = (PrivateKey(number.to_bytes(32, "big")) for number in range(3, 50_000))
    same = next(key for key in keys if key.public_key.partition == first.public_key.partition)
    identity = Identity.of(same, previous=(first,), root=first)
    personal, partitioned = topics.server_content_topics(first.public_key)
    assert identity.by_topic[partitioned] == (same, first)
    assert identity.by_topic[personal] == (first,)
    assert len(identity.by_topic) == 3
