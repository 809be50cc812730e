"""The client side of the specification: registering, advertising, discovering, querying, sending, receiving.

See docs/reference/client.md. What an app needs is here; the state machines behind it are in the modules.
"""

from wakupush.client.client import Client, SendingDisabledError
from wakupush.client.context import Config
from wakupush.client.documents import UnreadableError
from wakupush.client.events import Advertised, Enrolled, Event, Learned, Unsent
from wakupush.client.history import History
from wakupush.client.notifying import Recipient
from wakupush.client.receiving import Received, seal_message
from wakupush.client.registering import Device, Options, Status
from wakupush.client.sending import Result
from wakupush.client.storage import InUseError, SqliteFile
from wakupush.client.transport import LightTransport, RelayTransport
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
    "NodeError",
    "NotificationType",
    "Options",
    "PrivateKey",
    "PublicKey",
    "Received",
    "Recipient",
    "RelayTransport",
    "Result",
    "SendingDisabledError",
    "SqliteFile",
    "Status",
    "TokenType",
    "UnreadableError",
    "Unsent",
    "seal_message",
]
