"""What answers and repeats are charged to, and what is sent instead of notifications above their device's limit."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from wakupush.model.deliveries import Delivery
from wakupush.model.entries import Entry
from wakupush.model.limits import ANSWERS, MINUTE, REPEATS, USER_ANSWERS, Limit
from wakupush.model.notifications import NotificationType
from wakupush.protocol.identity import Identity
from wakupush.runtime.settings import LimitSettings

#: Answers to repeats of the same message a minute. They all go to the same client, which needs one.
REPEATS_PER_MINUTE: Final = 3


def shrunk(delivery: Delivery, charged: Limit, now: float) -> Delivery:
    """Return the one notification a minute, without content, that stands for all those beyond a device's limit.

    The first half of its key is the digest of the device. APNs collapses by it: the device shows one at a time.
    """
    device = bytes.fromhex(charged.key)
    minute = int(now // MINUTE).to_bytes(8, "big")
    return replace(
        delivery,
        delivery_key=device + blake2b(device + minute, digest_size=16).digest(),
        notification_type=NotificationType.MESSAGE,
        chat_id=b"",
        message=b"",
    )


def of_repeat(entry: Entry, message_id: bytes) -> Limit:
    """Return the limit of a push request that came before; `message_id` is that of the application message."""
    return Limit(REPEATS, REPEATS_PER_MINUTE, MINUTE, entry.hash, key=message_id.hex())


def of_query(
    entry: Entry,
    key_hashes: Iterable[bytes],
    sizes: Mapping[bytes, int],
    identity: Identity,
    limits: LimitSettings,
) -> tuple[Limit, ...]:
    """Return the limits that the answer to a query is charged to: one for each known user, and one for all together.

    Args:
        key_hashes: of the users that it asks for, each once.
        sizes: bytes of what is known, by key hash.
    """
    costs = [(key, sizes[key]) for key in key_hashes if sizes.get(key)]
    if not costs:
        return ()
    of_user = limits.answer_bytes_per_user_per_minute
    return (
        Limit(ANSWERS, limits.answer_bytes_per_minute, MINUTE, entry.hash, cost=sum(size for _, size in costs)),
        *(
            Limit(USER_ANSWERS, of_user, MINUTE, entry.hash, position, identity.pseudonym(key).hex(), size)
            for position, (key, size) in enumerate(costs)
        ),
    )
