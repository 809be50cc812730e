"""Reading recorded conversations of real clients with a server, and playing them to our server.

The files are described in ``tests/vectors/README.md``.
"""

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wakupush.devnet.observer import Observer, Push
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import application, payload, topics
from wakupush.protocol.application import Opened, Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.waku.node import WakuNode


@dataclass(frozen=True, slots=True)
class OpenedReply:
    """An answer of the server, opened."""

    type: Type.ValueType
    inner: bytes = field(repr=False)
    #: The signers of the application layer and of the transport layer.
    signer: PublicKey
    transport_signer: PublicKey | None
    recipient: PublicKey
    content_topic: str

    @property
    def type_name(self) -> str:
        """For example ``PUSH_NOTIFICATION_RESPONSE``."""
        return Type.Name(self.type)


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """A message that a client sends."""

    pubsub_topic: str
    message: WakuMessage
    #: The type of the content, if the recording has it.
    type_name: str

    @property
    def hash(self) -> bytes:
        """14/WAKU2-MESSAGE deterministic hash, 32 bytes."""
        return message_hash(self.pubsub_topic, self.message)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a conversation."""

    name: str
    sends: tuple[ClientMessage, ...]
    deliver_times: int
    replies: tuple[OpenedReply, ...]
    #: The notifications that gorush got, as JSON objects.
    notifications: tuple[dict[str, Any], ...] = field(repr=False)
    #: The step as it stands in the file.
    raw: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A recorded conversation."""

    title: str
    server: PrivateKey
    #: Every key that answers may be sealed to.
    clients: tuple[PrivateKey, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step with our server."""

    replies: list[OpenedReply]
    #: For each reply the seconds since the step's last message was sent.
    latencies: list[float]
    pushes: list[Push]


def load(path: Path) -> Conversation:
    """Read a recorded conversation."""
    raw = json.loads(path.read_text())
    keys = {key["name"]: key for key in raw["keys"]}
    privates = [key["private_key"] for key in raw["keys"] if key["name"] != "server"]
    privates += [keypair["private_key"] for key in raw["keys"] for keypair in key["ephemeral_keys"]]
    clients = tuple(PrivateKey.from_hex(secret) for secret in privates)
    return Conversation(
        title=raw["title"],
        server=PrivateKey.from_hex(keys["server"]["private_key"]),
        clients=clients,
        steps=tuple(_step(step, clients) for step in raw["steps"]),
    )


class Player:
    """Plays the steps of a conversation to a running server.

    Args:
        conversation: whose server key the running server has.
        node: to which the messages of the clients are published.
        is_handled: returns whether the server is done with a message, or will never look at it.
    """

    def __init__(
        self,
        conversation: Conversation,
        node: WakuNode,
        observer: Observer,
        is_handled: Callable[[ClientMessage], bool],
    ) -> None:
        self._conversation = conversation
        self._node = node
        self._observer = observer
        self._is_handled = is_handled

    def play(self, step: Step, *, replies: int, pushes: int, timeout: float = 10.0) -> StepResult:
        """Send a step's messages, and wait until they are handled and as many answers and pushes have come.

        Args:
            timeout: seconds after which what came so far is returned.
        """
        result = StepResult([], [], [])
        hashes: set[bytes] = set()
        for outgoing in step.sends:
            for _ in range(step.deliver_times):
                self._node.publish(outgoing.pubsub_topic, outgoing.message)
            hashes.add(outgoing.hash)
        start = time.time()
        while time.time() < start + timeout:
            for message in self._observer.messages():
                if message_hash(message.pubsub_topic, message.message) not in hashes:
                    reply = open_reply(message.message, self._conversation.clients)
                    if reply is not None:
                        result.replies.append(reply)
                        result.latencies.append(message.arrived - start)
            result.pushes.extend(self._observer.pushes())
            is_complete = len(result.replies) >= replies and len(result.pushes) >= pushes
            if is_complete and all(map(self._is_handled, step.sends)):
                break
            time.sleep(0.01)
        return result


def open_reply(message: WakuMessage, clients: tuple[PrivateKey, ...]) -> OpenedReply | None:
    """Open an answer with the first key that fits; None if no key does."""
    for key in clients:
        if message.content_topic != topics.content_topic(topics.partitioned_topic(key.public_key)):
            continue
        try:
            plain = payload.open_asymmetric(message.payload, key)
            content = application.read(plain)
        except Refused:
            continue
        if isinstance(content, Opened):
            return OpenedReply(
                Type.ValueType(content.type),
                content.inner,
                content.signer,
                plain.signer,
                key.public_key,
                message.content_topic,
            )
    return None


def _step(raw: dict[str, Any], clients: tuple[PrivateKey, ...]) -> Step:
    replies = [open_reply(_message(entry["waku_message"]), clients) for entry in raw["replies"]]
    return Step(
        name=raw["name"],
        sends=tuple(
            ClientMessage(
                entry["waku_message"]["pubsub_topic"],
                _message(entry["waku_message"]),
                (entry.get("application") or {}).get("type_name", "UNKNOWN"),
            )
            for entry in raw["send"]
        ),
        deliver_times=raw["deliver_times"],
        replies=tuple(reply for reply in replies if reply is not None),
        notifications=tuple(
            notification for post in raw["gorush_posts"] for notification in post["json"]["notifications"]
        ),
        raw=raw,
    )


def _message(raw: dict[str, Any]) -> WakuMessage:
    return WakuMessage(
        payload=base64.b64decode(raw["payload"]),
        content_topic=raw["content_topic"],
        version=raw["version"],
        timestamp=raw["timestamp"],
        meta=base64.b64decode(raw["meta"]),
        ephemeral=raw["ephemeral"],
    )
