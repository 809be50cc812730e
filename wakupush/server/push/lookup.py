"""What is stored of push requests that came before, and the devices that requests name."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from psycopg import Connection

from wakupush.model.deliveries import RememberedRequest
from wakupush.model.registrations import Address, Receiver
from wakupush.postgres import requests
from wakupush.protocol.request import delivery_key
from wakupush.server.engine.kind import Context
from wakupush.server.engine.message import Message
from wakupush.server.push.read import OpenedRequest


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What is stored, by application message id (32 bytes)."""

    #: Requests that were admitted before. An item whose delivery failed for good since is not counted as a success.
    admitted: Mapping[bytes, RememberedRequest] = field(default_factory=dict)
    #: Requests that came too late once.
    over: AbstractSet[bytes] = frozenset()
    #: The devices to be notified.
    receivers: Mapping[Address, Receiver] = field(default_factory=dict)


def measure(connection: Connection, messages: Sequence[Message], context: Context) -> RequestFacts:
    """Read what is stored, with one statement a table; the limits are counted by device token."""
    contents = {
        message.content.message_id: message.content
        for message in messages
        if isinstance(message.content, OpenedRequest)
    }
    admitted, over = requests.admitted(connection, contents)
    addresses = {address for content in contents.values() for address in content.addresses if address is not None}
    receivers = requests.receivers(connection, addresses, context.identity.at_rest) if addresses else {}
    if admitted:
        admitted = _still_admitted(connection, admitted, contents)
    return RequestFacts(admitted, over, receivers)


def _still_admitted(
    connection: Connection, admitted: Mapping[bytes, RememberedRequest], contents: Mapping[bytes, OpenedRequest]
) -> dict[bytes, RememberedRequest]:
    """Return admitted requests, where items whose deliveries failed for good since are no success."""
    delivery_keys = {
        message_id: [
            delivery_key(contents[message_id].request.message_id, item) for item in contents[message_id].request.items
        ]
        for message_id in admitted
    }
    failed = requests.failed(connection, {key for keys in delivery_keys.values() for key in keys})
    return {
        message_id: replace(
            request,
            succeeded=[
                succeeded and key not in failed
                for succeeded, key in zip(request.succeeded, delivery_keys[message_id], strict=False)
            ],
        )
        for message_id, request in admitted.items()
    }
