"""``wakupush shadow compare``: how often the other server answers, as far as that shows from outside.

An answer is sealed to who asked, so none can be told from what else goes to the same topic. But where and how large it
is to be is known here. So messages of that size on that topic are looked for in a Store twice: right after the
question, and in a control window of the same length a minute before, when nobody had asked.
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
#: Questions that are looked at, drawn by chance; each takes two queries of the Store.
MOST: Final = 200


@dataclass(frozen=True, slots=True)
class Rate:
    """How many questions of a kind, whose answers are of a size, were followed by a message of that size."""

    queue: str
    bytes: int
    questions: int
    #: Of the questions, and of the control windows.
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
    """Say whether a Store has a message of the size that is expected, of the window that begins then."""
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
