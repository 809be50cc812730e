"""Dead letters: which failures end a delivery as one, and sending them again."""

from collections.abc import Callable
from functools import partial

from psycopg import Connection

from wakupush.model.dead_letters import Position, Selection
from wakupush.model.failures import BY_LABEL, Failure, Retry
from wakupush.postgres import dead_letters
from wakupush.runtime.settings import Settings
from wakupush.runtime.usage import UsageError
from wakupush.server.delivery.retry import times_to_live


def failure_of(label: str) -> Failure:
    """Return the failure with a label.

    Raises:
        UsageError: there is none, or it ends no delivery as a dead letter; the text lists those that do.
    """
    ends = {Failure.ATTEMPTS_EXHAUSTED, Failure.DELIVERY_EXPIRED}
    possible = sorted(label for label, failure in BY_LABEL.items() if failure in ends or failure.retry != Retry.NEVER)
    if label not in possible:
        what = "ends no delivery as a dead letter" if label in BY_LABEL else "is no failure"
        raise UsageError(f"--reason {label} {what}; there are {', '.join(possible)}")
    return BY_LABEL[label]


def retrying(
    settings: Settings, connection: Connection, selection: Selection
) -> Callable[[Position | None], list[Position]]:
    """Return a function that makes the next dead letters after a position due again, and returns their positions."""
    time_to_live = times_to_live(settings.delivery)
    return partial(dead_letters.retry, connection, selection, time_to_live=time_to_live)
