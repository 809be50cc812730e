"""``wakupush shadow compare``: estimates from outside how often the other server answers.

An answer is sealed to the client that asked, so it cannot be distinguished from other messages on the same topic. But
its topic and its size are known here. So messages of that size on that topic are looked for in a Store twice: right
after the question, and in a control window of the same length a minute before, when the question had not been asked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from wakupush.postgres import shadow
from wakupush.waku.store_codec import Query

if TYPE_CHECKING:
    from psycopg import Connection

    from wakupush.model.shadow import Expected
    from wakupush.waku.store import Store

#: Seconds after a question within which an answer comes.
WINDOW_SECONDS: Final = 10.0
#: Seconds before it at which the control window begins.
CONTROL_SECONDS: Final = 60.0
#: Questions that are looked at, drawn at random; each takes two queries of the Store.
MOST: Final = 200


@dataclass(frozen=True, slots=True)
class Rate:
    """How many questions of one kind, with answers of one size, were followed by a message of that size."""

    queue: str
    bytes: int
    questions: int
    #: In how many windows after the questions, and in how many control windows, there was such a message.
    followed: int
    control: int


def rates(connection: Connection, store: Store, now: float) -> list[Rate]:
    """Return the rates of some questions of the last minutes.

    Args:
        connection: to the database.
        store: where messages are looked for.
        now: seconds since the epoch.

    Raises:
        NodeError: the Store did not answer.
    """
    questions: Counter[tuple[str, int]] = Counter()
    followed: Counter[tuple[str, int]] = Counter()
    control: Counter[tuple[str, int]] = Counter()
    for expected in shadow.sample(connection, now - WINDOW_SECONDS, MOST):
        kind = expected.queue, expected.bytes
        questions[kind] += 1
        followed[kind] += _is_there(store, expected, expected.seen)
        control[kind] += _is_there(store, expected, expected.seen - CONTROL_SECONDS)
    return [Rate(*kind, questions[kind], followed[kind], control[kind]) for kind in sorted(questions)]


def _is_there(store: Store, expected: Expected, begins: float) -> bool:
    """Return whether a Store has a message of the expected size in the window that begins at this time."""
    query = Query(
        pubsub_topic=expected.pubsub_topic,
        content_topics=(expected.content_topic,),
        start=int(begins * 1e9),
        end=int((begins + WINDOW_SECONDS) * 1e9),
    )
    return any(
        stored.message is not None and len(stored.message.payload) == expected.bytes
        for page in store.walk(query, with_messages=True)
        for stored in page.found
    )
