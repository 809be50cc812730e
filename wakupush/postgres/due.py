"""Deliveries that beat is to enqueue."""

from psycopg import Connection

from wakupush.model.deliveries import Due
from wakupush.model.failures import BY_LABEL, Failure
from wakupush.model.platforms import Platform
from wakupush.postgres.named_sql import load

_SQL = load("due")


def platforms(connection: Connection) -> list[Platform]:
    """Return the platforms that have due deliveries."""
    return [Platform(name) for (name,) in connection.execute(_SQL["platforms"], {"platforms": list(Platform)})]


def claim(connection: Connection, platform: Platform, *, limit: int, seconds: float) -> list[Due]:
    """Return at most `limit` due deliveries of a platform.

    First come those whose lease has ended, then those whose time has come: first the ones put back before their first
    attempt, the newest first, then the others, the oldest first.

    For `seconds` no other claim returns them. A worker that takes them by then counts the attempt. If none does,
    because the task was lost or still waits in its queue, a later call returns them again.
    """
    rows = connection.execute(
        _SQL["claim"],
        {"platform": platform, "limit": limit, "seconds": seconds, "lease_lost": Failure.LEASE_LOST.label},
    ).fetchall()
    return [
        Due(
            delivery_key=delivery_key,
            platform=Platform(platform),
            begun=attempt,
            failure=BY_LABEL.get(failure),
            task_id=task_id,
        )
        for delivery_key, platform, attempt, failure, task_id in rows
    ]


def claim_feedback(connection: Connection, *, limit: int, seconds: float) -> list[bytes]:
    """Return the keys of deliveries that are stored as delivered, but whose failure the webhook reported.

    For `seconds` no other claim returns them; later calls return them again, unless a worker has applied the failure.
    """
    rows = connection.execute(_SQL["claim_feedback"], {"limit": limit, "seconds": seconds})
    return [delivery_key for (delivery_key,) in rows]
