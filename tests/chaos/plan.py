"""What clients send and what may come of it, written down before it is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

#: What an answer tells besides the names of the specification's error types.
SUCCESS = "SUCCESS"


class Fate(StrEnum):
    """Whether a notification has to reach gorush's platform."""

    MUST = "must"
    #: It depends on what was handled first.
    MAY = "may"
    #: It cannot, but the server goes on trying, or keeps it as a dead letter.
    KEPT = "kept"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified:
    """One item of a push request."""

    #: Identity of the notification, hex; gorush's ``notif_id`` has an attempt besides.
    delivery_key: str
    #: Of the receiver, hex.
    key_hash: str
    installation_id: str
    #: What its sender may be told: SUCCESS or names of errors.
    allowed_results: tuple[str, ...]
    fate: Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One envelope. Several with the same id carry the same application message."""

    #: ``registration``, ``query`` or ``request``.
    kind: str
    #: By which its answers are known, hex: request id of a registration, message id of a query or request.
    id: str
    #: 14/WAKU2-MESSAGE hash, hex.
    envelope: str
    #: Private key of who asks, hex; answers are sealed to it.
    client: str
    #: When it was made, in seconds since the epoch by our clock, whatever its timestamp says.
    at: float
    #: Registration: what may be answered.
    allowed_results: tuple[str, ...] = ()
    #: Registration: the PushNotificationRegistration, hex. Request that may fail late: the PushNotificationRequest.
    content: str = ""
    #: Query: installation id and access token of each device that the answer has to name.
    devices: tuple[tuple[str, str], ...] = ()
    #: Query: those of the installations that it names unless their token has died by then.
    mortal: tuple[str, ...] = ()
    #: Request: its items, in their order.
    items: tuple[Notified, ...] = ()
    #: Of how many envelopes it is one that carry the message together.
    parts: int = 1

    @property
    def is_doubtful(self) -> bool:
        """Whether it is a request for devices that may not be reached."""
        return any(len(item.allowed_results) > 1 for item in self.items)

    @property
    def trace_id(self) -> str:
        """Its name in delivery events."""
        return self.envelope[:16]


def dump(message: Sent) -> str:
    """Return a line of a plan."""
    return json.dumps(asdict(message)) + "\n"


def load(path: Path) -> Iterator[Sent]:
    """Read a plan; a line that is still being written is left out."""
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield _message(json.loads(line))


def _message(fields: dict) -> Sent:
    items = tuple(
        Notified(**{**item, "allowed_results": tuple(item["allowed_results"]), "fate": Fate(item["fate"])})
        for item in fields["items"]
    )
    devices = tuple((installation_id, token) for installation_id, token in fields["devices"])
    return Sent(
        **{
            **fields,
            "allowed_results": tuple(fields["allowed_results"]),
            "devices": devices,
            "mortal": tuple(fields["mortal"]),
            "items": items,
        }
    )
