"""Pseudonyms in events, and their trace ids: keyed, and of a period."""

from support.deciding import IDENTITY
from wakupush.model.events import period_of
from wakupush.model.registrations import Installation
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey

OTHER = Identity.of(PrivateKey(b"\7" * 32))
HERE = Installation(b"k" * 64, b"i" * 16)


def names(identity, period):
    user, installation = identity.pseudonyms(HERE, period)
    assert identity.user_pseudonym(HERE.key_hash, period) == user
    return user, installation, identity.queried_pseudonym(HERE.key_hash, period)


def test_a_period_has_pseudonyms_of_its_own():
    sets = [{*names(identity, period)} for identity in (IDENTITY, OTHER) for period in (733, 734)]
    assert len(set().union(*sets)) == 4 * 3
    assert names(IDENTITY, 733) == names(IDENTITY, 733)
    # What counters are named by is in no event.
    assert not {IDENTITY.pseudonym(HERE.key_hash)} & set().union(*sets)


def test_periods_begin_at_midnight():
    day = 86_400.0
    assert [period_of(time, 28) for time in (0.0, 28 * day - 1, 28 * day, 57 * day)] == [0, 0, 1, 2]


def test_stored_events_have_keyed_trace_ids():
    trace_ids = {identity.event_trace_id(id_) for identity in (IDENTITY, OTHER) for id_ in ("0" * 16, "1" * 16)}
    assert len(trace_ids) == 4
    assert {len(bytes.fromhex(id_)) for id_ in trace_ids} == {8}
