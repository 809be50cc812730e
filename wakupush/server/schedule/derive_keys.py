"""Deriving keys of query topics, with a bounded share of a core."""

from __future__ import annotations

import os
import time
from typing import Final

from wakupush.model.query_topics import QueryTopic
from wakupush.model.queues import QUEUES
from wakupush.postgres import query_topics, waiting_queries
from wakupush.protocol import topics
from wakupush.runtime import metrics
from wakupush.server.resources import Resources

#: Topics that one run looks at; the next run chooses again by chance.
TOGETHER: Final = 8
#: Users of one run who were not asked for. A user who is asked for meanwhile waits for that many.
AHEAD: Final = 4


def derive_keys(resources: Resources) -> int:
    """Derive some keys, and rest in between; return how many.

    First come topics on which queries wait; then, while the workers have nothing to do, those of users who were not
    asked for yet. Chance decides which. This needs no secret: a topic's name is the hash of its user's key.
    """
    with resources.pool.connection() as connection:
        asked = waiting_queries.topics(connection, TOGETHER)
    if asked:
        return sum(_of_topic(resources, topic) for topic in asked)
    with resources.pool.connection() as connection:
        users = query_topics.underived(connection, os.urandom(64), AHEAD)
    if not users or any(resources.redis.llen(name) for name in QUEUES):
        return 0
    return sum(_derive(resources, user) for user in users)


def _of_topic(resources: Resources, content_topic: str) -> int:
    """Derive the keys of a topic, which several users can share, and wake the queries that wait for them."""
    topic = topics.topic_of(content_topic)
    with resources.pool.connection() as connection:
        users = query_topics.candidates(connection, [topic]).get(topic, []) if topic else []
    derived = sum(_derive(resources, user) for user in users if user.symmetric_key is None)
    with resources.pool.connection() as connection:
        waiting_queries.wake(connection, content_topic)
    return derived


def _derive(resources: Resources, user: QueryTopic) -> int:
    begun = time.thread_time()
    key = topics.symmetric_key(topics.query_topics(user.key_hash)[user.prefixed])
    spent = time.thread_time() - begun
    with resources.pool.connection() as connection:
        query_topics.set_key(connection, user, key)
    metrics.KEYS_DERIVED.inc()
    time.sleep(spent / resources.settings.worker.key_derivation_share - spent)
    return 1
