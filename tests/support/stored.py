"""What is stored of devices, as who has the server's key reads and changes it."""

from wakupush.model.platforms import Platform, TokenType
from wakupush.model.registrations import Installation, Registration

#: Columns that are compared as they are.
CLEAR = (
    "registered",
    "request_digest",
    "token_type",
    "enabled",
    "allow_from_contacts_only",
    "block_mentions",
    "access_token_digest",
    "blocked_chat_digests",
    "muted_chat_digests",
    "allowed_mentions_chat_digests",
)
ROWS = f"""SELECT key_hash, installation_hash, version, sealed_device, sealed_allowed_key_list, {", ".join(CLEAR)}
    FROM registrations ORDER BY 1, 2"""


def contents(connection, identity):
    """Return the content of each row by its installation: version, device, allowed_key_list, the other columns."""
    rows = {}
    for key_hash, installation_hash, version, device, allowed_keys, *others in connection.execute(ROWS):
        place = Installation(key_hash, installation_hash), int(version)
        rows[place[0]] = (
            int(version),
            device and identity.at_rest.open_device(*place, device),
            allowed_keys and identity.at_rest.open_allowed_key_list(*place, allowed_keys),
            dict(zip(CLEAR, others, strict=True)),
        )
    return rows


def devices(connection, identity):
    """Return what is sealed of each registered device, by its installation."""
    return {where: device for where, (_, device, *_) in contents(connection, identity).items() if device is not None}


def reroute(connection, identity, device_token, *, apn_topic=None, platform=None, where=lambda _: True):
    """Give devices another device token, as if they had registered with it.

    Args:
        connection: to the database.
        identity: the server's.
        device_token: the new one.
        apn_topic: the new topic, if that changes, too.
        platform: of these devices alone.
        where: says by its device token whether a device is one of them.
    """
    for installation, (version, device, _, columns) in contents(connection, identity).items():
        if device is None or platform not in {None, Platform(columns["token_type"])} or not where(device.device_token):
            continue
        registration = Registration(
            installation_id=device.installation_id,
            version=version,
            token_type=TokenType(columns["token_type"]),
            device_token=device_token,
            access_token=device.access_token,
            grant=device.grant,
            enabled=True,
            apn_topic=device.apn_topic if apn_topic is None else apn_topic,
            allow_from_contacts_only=False,
            block_mentions=False,
            allowed_key_list=(),
            blocked_chat_list=(),
            muted_chat_list=(),
            allowed_mentions_chat_list=(),
        )
        ciphertext = identity.at_rest.seal_device(installation, registration)
        connection.execute(
            "UPDATE registrations SET sealed_device = %s WHERE key_hash = %s AND installation_hash = %s",
            [ciphertext, installation.key_hash, installation.installation_hash],
        )
