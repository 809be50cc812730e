"""What strangers' messages leave in Postgres is in proportion to their bytes, and known before it is loaded."""

import os
import time
from functools import cache

import pytest

from support.served import request
from wakupush.devnet import messages
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import PushNotification, PushNotificationRequest
from wakupush.protocol import envelopes, payload, topics
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey

STRANGER = PrivateKey.generate()
MOST_STORED_BYTES = 4
MESSAGES = 150
#: Pages of tables and indexes are filled one after the other; what one has left is not the last message's.
PAGE_BYTES = 8192
#: Answers are deleted as soon as they have left, and their pages used again.
RELATIONS = """
    SELECT relname::text, pg_total_relation_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'answers'
"""


def on_our_topic(server, data):
    topic = topics.content_topic(topics.partitioned_topic(server.key))
    return WakuMessage(payload=data, content_topic=topic, version=1, timestamp=time.time_ns())


def junk(server):
    return on_our_topic(server, os.urandom(300))


def malformed(server):
    return on_our_topic(server, payload.seal_asymmetric(b"\xff", server.key))


def of_items(server, *items):
    inner = PushNotificationRequest(requests=items, message_id=os.urandom(16)).SerializeToString()
    [message] = envelopes.to_key(
        STRANGER, server.key, Type.PUSH_NOTIFICATION_REQUEST, inner, timestamp=time.time_ns()
    )  # fmt: skip
    return message


def to_nobody(server):
    return of_items(server, PushNotification(type=PushNotification.MESSAGE, public_key=os.urandom(64)))


def to_nobody_in_short(server):
    """200 items of four bytes each."""
    return of_items(server, *[PushNotification(type=PushNotification.MESSAGE)] * 200)


def refused_registration(server):
    return messages.register(STRANGER, server.key, messages.registration(STRANGER, server.key, version=0))


@cache
def disabled_device(server):
    return server.register(STRANGER, enabled=False)


def to_own_disabled_device(server):
    return of_items(server, messages.notification(STRANGER.public_key.key_hash, disabled_device(server)))


def relation_sizes(server):
    return dict(server.rows(RELATIONS))


@pytest.mark.parametrize(
    ("make", "queue"),
    [
        *((make, DISPATCH) for make in (junk, malformed, to_nobody, to_nobody_in_short, to_own_disabled_device)),
        (refused_registration, REGISTRATION),
    ],
)
def test_a_stranger_stores_less_than_four_bytes_a_byte(server, make, queue):
    """Each comes alone, which costs most. 200 short items left 40 bytes a byte."""
    for _ in range(10):
        server.handle(queue, make(server))
    before, sent_bytes = relation_sizes(server), 0
    for _ in range(MESSAGES):
        message = make(server)
        sent_bytes += len(message.payload) + len(message.content_topic)
        server.handle(queue, message)
    growth = {
        name: size - before.get(name, 0) for name, size in relation_sizes(server).items() if size != before.get(name)
    }
    slack = 2 * PAGE_BYTES * len(growth)  # an index and the table
    assert sum(growth.values()) - slack < MOST_STORED_BYTES * sent_bytes


def test_messages_that_are_not_for_us_are_counted_by_the_task(server, client):
    content = server.register(client)
    server.handle(DISPATCH, *[junk(server) for _ in range(20)], request(client, server, content))
    history = server.rows(
        "SELECT kind, count, trace_id IS NULL FROM delivery_history WHERE queue = 'dispatch'"
        " AND kind IN ('received', 'foreign') ORDER BY kind, count"
    )
    assert history == [("foreign", 20, True), ("received", 1, False), ("received", 20, True)]
    assert server.rows("SELECT count(*) FROM ledger") == [(22,)]
