"""The keys of the query topics on which messages came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush.postgres import query_topics
from wakupush.protocol import topics
from wakupush.runtime import metrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wakupush.model.entries import Entry
    from wakupush.server.inbox.resources import InboxResources


def read(resources: InboxResources, entries: Iterable[Entry]) -> dict[bytes, list[bytes | None]]:
    """Return the keys (32 bytes each) of the topics (4 bytes each) of messages; None is one that is not derived yet.

    A bounded number of those that are missing is derived, and stored each in a transaction of its own: whatever
    becomes of the messages, that work is not done again.
    """
    own = topics.server_content_topics(resources.identity.public_key)
    asked = {
        topics.topic_of(entry.message.content_topic) for entry in entries if entry.message.content_topic not in own
    }
    asked.discard(None)
    if not asked:
        return {}
    with resources.pool.connection() as connection:
        candidates = query_topics.candidates(connection, [topic for topic in asked if topic])
    left = resources.settings.worker.key_derivations_per_task
    keys: dict[bytes, list[bytes | None]] = {}
    for topic, users in sorted(candidates.items()):
        for user in users:
            key = user.symmetric_key
            if key is None and left:
                key = topics.symmetric_key(topics.query_topics(user.key_hash)[user.prefixed])
                with resources.pool.connection() as connection:
                    query_topics.set_key(connection, user, key)
                metrics.KEYS_DERIVED.inc()
                left -= 1
            keys.setdefault(topic, []).append(key)
    return keys
