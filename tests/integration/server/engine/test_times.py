"""What service levels are made of: how long answers and notifications took, whoever finished them."""

import time

import pytest
from prometheus_client import REGISTRY

from support.served import request
from wakupush.devnet import messages
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.protocol.keys import PrivateKey
from wakupush.server.beat.answers import publish_overdue
from wakupush.server.engine.outbox import Outbox

ANSWERS = "wakupush_answer_seconds"
DELIVERIES = "wakupush_delivery_seconds"


class Watched:
    """What a histogram took since the last look."""

    def __init__(self, name, **labels):
        self.name, self.labels = name, labels
        self.last = self._now()

    def _now(self):
        return [REGISTRY.get_sample_value(f"{self.name}_{part}", self.labels) or 0.0 for part in ("count", "sum")]

    def new(self):
        """Return the number of new values, and their sum."""
        before, self.last = self.last, self._now()
        return tuple(now - then for now, then in zip(self.last, before, strict=True))


def test_answers_count_from_when_ingest_saw_the_message(server, client):
    registrations, queries = Watched(ANSWERS, queue="registration"), Watched(ANSWERS, queue="query")
    server.register(client)
    count, seconds = registrations.new()
    assert count == 1
    assert 0 < seconds < 30
    query = messages.query(PrivateKey.generate(), client.public_key.key_hash)
    server.handle(QUERY, query, seen=time.time() - 100)
    assert queries.new() == (1, pytest.approx(115, abs=15))


def test_an_answer_that_beat_publishes_counts_with_its_age(server, client, monkeypatch):
    by_worker, by_beat = Watched(ANSWERS, queue="registration"), Watched(ANSWERS, queue="")
    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "publish", lambda *_: None)
        content = messages.registration(client, server.key)
        server.handle(REGISTRATION, messages.register(client, server.key, content))
    server.rows("UPDATE answers SET publish_at = now(), created_at = now() - interval '100 s' RETURNING 1")
    assert publish_overdue(server.context) == 1
    assert by_worker.new() == (0, 0)
    assert by_beat.new() == (1, pytest.approx(115, abs=15))


def test_a_dropped_answer_counts_as_late(server):
    by_beat = Watched(ANSWERS, queue="")
    server.rows(
        "INSERT INTO answers (pubsub_topic, content_topic, payload, trace_id, created_at, publish_at)"
        " VALUES ('s', 't', '', 't', now() - interval '1 h', now()) RETURNING 1"
    )
    publish_overdue(server.context)
    assert by_beat.new() == (1, 600)


def test_an_expired_request_counts_as_a_late_answer(server, client):
    requests, deliveries = Watched(ANSWERS, queue="dispatch"), Watched(DELIVERIES, app="", platform="android")
    message = request(client, server, server.register(client))
    server.handle(DISPATCH, message, seen=time.time() - 3600)
    assert server.events("expired") == [("request_expired", None)]
    assert requests.new() == (1, pytest.approx(3615, abs=15))
    assert deliveries.new() == (0, 0)


def test_pushes_count_from_when_ingest_saw_the_request(server, client):
    deliveries = {platform: Watched(DELIVERIES, app="", platform=platform) for platform in ("ios", "android")}
    message = request(client, server, server.register(client))
    server.handle(DISPATCH, message, seen=time.time() - 100)
    assert len(server.pushes()) == 1
    counts = {platform: watched.new() for platform, watched in deliveries.items()}
    [(count, seconds)] = [new for new in counts.values() if new[0]]
    assert (count, seconds) == (1, pytest.approx(115, abs=15))


def test_an_answer_that_became_untrue_counts_once(server, client):
    """The worker replaces it, and publishes what is true."""
    content = server.register(client, device_token="dead")
    requests = Watched(ANSWERS, queue="dispatch")
    server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["NOT_REGISTERED"]]
    assert requests.new()[0] == 1
