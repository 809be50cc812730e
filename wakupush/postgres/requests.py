"""Push requests: what is known when one comes, and what is stored of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from psycopg import Connection

from wakupush.model.deliveries import Delivery
from wakupush.model.notifications import NotificationType
from wakupush.model.registrations import Address, Preferences, Receiver
from wakupush.postgres import packed_requests
from wakupush.postgres.named_sql import load
from wakupush.protocol.at_rest import REQUEST_ID_BYTES, AtRest

_SQL = load("requests")


def look_up(
    connection: Connection, requests: Mapping[bytes, Collection[Address | None]], at_rest: AtRest, *, keep: float
) -> tuple[dict[bytes, list[bool]], set[bytes], dict[Address, Receiver]]:
    """Return which requests came before, and who is to be notified.

    Args:
        connection: to the database.
        requests: what their notifications name, by their application message ids, 32 bytes each; None names no device.
        at_rest: opens what is sealed of a device.
        keep: seconds for which ids of requests had rows of their own, when older ones were packed. Packed ids are
            searched only if a device has had its access token for longer: a repeat has the access token of its time.

    Returns:
        For each id that was admitted which of its items succeeded; the ids that are over, for which nothing is pushed
        any more; and the devices that are registered.
    """
    before, over = admitted(connection, requests)
    wanted = {address for named in requests.values() for address in named if address is not None}
    found = receivers(connection, wanted, at_rest, keep=keep) if wanted else {}
    of_old = {address for address, receiver in found.items() if receiver.is_of_old}
    old = {
        message_id
        for message_id, named in requests.items()
        if message_id not in before and not of_old.isdisjoint(named)
    }
    return before, over | (packed_requests.find(connection, old, at_rest) if old else set()), found


def admitted(connection: Connection, message_ids: Collection[bytes]) -> tuple[dict[bytes, list[bool]], set[bytes]]:
    """Return which items succeeded, for each of these application message ids (32 bytes) that was admitted.

    The second value holds the ids of requests that expired in our queues.
    """
    ids = {message_id[:REQUEST_ID_BYTES]: message_id for message_id in message_ids}
    rows = connection.execute(_SQL["admitted"], {"ids": list(ids)}).fetchall()
    expired = {ids[short] for short, _, is_expired in rows if is_expired}
    return {ids[short]: [flag == "1" for flag in flags] for short, flags, is_expired in rows if not is_expired}, expired


def failed(connection: Connection, delivery_keys: Collection[bytes]) -> set[bytes]:
    """Return those of these deliveries that failed for good, expired or are dead letters, while their rows are kept."""
    rows = connection.execute(_SQL["failed"], {"delivery_keys": list(delivery_keys)})
    return {delivery_key for (delivery_key,) in rows}


def receivers(
    connection: Connection, addresses: Collection[Address], at_rest: AtRest, *, keep: float
) -> dict[Address, Receiver]:
    """Return the devices that these addresses name, as far as they are registered; see `look_up`."""
    wanted = list(addresses)
    values = {
        "keep": keep,
        "key_hashes": [address.installation.key_hash for address in wanted],
        "installation_hashes": [address.installation.installation_hash for address in wanted],
        "access_tokens": [address.access_token for address in wanted],
        "chats": [address.chat for address in wanted],
        "authors": [address.author for address in wanted],
    }
    rows = connection.execute(_SQL["receivers"], values)
    return {wanted[position - 1]: _receiver(at_rest, wanted[position - 1], *row) for position, *row in rows}


def _receiver(at_rest: AtRest, address: Address, *row: Any) -> Receiver:
    (
        token_died, token_fits, enabled, block_mentions, author_blocked, chat_blocked, chat_muted, mention_allowed,
        contacts_only, is_of_old, version, platform, device, suspected, proven,
    ) = row  # fmt: skip
    preferences = Preferences(
        token_fits=token_fits,
        token_died=token_died,
        enabled=enabled,
        block_mentions=block_mentions,
        author_blocked=bool(author_blocked),
        chat_blocked=bool(chat_blocked),
        chat_muted=bool(chat_muted),
        mention_allowed=bool(mention_allowed),
    )
    target = None
    if device is not None:
        target = at_rest.target(
            address.installation, int(version), device, platform, suspected=suspected, proven=proven
        )
    return Receiver(preferences, target, contacts_only, token_fits and is_of_old)


def take_on(
    connection: Connection,
    deliveries: Sequence[Delivery],
    succeeded: Mapping[bytes, Sequence[bool]],
    *,
    lease: float,
    time_to_live: Mapping[NotificationType, float],
    at_rest: AtRest,
) -> set[bytes]:
    """Add deliveries under a lease, and remember the requests they came with.

    Args:
        connection: in a transaction.
        deliveries: for the caller to post once that is committed.
        succeeded: for each application message id (32 bytes), which items are reported as taken on.
        lease: seconds for which the deliveries are the caller's.
        time_to_live: seconds after which they expire, by the type of notification.
        at_rest: seals what they say.

    Returns:
        The keys of the deliveries that are new, or had failed before.
    """
    if not deliveries and not succeeded:
        return set()
    addresses = [delivery.address for delivery in deliveries]
    added = connection.execute(
        _SQL["take_on"],
        {
            **_succeeded(succeeded),
            "delivery_key": [delivery.delivery_key for delivery in deliveries],
            "key_hash": [delivery.installation.key_hash for delivery in deliveries],
            "installation_hash": [delivery.installation.installation_hash for delivery in deliveries],
            "platform": [delivery.platform for delivery in deliveries],
            "notification_type": [delivery.notification_type for delivery in deliveries],
            "sealed_content": [
                at_rest.seal_content(delivery.delivery_key, delivery.chat_id, delivery.message)
                for delivery in deliveries
            ],
            "chat_digest": [address and address.chat for address in addresses],
            "author_digest": [address and address.author for address in addresses],
            "access_token_digest": [(address and address.access_token) or None for address in addresses],
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


def remember_expired(connection: Connection, message_ids: Collection[bytes]) -> None:
    """Remember requests that waited in our own queues until they were too old."""
    connection.execute(
        _SQL["remember_expired"], {"message_ids": [message_id[:REQUEST_ID_BYTES] for message_id in message_ids]}
    )


def _succeeded(succeeded: Mapping[bytes, Sequence[bool]]) -> dict[str, list[Any]]:
    return {
        "message_ids": [message_id[:REQUEST_ID_BYTES] for message_id in succeeded],
        "succeeded": ["".join("01"[item] for item in items) for items in succeeded.values()],
    }
