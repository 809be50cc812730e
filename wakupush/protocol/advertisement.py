"""ContactCodeAdvertisement: the servers of a user's devices (71, Advertising a Server)."""

from collections.abc import Iterable

from wakupush.model.failures import Failure
from wakupush.pb.push_notification_pb2 import ContactCodeAdvertisement
from wakupush.protocol import wire
from wakupush.protocol.query import Info, decode_info, encode_info


def encode_advertisement(infos: Iterable[Info]) -> bytes:
    """Return the ContactCodeAdvertisement of devices, one entry for each of its servers."""
    return ContactCodeAdvertisement(push_notification_info=map(encode_info, infos)).SerializeToString()


def parse_advertisement(inner: bytes) -> tuple[Info, ...]:
    """Return the devices in a ContactCodeAdvertisement.

    Raises:
        Refused: INNER_MALFORMED.
    """
    message = wire.decode(ContactCodeAdvertisement, inner, Failure.INNER_MALFORMED)
    return tuple(map(decode_info, message.push_notification_info))
