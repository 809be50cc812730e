"""Opening the sealed columns of a registered device."""

from wakupush.model.registrations import RegistrationRow
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol.identity import Identity
from wakupush.protocol.sealing import UnsealableError
from wakupush.takeover.errors import TakeoverError

_OTHER_KEY = "the rows in Postgres are sealed by another server's key than this one's"


def device(row: RegistrationRow, identity: Identity) -> PushNotificationRegistration:
    """Return the sealed device of a registered row; see `wakupush.protocol.at_rest.AtRest.open_device`.

    Raises:
        TakeoverError: another server's key sealed it.
    """
    if row.sealed_device is None:
        raise AssertionError("a registered row has its device")
    try:
        return identity.at_rest.open_device(row.installation, row.version, row.sealed_device)
    except UnsealableError:
        raise TakeoverError(_OTHER_KEY) from None


def allowed_key_list(row: RegistrationRow, identity: Identity) -> tuple[bytes, ...]:
    """Return the list of a registered row.

    Raises:
        TakeoverError: another server's key sealed it.
    """
    if row.sealed_allowed_key_list is None:
        return ()
    try:
        return identity.at_rest.open_allowed_key_list(row.installation, row.version, row.sealed_allowed_key_list)
    except UnsealableError:
        raise TakeoverError(_OTHER_KEY) from None
