"""What holds for messages of every kind, on a real Postgres, Redis and node."""

from dataclasses import replace

import psycopg
import pytest

from support.served import request, rewrapped
from wakupush.devnet import messages
from wakupush.model.queues import DISPATCH, QUEUES, REGISTRATION
from wakupush.protocol import application, payload


def test_twins_in_a_batch_get_the_same_answer(server, client):
    content = server.register(client, device_token="dead-phone")
    message = request(client, server, content)
    server.handle(DISPATCH, message, rewrapped(message, server))
    assert server.outcomes(client) == [["NOT_REGISTERED"], ["NOT_REGISTERED"]]
    assert len(server.pushes()) == 1
    failures = [failure for failure, _ in server.events("answered")]
    assert failures[-2:] == ["token_unregistered", "token_unregistered"]


@pytest.mark.parametrize("queue", QUEUES.values(), ids=lambda queue: queue.name)
def test_an_outage_is_not_the_messages_fault(open_server, client, queue):
    server = open_server(postgres={"dsn": "postgresql://127.0.0.1:1/x", "timeout": 0.2})
    with pytest.raises(psycopg.OperationalError):
        server.handle(queue, messages.query(client, bytes(64)))
    with pytest.raises(psycopg.OperationalError):
        server.handle(queue, messages.query(client, bytes(64)), alone=True)


def test_garbage_on_our_topics_is_silence(server, client):
    own = messages.register(client, server.key, messages.registration(client, server.key))
    unsigned = application.ApplicationMetadataMessage(payload=b"x", type=16).SerializeToString()
    payloads = [
        b"",
        b"\x04" * 200,
        own.payload[:-1],
        payload.seal_asymmetric(b"", server.key),
        payload.seal_asymmetric(b"\xff" * 99, server.key),
        payload.seal_asymmetric(unsigned, server.key),
        payload.seal_asymmetric(application.wrap(4711, b"x", client), server.key),
        payload.seal_asymmetric(application.wrap(16, b"x", client), server.key),
        payload.seal_asymmetric(application.wrap(17, b"x", client), server.key),
    ]
    server.handle(REGISTRATION, *(replace(own, payload=each) for each in payloads))
    server.handle(DISPATCH, *(replace(own, payload=each, timestamp=1) for each in payloads))
    assert server.answers(client) == []
    assert server.rows("SELECT count(*) FROM ledger WHERE message_timestamp > 1") == [(len(payloads),)]
    assert server.context.redis.llen(REGISTRATION.name) == 1  # the one that says it is a registration
