"""Dead letters: which failures end a delivery as one, sending them again, and what is known of their devices."""

from collections.abc import Callable
from functools import partial
from typing import Any

from psycopg import Connection

from wakupush.model.dead_letters import DeadLetter, Position, Selection
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


def device_facts(connection: Connection, letter: DeadLetter) -> dict[str, Any]:
    """Return what is known of the device of a dead letter, by name; nothing of it is secret."""
    device = dead_letters.device(connection, letter.delivery_key)
    if device is None:
        return {"device": "unknown"}
    if not device.registered:
        return {"device": "unregistered"}
    died = device.token_died_at
    return {
        "device": "its token is dead" if died else "registered",
        "token_died_at": died and died.isoformat(timespec="seconds"),
        "suspicions": device.suspicions,
        "registered_anew_since": None if device.unchanged is None else not device.unchanged,
    }
