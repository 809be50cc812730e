"""The client side of the specification: registering, advertising, discovering, querying, sending, receiving.

See docs/client.md. What an app needs is here; the state machines behind it are in the modules.
"""

from wakupush.client.client import Client, SendingDisabledError
from wakupush.client.context import Config
from wakupush.client.documents import UnreadableError
from wakupush.client.history import History
from wakupush.client.notifying import Recipient
from wakupush.client.registering import Device, Options, Status
from wakupush.client.sending import Result
from wakupush.client.storage import InUseError, SqliteFile
from wakupush.client.transport import LightTransport, RelayTransport

__all__ = [
    "Client",
    "Config",
    "Device",
    "History",
    "InUseError",
    "LightTransport",
    "Options",
    "Recipient",
    "RelayTransport",
    "Result",
    "SendingDisabledError",
    "SqliteFile",
    "Status",
    "UnreadableError",
]
