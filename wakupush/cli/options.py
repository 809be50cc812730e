"""Options that several commands have, and what they mean."""

from enum import StrEnum
from typing import Annotated

import typer

from wakupush.model.platforms import Platform
from wakupush.model.queues import POOLS, QUEUES
from wakupush.runtime.durations import MOST_DAYS, parse_duration
from wakupush.runtime.usage import UsageError

#: A kind's queue.
QueueName = StrEnum("QueueName", [(name, name) for name in QUEUES])  # type: ignore[misc]  # mypy: literals alone
PoolName = StrEnum("PoolName", [(name, name) for name in POOLS])  # type: ignore[misc]  # mypy: literals alone


class PlatformName(StrEnum):
    """Where a device is reached."""

    IOS = "ios"
    ANDROID = "android"


class NotificationKind(StrEnum):
    """The kind of a notification, by the labels of `NotificationType`."""

    MESSAGE = "message"
    MENTION = "mention"
    JOIN_REQUEST = "join_request"
    CONTACT_REQUEST = "contact_request"


AppOption = Annotated[str | None, typer.Option("--app", help="Only of this app; default: of all apps.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def platform_of(name: PlatformName) -> Platform:
    """Return the platform of an option."""
    return next(platform for platform in Platform if platform.label == name)


def duration(text: str, option: str) -> float:
    """Return the seconds of an option.

    Raises:
        UsageError: it is not a duration.
    """
    try:
        return parse_duration(text)
    except ValueError:
        raise UsageError(
            f"{option} is a number and a unit, such as 45s, 90m, 2h or 3d, up to {MOST_DAYS} days"
        ) from None
