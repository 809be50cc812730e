"""Answering queries for access tokens (71, Querying a Server)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush import metrics
from wakupush.events import EventKind
from wakupush.failures import Failure
from wakupush.protocol import query as rules
from wakupush.protocol import topics
from wakupush.protocol.application import Opened, Type
from wakupush.protocol.errors import Refused
from wakupush.queues import QUERY
from wakupush.server.limiter import TOPIC_QUERIES
from wakupush.server.opening import open_asymmetric, open_symmetric
from wakupush.state import query_topics, registrations

if TYPE_CHECKING:
    from psycopg import Connection

    from wakupush.queues import Entry
    from wakupush.server.batch import Batch
    from wakupush.server.opening import Content
    from wakupush.state.query_topics import Candidate


def handle(batch: Batch, connection: Connection, entries: list[Entry]) -> None:
    """Handle the queries of a batch; the caller commits.

    Messages whose topic's key would be derived beyond this task's share go to the end of the queue.
    """
    asked = []
    for entry, message in batch.admit(connection, _open(batch, connection, entries)):
        try:
            wanted = rules.parse_query(message.inner, most_keys=batch.context.settings.limits.query_keys)
        except Refused as refused:
            batch.record(entry, EventKind.REFUSED, failure=refused.failure)
            continue
        asked.append((entry, message, wanted))
    sizes = registrations.answer_bytes(connection, {key for _, _, wanted in asked for key in wanted})
    fitting = []
    for entry, message, wanted in asked:
        size = sum(sizes.get(key, 0) for key in wanted)
        if size > batch.context.settings.limits.answer_bytes:
            batch.record(entry, EventKind.REFUSED, failure=Failure.QUERY_LIMIT)
            continue
        batch.reserve(size)
        fitting.append((entry, message, wanted))
    answered = []
    for entry, message, wanted in fitting:  # now that the batch fits: one that is taken apart is counted anew
        if _may_ask(batch, entry):
            answered.append((entry, message, wanted))
        else:
            batch.record(entry, EventKind.REFUSED, failure=Failure.QUERY_RATE_LIMIT)
    known = registrations.devices(connection, {key for _, _, wanted in answered for key in wanted if key in sizes})
    for entry, message, wanted in answered:
        devices = [device for key in wanted for device in known.get(key, ())]
        try:
            inner = rules.encode_response(message.message_id, devices)
        except Refused as refused:
            batch.record(entry, EventKind.REFUSED, failure=refused.failure)
            continue
        # Of one user, as clients ask: who is asked for unusually often can be told by pseudonym.
        batch.record(entry, EventKind.QUERIED, key_hash=wanted[0] if len(wanted) == 1 else None)
        batch.answer(entry, message.signer, Type.PUSH_NOTIFICATION_QUERY_RESPONSE, inner)


def _may_ask(batch: Batch, entry: Entry) -> bool:
    """Count a query on the topic that it came on, and say whether it is within the limit."""
    most = batch.context.settings.limits.queries_per_topic_per_minute
    return batch.allows(entry, TOPIC_QUERIES, most, entry.message.content_topic)


def _open(batch: Batch, connection: Connection, entries: list[Entry]) -> list[tuple[Entry, Content]]:
    """Open the messages of query topics, and those that were passed on from the server's own topics."""
    identity = batch.context.identity
    own = topics.server_content_topics(identity.public_key)
    asymmetric = [entry for entry in entries if entry.message.content_topic in own]
    symmetric = {
        entry: topic
        for entry in entries
        if entry.message.content_topic not in own and (topic := topics.topic_of(entry.message.content_topic))
    }
    keys = _keys(batch, connection, query_topics.candidates(connection, set(symmetric.values())))
    opened = [(entry, open_asymmetric(entry, identity.private_key)) for entry in asymmetric]
    for entry, topic in symmetric.items():
        known = keys.get(topic, [])
        result = open_symmetric(entry, [key for key in known if key is not None])
        if result is Failure.NOT_FOR_US and None in known:
            batch.passed_on.append((QUERY, entry))
        else:
            opened.append((entry, _only_queries(result)))
    return opened


def _only_queries(content: Content) -> Content:
    """Refuse what only the server's own topics take: a query topic is no secret."""
    if isinstance(content, Opened) and content.type != Type.PUSH_NOTIFICATION_QUERY:
        return Failure.TYPE_UNSUPPORTED
    return content


def _keys(
    batch: Batch, connection: Connection, candidates: dict[bytes, list[Candidate]]
) -> dict[bytes, list[bytes | None]]:
    """Return the keys of topics, deriving a bounded number of those that are missing; None is one that still is."""
    left = batch.context.settings.worker.key_derivations_per_task
    keys: dict[bytes, list[bytes | None]] = {}
    for topic, users in sorted(candidates.items()):
        for user in users:
            key = user.symmetric_key
            if key is None and left:
                key = topics.symmetric_key(user.name)
                query_topics.set_key(connection, user, key)
                metrics.KEYS_DERIVED.inc()
                left -= 1
            keys.setdefault(topic, []).append(key)
    return keys
