"""Durations and times, as people write them in a command."""

import re
from datetime import UTC, datetime
from typing import Final

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
#: Days of the longest duration; all times in our code can go back that far.
MOST_DAYS: Final = 10_000


def parse_duration(text: str) -> float:
    """Return the seconds of a duration: a number and a unit, such as ``45s``, ``90m``, ``2h`` or ``3d``.

    Raises:
        ValueError: it is not a duration, or longer than `MOST_DAYS`.
    """
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else float("inf")
    if seconds > MOST_DAYS * _UNITS["d"]:
        raise ValueError("not a duration")
    return seconds


def parse_since(text: str, now: float) -> float:
    """Return the time, in seconds since the epoch, that a text means.

    Args:
        text: a duration before now, or a time in ISO 8601, in UTC unless it says otherwise.
        now: seconds since the epoch.

    Raises:
        ValueError: it is neither.
    """
    try:
        return now - parse_duration(text)
    except ValueError:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
