"""What is stored of devices, as who has the server's key reads and changes it."""

from wakupush.model.platforms import Platform, TokenType
from wakupush.model.registrations import Installation, Registration


def devices(connection, identity):
    """Return what is sealed of each registered device, by its installation."""
    rows = connection.execute(
        "SELECT key_hash, installation_hash, version, sealed_device FROM registrations WHERE registered"
    )
    return {
        Installation(key_hash, installation): identity.at_rest.open_device(
            Installation(key_hash, installation), int(version), sealed
        )
        for key_hash, installation, version, sealed in rows
    }


def reroute(connection, identity, device_token, *, platform=None):
    """Give all devices, or those of a platform, another device token, as if they had registered with it."""
    for installation, device in devices(connection, identity).items():
        version, token_type = connection.execute(
            "SELECT version, token_type FROM registrations WHERE key_hash = %s AND installation_hash = %s",
            [installation.key_hash, installation.installation_hash],
        ).fetchone()
        if platform not in (None, Platform(token_type)):
            continue
        registration = Registration(
            installation_id=device.installation_id,
            version=int(version),
            token_type=TokenType(token_type),
            device_token=device_token,
            access_token=device.access_token,
            grant=device.grant,
            enabled=True,
            apn_topic=device.apn_topic,
            allow_from_contacts_only=False,
            block_mentions=False,
            allowed_key_list=(),
            blocked_chat_list=(),
            muted_chat_list=(),
            allowed_mentions_chat_list=(),
        )
        connection.execute(
            "UPDATE registrations SET sealed_device = %s WHERE key_hash = %s AND installation_hash = %s",
            [
                identity.at_rest.seal_device(installation, registration),
                installation.key_hash,
                installation.installation_hash,
            ],
        )
