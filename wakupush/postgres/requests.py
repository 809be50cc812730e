"""Push requests: what is known of those that come, and what they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush.model.platforms import Platform
from wakupush.model.registrations import Installation, Preferences, Receiver, Target
from wakupush.postgres.named_sql import bytea_array, load

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from psycopg import Connection

    from wakupush.model.deliveries import Delivery
    from wakupush.model.notifications import NotificationType

_SQL = load("requests")
#: How much of an application message id is kept.
ID_BYTES = 16


def look_up(
    connection: Connection, message_ids: Collection[bytes], named: Mapping[Installation, Collection[bytes]]
) -> tuple[dict[bytes, list[bool]], dict[Installation, Receiver]]:
    """Return which requests were admitted before, and who is to be notified.

    Args:
        connection: to the database.
        message_ids: application message ids of requests, 32 bytes each.
        named: for each installation the chats and authors of whom it is to be known whether they are in its lists; the
            rest of a list, which can be long, stays where it is.

    Returns:
        For each id that was admitted which of its items succeeded; and the installations that are registered.
    """
    return admitted(connection, message_ids), receivers(connection, named)


def admitted(connection: Connection, message_ids: Collection[bytes]) -> dict[bytes, list[bool]]:
    """Return, for each of these application message ids (32 bytes) that was admitted, which items succeeded."""
    ids = {message_id[:ID_BYTES]: message_id for message_id in message_ids}
    rows = connection.execute(_SQL["admitted"], {"ids": list(ids)})
    return {ids[short]: [flag == "1" for flag in flags] for short, flags in rows}


def receivers(connection: Connection, named: Mapping[Installation, Collection[bytes]]) -> dict[Installation, Receiver]:
    """Return what is known of installations, as far as they are registered; see `look_up`."""
    wanted = {
        "key_hashes": [installation.key_hash for installation in named],
        "installation_hashes": [installation.installation_hash for installation in named],
        "named": [bytea_array(ids) for ids in named.values()],
    }
    return {Installation(*row[:2]): _receiver(*row[2:]) for row in connection.execute(_SQL["receivers"], wanted)}


def _receiver(*row: Any) -> Receiver:
    (
        token_type, access_token, enabled, token_died, block_mentions, blocked, muted, allowed_mentions,
        version, installation_id, device_token, apn_topic, suspected,
    ) = row  # fmt: skip
    platform = Platform(token_type)
    preferences = Preferences(
        access_token=access_token,
        enabled=enabled,
        token_died=token_died,
        block_mentions=block_mentions,
        blocked_chat_list=frozenset(blocked),
        muted_chat_list=frozenset(muted),
        allowed_mentions_chat_list=frozenset(allowed_mentions),
    )
    target = Target(
        version=int(version),
        installation_id=installation_id,
        platform=platform,
        device_token=device_token,
        apn_topic=apn_topic,
        suspected=suspected,
    )
    return Receiver(preferences, target)


def take_on(
    connection: Connection,
    deliveries: Sequence[Delivery],
    succeeded: Mapping[bytes, Sequence[bool]],
    *,
    lease: float,
    time_to_live: Mapping[NotificationType, float],
) -> set[bytes]:
    """Add deliveries under a lease, and remember the requests they came with.

    Args:
        connection: in a transaction.
        deliveries: for the caller to post once that is committed.
        succeeded: for each application message id (32 bytes), which items are reported as taken on.
        lease: seconds for which the deliveries are the caller's.
        time_to_live: seconds after which they expire, by the type of notification.

    Returns:
        The keys of the deliveries that are new, or had failed before.
    """
    if not deliveries and not succeeded:
        return set()
    added = connection.execute(
        _SQL["take_on"],
        {
            **_succeeded(succeeded),
            "delivery_key": [delivery.delivery_key for delivery in deliveries],
            "key_hash": [delivery.installation.key_hash for delivery in deliveries],
            "installation_hash": [delivery.installation.installation_hash for delivery in deliveries],
            "platform": [delivery.platform for delivery in deliveries],
            "notification_type": [delivery.notification_type for delivery in deliveries],
            "chat_id": [delivery.chat_id for delivery in deliveries],
            "message": [delivery.message for delivery in deliveries],
            "lease": [delivery.lease for delivery in deliveries],
            "seen": [delivery.seen for delivery in deliveries],
            "time_to_live": [time_to_live[delivery.notification_type] for delivery in deliveries],
            "task_id": [delivery.task_id for delivery in deliveries],
            "trace_id": [delivery.trace_id for delivery in deliveries],
            "seconds": lease,
        },
    )
    return {delivery_key for (delivery_key,) in added}


def admit(connection: Connection, succeeded: Mapping[bytes, Sequence[bool]]) -> None:
    """Remember anew which items of requests succeeded; the arguments are those of `take_on`."""
    if succeeded:
        connection.execute(_SQL["admit"], _succeeded(succeeded))


def _succeeded(succeeded: Mapping[bytes, Sequence[bool]]) -> dict[str, list[Any]]:
    return {
        "message_ids": [message_id[:ID_BYTES] for message_id in succeeded],
        "succeeded": ["".join("01"[item] for item in items) for items in succeeded.values()],
    }
