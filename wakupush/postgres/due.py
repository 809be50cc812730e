"""Deliveries that beat is to enqueue."""

from psycopg import Connection

from wakupush.model.deliveries import Due
from wakupush.model.failures import BY_LABEL, Failure
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.postgres.named_sql import load, value

_SQL = load("due")


def app_platforms(connection: Connection) -> list[AppPlatform]:
    """Return the apps and platforms that have due deliveries, also apps that are not in the settings any more."""
    return [AppPlatform(app, Platform(platform)) for app, platform in connection.execute(_SQL["app_platforms"])]


def expired(connection: Connection, most: int) -> int:
    """Return how many pending deliveries are past their time to live; it counts up to `most`."""
    return int(value(connection, _SQL["expired"], {"most": most}))


def claim(connection: Connection, app_platform: AppPlatform, *, limit: int, seconds: float) -> list[Due]:
    """Return at most `limit` due deliveries of an app and platform.

    Half of them at most are those whose lease has ended. Half of the rest were put back before their first attempt, the
    newest first; the others are those whose time came first. What one half leaves, the last one gets.

    For `seconds` no other claim returns them. A worker that takes them by then counts the attempt. If none does,
    because the task was lost or still waits in its queue, a later call returns them again.
    """
    rows = connection.execute(
        _SQL["claim"],
        {
            "app": app_platform.app,
            "platform": app_platform.platform,
            "limit": limit,
            "seconds": seconds,
            "lease_lost": Failure.LEASE_LOST.label,
        },
    ).fetchall()
    return [
        Due(
            delivery_key=delivery_key,
            app_platform=app_platform,
            begun=attempt,
            failure=BY_LABEL.get(failure),
            task_id=task_id,
        )
        for delivery_key, attempt, failure, task_id in rows
    ]


def claim_feedback(connection: Connection, *, limit: int, seconds: float) -> list[bytes]:
    """Return the keys of deliveries that are stored as delivered, but whose failure the webhook reported.

    For `seconds` no other claim returns them; later calls return them again, unless a worker has applied the failure.
    """
    rows = connection.execute(_SQL["claim_feedback"], {"limit": limit, "seconds": seconds})
    return [delivery_key for (delivery_key,) in rows]
