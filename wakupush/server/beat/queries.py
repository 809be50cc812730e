"""Jobs about queries: the keys of their topics, those that wait, and the topics that ingest looks for."""

import random
import time
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Final

import structlog

from wakupush.model.queues import QUERY
from wakupush.postgres import ledger, query_topics, waiting_queries
from wakupush.postgres.query_topics import QueryTopic
from wakupush.protocol import topics
from wakupush.redis import watched
from wakupush.redis.sending import in_tasks, send_entries
from wakupush.runtime import metrics
from wakupush.server.beat.beat import Beat

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Keys of new users that one run derives at most, and as many of topics on which queries wait.
KEYS_MOST: Final = 2
#: Seconds since a user registered, up to which ages are told apart.
OLDEST_SECONDS: Final = 1e7
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

    Users who registered last take turns with topics on which queries wait: anybody can let junk wait on all topics.
    This needs no secret: a topic's name is the hash of its user's key.
    """
    age = OLDEST_SECONDS ** random.random()
    with beat.pool.connection() as connection:
        newest = query_topics.underived(connection, KEYS_MOST)
        awaited = waiting_queries.awaited(connection, age, KEYS_MOST)
    turns = filter(None, chain.from_iterable(zip_longest(newest, awaited)))
    count = sum(_derive(beat, user) for user in dict.fromkeys(turns))
    with beat.pool.connection() as connection:
        waiting_queries.wake(connection)
    return count


def _derive(beat: Beat, user: QueryTopic) -> int:
    start = time.thread_time()
    key = topics.symmetric_key(topics.query_topic(user.key_hash, prefixed=user.prefixed))
    spent = time.thread_time() - start
    with beat.pool.connection() as connection:
        query_topics.set_keys(connection, {user.key_hash: key}, prefixed=user.prefixed)
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
