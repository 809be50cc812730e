"""Rows with secrets in the clear, written by code that did not seal yet: read as they are, and sealed step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from wakupush.model.platforms import Platform, TokenType
from wakupush.model.registrations import Installation, Preferences, QueriedDevice, Registration, Target
from wakupush.postgres.named_sql import columns, load
from wakupush.protocol.at_rest import KEYED_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection

    from psycopg import Connection

    from wakupush.model.registrations import Address
    from wakupush.protocol.at_rest import AtRest

_SQL = load("unsealed")
_LISTS = ("allowed_key_list", "blocked_chat_list", "muted_chat_list", "allowed_mentions_chat_list")


def registrations(connection: Connection, installations: Collection[Installation]) -> dict[Installation, Registration]:
    """Return those of these registrations that are in the clear."""
    values = {
        "key_hashes": [installation.key_hash for installation in installations],
        "installation_hashes": [installation.installation_hash for installation in installations],
    }
    with connection.cursor(row_factory=dict_row) as cursor:
        return dict(map(_registration, cursor.execute(_SQL["registrations"], values)))


def preferences(registration: Registration, address: Address | None, at_rest: AtRest) -> Preferences:
    """Return what the device of a row in the clear wants.

    Args:
        registration: its row.
        address: what a notification names, None if that was not kept; an empty access token fits.
        at_rest: makes digests of what the row has.
    """
    if address is None:
        return Preferences(token_fits=True, token_died=False, enabled=registration.enabled, mention_allowed=True)
    token = at_rest.access_token(address.installation, registration.access_token)
    blocked, muted, mentions = (
        {at_rest.named(address.installation, item) for item in items}
        for items in (
            registration.blocked_chat_list,
            registration.muted_chat_list,
            registration.allowed_mentions_chat_list,
        )
    )
    return Preferences(
        token_fits=address.access_token in (token, b""),
        token_died=False,
        enabled=registration.enabled,
        block_mentions=registration.block_mentions,
        author_blocked=address.author in blocked,
        chat_blocked=address.chat in blocked,
        chat_muted=address.chat in muted,
        mention_allowed=address.chat in mentions,
    )


def target(registration: Registration, *, suspected: bool = False, proven: bool = False) -> Target:
    """Return where notifications of a row in the clear are sent to."""
    return Target(
        version=registration.version,
        installation_id=registration.installation_id,
        platform=Platform(registration.token_type),
        device_token=registration.device_token,
        apn_topic=registration.apn_topic,
        suspected=suspected,
        proven=proven,
    )


def device(key_hash: bytes, registration: Registration) -> QueriedDevice:
    """Return what a query may reveal of a row in the clear."""
    return QueriedDevice(
        key_hash=key_hash,
        installation_id=registration.installation_id,
        version=registration.version,
        access_token=registration.access_token,
        grant=registration.grant,
        allow_from_contacts_only=registration.allow_from_contacts_only,
        allowed_key_list=registration.allowed_key_list if registration.allow_from_contacts_only else (),
    )


def are_left(connection: Connection) -> bool:
    """Say whether there are such rows."""
    row = connection.execute(_SQL["any"]).fetchone()
    return bool(row and row[0])


def seal(connection: Connection, at_rest: AtRest, most: int) -> int:
    """Seal some rows, at most so many of a table, and return how many.

    Args:
        connection: in a transaction of its own: the rows are locked.
        at_rest: the keys.
        most: rows; a registration can have a megabyte.
    """
    claimed = [Installation(*row) for row in connection.execute(_SQL["claim_registrations"], {"most": most})]
    if claimed:
        clear = registrations(connection, claimed)
        rows = [_sealed(each, clear.get(each), at_rest) for each in claimed]
        connection.execute(_SQL["seal_registrations"], columns(rows))
    contents = connection.execute(_SQL["claim_deliveries"], {"most": most}).fetchall()
    if contents:
        rows = [
            {"delivery_key": key, "sealed_content": at_rest.seal_content(key, chat_id or b"", message)}
            for key, chat_id, message in contents
        ]
        connection.execute(_SQL["seal_deliveries"], columns(rows))
    return len(claimed) + len(contents)


def _sealed(installation: Installation, registration: Registration | None, at_rest: AtRest) -> dict[str, bytes | None]:
    """Return the sealed columns of a row; those of an unregistered row are empty."""
    key = {"key_hash": installation.key_hash, "installation_hash": installation.installation_hash}
    if registration is None:
        return key | dict.fromkeys(KEYED_COLUMNS)
    return key | at_rest.columns(installation, registration)


def _registration(row: dict[str, Any]) -> tuple[Installation, Registration]:
    installation = Installation(row.pop("key_hash"), row.pop("installation_hash"))
    row |= {name: tuple(row[name]) for name in _LISTS}
    row |= {"version": int(row["version"]), "token_type": TokenType(row["token_type"])}
    return installation, Registration(**row)
