"""The users who are registered when a flood comes, honest ones and the stranger's own."""

from __future__ import annotations

import secrets
import time
from typing import Any

from benchmarks import made
from benchmarks.attack.traffic import Message
from benchmarks.made import Made, User
from wakupush.devnet.demo import messages
from wakupush.protocol import envelopes
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.registration import seal_registration

#: Items of a full list.
FULL = 10_000
#: Bytes of each in a list of contacts: an answer holds four such lists.
CONTACT_BYTES = 90


def registered(server: bytes, client: PrivateKey, **fields: Any) -> tuple[Message, User]:
    """Return a registration, in segments where it is large, and who registers."""
    content = messages.registration(client, PublicKey(server), **fields)
    sealed = seal_registration(content, client, PublicKey(server))
    kind = Type.PUSH_NOTIFICATION_REGISTRATION
    parts = envelopes.to_key(client, PublicKey(server), kind, sealed, timestamp=time.time_ns())
    user = User(client.public_key.key_hash, content.installation_id, content.access_token)
    return tuple(map(Made.of, parts)), user


def ordinary(server: bytes, _: int) -> tuple[Message, User]:
    return registered(server, made.key(made.UNAWAITED))


def listed(server: bytes, _: int) -> tuple[Message, User]:
    lists = {"muted_chat_list": [secrets.token_bytes(64) for _ in range(FULL)]}
    return registered(server, made.key(made.UNAWAITED), **lists)


def heavy(client: bytes, server: bytes, _: int) -> tuple[Message, User]:
    contacts = [secrets.token_bytes(CONTACT_BYTES) for _ in range(FULL)]
    return registered(server, PrivateKey(client), allow_from_contacts_only=True, allowed_key_list=contacts)


def invented(server: bytes, _: int) -> tuple[Message, User]:
    return registered(server, made.key(made.UNAWAITED), device_token=f"bad-{secrets.token_hex(32)}")


def spoiled(server: bytes, number: int) -> tuple[Message, User]:
    """Return one device of twenty for which gorush refuses a whole post, with all that is in it."""
    scripts = ("malformed-", *[""] * 19)
    return registered(server, made.key(made.UNAWAITED), device_token=scripts[number % 20] + secrets.token_hex(32))
