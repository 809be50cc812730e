"""The client side of the specification: registering, advertising, discovering, querying, sending, receiving.

See docs/reference/client.md. This package exports what an app needs. `rules` decides; `drivers` does input and output.
"""

from wakupush.client.client import Client, OwnPush, SendingDisabledError
from wakupush.client.config import Config
from wakupush.client.documents import UnreadableError
from wakupush.client.drivers.history import History
from wakupush.client.drivers.notifying import Recipient
from wakupush.client.drivers.storage import InUseError, SqliteFile, Storage
from wakupush.client.drivers.transport import LightTransport, RelayTransport
from wakupush.client.events import Advertised, Enrolled, Event, Learned, Lost, Unsent
from wakupush.client.rules.receiving import Received, parse, seal_message
from wakupush.client.rules.registering import Device, Options, Status
from wakupush.client.rules.sending import Result
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import TokenType
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.waku.errors import NodeError

__all__ = [
    "Advertised",
    "Client",
    "Config",
    "Device",
    "Enrolled",
    "Event",
    "History",
    "InUseError",
    "Learned",
    "LightTransport",
    "Lost",
    "NodeError",
    "NotificationType",
    "Options",
    "OwnPush",
    "PrivateKey",
    "PublicKey",
    "Received",
    "Recipient",
    "RelayTransport",
    "Result",
    "SendingDisabledError",
    "SqliteFile",
    "Status",
    "Storage",
    "TokenType",
    "UnreadableError",
    "Unsent",
    "parse",
    "seal_message",
]
