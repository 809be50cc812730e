"""Jobs about queries: the keys of their topics, those that wait, and the topics that ingest looks for."""

import os
import time
from dataclasses import replace
from typing import Final

import structlog

from wakupush.model.queues import QUERY, QUEUES
from wakupush.postgres import ledger, query_topics, waiting_queries
from wakupush.postgres.query_topics import QueryTopic
from wakupush.protocol import topics
from wakupush.redis import watched
from wakupush.redis.sending import in_tasks, send_entries
from wakupush.runtime import metrics
from wakupush.server.beat.beat import Beat

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Topics that one run looks at; the next run chooses again by chance.
TOPICS_MOST: Final = 8
#: Users of one run who were not asked for. A user who is asked for meanwhile waits for that many.
AHEAD_MOST: Final = 4
#: Queries that one run enqueues at most.
TAKEN_MOST: Final = 64
#: Seconds for which a query waits; clients use what comes within an hour.
EXPIRY_SECONDS: Final = 3600.0
#: Queries that wait, for the key of their topic or for their turn; beyond that chance decides which to drop.
QUERIES: Final = 10_000
#: Bytes of these queries; most have 400.
QUERY_BYTES: Final = 64_000_000
#: Topics are filled in from this many seconds before they were last seen complete. The longest transaction has 90 s;
#: the rest is for replication and clocks.
MARGIN_SECONDS: Final = 600.0


def derive_keys(beat: Beat) -> int:
    """Derive some keys, and rest in between; return how many.

    First come topics on which queries wait; then, while the workers have nothing to do, those of users who were not
    asked for yet. Chance decides which. This needs no secret: a topic's name is the hash of its user's key.
    """
    with beat.pool.connection() as connection:
        content_topics = waiting_queries.topics(connection, TOPICS_MOST)
    if content_topics:
        return sum(_derive_topic(beat, content_topic) for content_topic in content_topics)
    with beat.pool.connection() as connection:
        users = query_topics.underived(connection, os.urandom(64), AHEAD_MOST)
    if not users or any(beat.redis.llen(name) for name in QUEUES):
        return 0
    return sum(_derive(beat, user) for user in users)


def _derive_topic(beat: Beat, content_topic: str) -> int:
    """Derive the keys of a topic, which several users can share, and wake the queries that wait for them."""
    topic = topics.topic_of(content_topic)
    with beat.pool.connection() as connection:
        users = query_topics.candidates(connection, [topic]).get(topic, []) if topic else []
    count = sum(_derive(beat, user) for user in users if user.symmetric_key is None)
    with beat.pool.connection() as connection:
        waiting_queries.wake(connection, content_topic)
    return count


def _derive(beat: Beat, user: QueryTopic) -> int:
    start = time.thread_time()
    key = topics.symmetric_key(topics.query_topic(user.key_hash, prefixed=user.prefixed))
    spent = time.thread_time() - start
    with beat.pool.connection() as connection:
        query_topics.set_key(connection, user, key)
    metrics.KEYS_DERIVED.inc()
    time.sleep(spent / beat.settings.worker.key_derivation_share - spent)
    return 1


def enqueue_waiting(beat: Beat) -> int:
    """Enqueue queries whose time has come, as if they had just arrived; return how many.

    A worker that is faster than this commit waits for it, as it claims what is taken out of the ledger here.
    """
    with beat.pool.connection() as connection:
        due = waiting_queries.take(connection, TAKEN_MOST)
        if due:
            ledger.remove(connection, due)
            for task in in_tasks(replace(entry, deferred=True) for entry in due):
                send_entries(beat.app, QUERY, task, waits_since=beat.now())
    return len(due)


def trim_waiting(beat: Beat) -> int:
    """Delete queries that waited too long, and random ones if there are too many; return how many."""
    with beat.pool.connection() as connection:
        expired = waiting_queries.expire(connection, EXPIRY_SECONDS)
        full = waiting_queries.trim(connection, rows=QUERIES, bytes=QUERY_BYTES)
        for_key, for_turn = waiting_queries.count(connection)
    metrics.QUERIES_DROPPED.labels("expired").inc(expired)
    metrics.QUERIES_DROPPED.labels("full").inc(full)
    metrics.QUERIES_WAITING.labels("key").set(for_key)
    metrics.QUERIES_WAITING.labels("turn").set(for_turn)
    return expired + full


def fill_watched_topics(beat: Beat) -> bool:
    """Fill in the watched topics from Postgres if they are not complete; return whether they were not."""
    now = beat.now()
    is_complete = watched.is_complete(beat.redis)
    if is_complete:
        watched.note_seen(beat.redis, now)
    else:
        _fill(beat)
    return not is_complete


def _fill(beat: Beat) -> None:
    beginning = watched.lacks_since(beat.redis)
    since = None if beginning is None else beginning - MARGIN_SECONDS
    mark = watched.begin_filling(beat.redis)
    # Registrations that added their topics to a Redis that was wiped since are waited for, so that they are read here.
    with beat.pool.connection() as connection:
        query_topics.wait_for_additions(connection)
    count = 0
    with beat.pool.connection() as connection:
        for topics_added in query_topics.every_topic(connection, since=since):
            watched.add(beat.redis, topics_added)
            count += len(topics_added)
    watched.mark_complete(beat.redis, mark)
    log.info("watched_topics_filled", topics=count, since=since)
