"""Opening the sealed columns of a registered device."""

from wakupush.model.registrations import RegistrationRow
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol.identity import Identity
from wakupush.protocol.sealing import UnsealableError
from wakupush.takeover.errors import TakeoverError


def device(row: RegistrationRow, identity: Identity) -> PushNotificationRegistration:
    """Return the sealed columns of a registered row: the fields of the device, and its allowed_key_list.

    Raises:
        TakeoverError: another server's key sealed them.
    """
    if row.sealed_device is None:
        raise AssertionError("a registered row has its device")
    at_rest, place = identity.at_rest, (row.installation, row.version)
    try:
        message = at_rest.open_device(*place, row.sealed_device)
        if row.sealed_allowed_key_list is not None:
            message.allowed_key_list.extend(at_rest.open_allowed_key_list(*place, row.sealed_allowed_key_list))
    except UnsealableError:
        raise TakeoverError("the rows in Postgres are sealed by another server's key than this one's") from None
    return message
