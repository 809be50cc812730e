"""A newer release took away what this code needs: every process that reaches Postgres says so and ends."""

import time
from contextlib import suppress

import httpx2
import pytest

from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.model.entries import Entry
from wakupush.model.queues import QUEUES
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres.migrations import runner
from wakupush.protocol.hashing import message_hash
from wakupush.redis.celery_app import celery_app
from wakupush.redis.sending import send_entries
from wakupush.runtime.settings import RedisSettings, Settings

TAKEN = f"{runner.newest() + 1:04}_post_taken"


@pytest.fixture
def outdated(start_stack):
    """A server that ran when it came, whose connections are all made anew, and whose pools have something to do."""
    stack = start_stack()
    with stack.connect() as connection:
        connection.execute("INSERT INTO schema_migrations (name, checksum) VALUES (%s, '')", [TAKEN])
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
    app = celery_app(Settings(redis=RedisSettings(url=stack.redis_url)))
    message = WakuMessage(payload=b"junk", content_topic="/waku/1/0x00000000/rfc26", timestamp=time.time_ns())
    for queue in QUEUES.values():
        send_entries(app, queue, [Entry(SHARDS[0], message_hash(SHARDS[0], message), time.time(), message)])
    return stack


def test_whoever_works_on_the_database_ends(outdated):
    # Nobody has called the webhook: it reaches Postgres when its probe asks.
    with suppress(httpx2.HTTPError):  # it may end before it answers
        httpx2.get(outdated.feedback_url.replace("/feedback", "/readyz"))
    parts = [outdated.feedback, outdated.beat, outdated.reconcile, *outdated.workers.values()]
    wait_until(lambda: not any(part.running for part in parts), timeout=120, what="all end")
    for part in parts:
        log = part.log.read_text()
        assert "outdated_code" in log, part.name
        assert f"migration {TAKEN} was applied" in log, part.name
    assert outdated.ingest.running, "it reaches no Postgres"
