"""Which queries are handled at once, and their limits: the bytes of answers, for each user and for all together."""

from collections.abc import Iterator, Sequence
from typing import Final

from wakupush.model.entries import Entry
from wakupush.model.limits import ANSWERS, MINUTE, USER_ANSWERS, USER_QUERIES, Limit, Verdicts
from wakupush.model.registrations import AnswerSizes
from wakupush.runtime.settings import Settings
from wakupush.server.engine.kind import Context
from wakupush.server.engine.message import Message
from wakupush.server.query.read import OpenedQuery

#: Bytes of the devices of users that one answer tells of, at most: it is sent in segments of 150 kB.
ANSWER_BYTES: Final = 4_000_000
#: Bytes that an answer tells of a user, up to which it is not counted for the user.
SMALL_BYTES: Final = 10_000
#: Queries about a user a minute that are handled at once; chance decides beyond.
EXPRESS_QUERIES: Final = 120
#: Answers about a user a minute that chance lets through whatever their size.
USER_FLOOR: Final = 5


def express(messages: Sequence[Message], sizes: AnswerSizes, _: Context) -> set[bytes]:
    """Return the queries for a user with a device that a push once reached, and those that nobody answers."""
    return {
        message.entry.hash
        for message in messages
        if isinstance(query := message.content, OpenedQuery)
        and (not sizes.proven.isdisjoint(query.key_hashes) or sizes.bytes_by_user.keys().isdisjoint(query.key_hashes))
    }


def exceeds(messages: Sequence[Message], sizes: AnswerSizes, verdicts: Verdicts) -> set[bytes]:
    """Return the queries of which all users with a device that a push once reached are asked for too often."""
    return {
        message.entry.hash
        for message in messages
        if isinstance(query := message.content, OpenedQuery)
        and verdicts.hold_back_all(USER_QUERIES, message.entry.hash, _proven(query, sizes))
    }


def _proven(query: OpenedQuery, sizes: AnswerSizes) -> list[int]:
    return [position for position, key_hash in enumerate(query.key_hashes) if key_hash in sizes.proven]


def charge(messages: Sequence[Message], sizes: AnswerSizes, context: Context) -> Iterator[Limit]:
    """Yield the limits of queries, each with the bytes that leave for its answer; what is too large costs nothing.

    A user is charged only for what the limit of all answers lets through. How often a user is asked for decides nothing
    but who waits.
    """
    limits = context.settings.limits
    for message in messages:
        query = message.content
        if not isinstance(query, OpenedQuery) or is_too_large(query, sizes):
            continue
        if context.divides:
            for position in _proven(query, sizes):
                user = context.identity.pseudonym(query.key_hashes[position]).hex()
                yield Limit(USER_QUERIES, EXPRESS_QUERIES, MINUTE, message.entry.hash, position, user)
        if size := answer_size(query, sizes):
            times = _times_published(size, context.settings)
            most, envelope = limits.answer_bytes_per_minute, message.entry.hash
            answer = Limit(ANSWERS, most, MINUTE, envelope, cost=times * size)
            yield answer
            for position, key_hash in enumerate(query.key_hashes):
                if (user_size := sizes.bytes_by_user.get(key_hash, 0)) > SMALL_BYTES:
                    yield Limit(
                        USER_ANSWERS,
                        limits.answer_bytes_per_user_per_minute,
                        MINUTE,
                        envelope,
                        position,
                        context.identity.pseudonym(key_hash).hex(),
                        times * user_size,
                        USER_FLOOR,
                        after=answer,
                    )


def is_allowed(entry: Entry, query: OpenedQuery, verdicts: Verdicts) -> bool:
    """Return whether all limits of a query let it through."""
    return verdicts.allow(ANSWERS, entry.hash) and all(
        verdicts.allow(USER_ANSWERS, entry.hash, position) for position in range(len(query.key_hashes))
    )


def answer_size(query: OpenedQuery, sizes: AnswerSizes) -> int:
    """Return the bytes that the answer to a query tells of all its users."""
    return sum(sizes.bytes_by_user.get(key_hash, 0) for key_hash in query.key_hashes)


def _times_published(size: int, settings: Settings) -> int:
    """Return how often an answer leaves: twice if it may be of one part, see `WorkerSettings.repeat_answers_after`."""
    return 2 if settings.worker.repeat_answers_after and size < settings.waku.max_message_bytes else 1


def is_too_large(query: OpenedQuery, sizes: AnswerSizes) -> bool:
    """Return whether the answer to a query tells of more than one answer may."""
    return answer_size(query, sizes) > ANSWER_BYTES
