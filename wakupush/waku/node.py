"""The REST API of a Waku relay node: subscribe, read, publish, ask how it is.

Source: docs/reference/contracts/waku-rest.md, sections 1, 2, 6 and 7. Success is the status alone; bodies differ
between the nodes.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from wakupush.model.waku_message import WakuMessage
from wakupush.waku.client import NodeClient
from wakupush.waku.codec import PAYLOAD_LIMIT, decode_messages, encode_message, parse
from wakupush.waku.errors import NodeUnreadable, NotSubscribed
from wakupush.waku.rest import check, check_published, messages_path, printable

#: go-waku has no health route without RLN; a node that starts up has no routes yet.
_NO_HEALTH = {HTTPStatus.NOT_FOUND, HTTPStatus.NOT_IMPLEMENTED}


@dataclass(frozen=True, slots=True)
class RelayRead:
    """The messages that one read of a topic took out of the node."""

    messages: tuple[WakuMessage, ...]
    #: Messages that could not be read.
    malformed: int


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """Whether a node is fit for use."""

    ready: bool
    #: The state that nwaku reports (READY, NOT_READY, SYNCHRONIZING, ...), Disconnected if it has no peer; ALIVE for a
    #: node that reports nothing.
    state: str

    @property
    def is_alone(self) -> bool:
        """Whether the node says that it has no peer, on whatever shard."""
        return self.state == "Disconnected"


class WakuNode(NodeClient):
    """A client of one node's relay.

    Only the process that polls a topic may subscribe to it: an unread subscription stops a whole go-waku.

    Args:
        url: see `NodeClient`, as for the other two.
        timeout: seconds.
        max_read_bytes: bytes of a payload at most; a message with a larger one counts as malformed.
    """

    def __init__(self, url: str, *, timeout: float = 10.0, max_read_bytes: int = PAYLOAD_LIMIT) -> None:
        super().__init__(url, timeout=timeout)
        self._max_read_bytes = max_read_bytes
        #: Topics to which the node is believed to be subscribed, each with a mark of when that was learned.
        self._subscriptions: dict[str, object] = {}
        self._lock = threading.Lock()

    def subscribe(self, pubsub_topics: Iterable[str]) -> None:
        """Subscribe the node to topics, once per topic and start of the node.

        A second subscription makes a second queue in go-waku, which delivers twice and may stop the node. So read
        first, and subscribe when a read raises `NotSubscribed`: an earlier process may have subscribed already. It
        skips topics that it has subscribed to or read with success, until a read raises `NotSubscribed`. It also skips
        those whose subscription failed: the node may still have made it; the next read shows whether it did.

        Args:
            pubsub_topics: for example ``/waku/2/rs/16/32``.

        Raises:
            NodeUnreachable: it may or may not have subscribed. go-waku may hang after many subscriptions.
            NodeRefused: nwaku does not know such a topic.
        """
        with self._lock:
            new_topics = [topic for topic in dict.fromkeys(pubsub_topics) if topic not in self._subscriptions]
            if not new_topics:
                return
            try:
                check(*self._send("/relay/v1/subscriptions", new_topics))
            finally:
                self._subscriptions.update(dict.fromkeys(new_topics, object()))

    def read(self, pubsub_topic: str) -> RelayRead:
        """Take the waiting messages of a topic out of the node, its own publications included.

        A go-waku hands out up to the capacity of its queue in one read and drops nothing while it is polled. Read again
        at once until nothing comes.

        Raises:
            NotSubscribed: the node is new or was restarted.
            NodeUnreachable: try again.
            NodeUnreadable: what was read is lost: it is no list of messages, or has more than `ANSWER_LIMIT` bytes.
            NodeRefused: nwaku does not know such a topic.
        """
        subscription = self._subscriptions.get(pubsub_topic)
        with self._answer(messages_path(pubsub_topic)) as (status, body):
            if status == HTTPStatus.NOT_FOUND:
                with self._lock:
                    # Unless another thread has subscribed while this read was under way.
                    if self._subscriptions.get(pubsub_topic) is subscription:
                        self._subscriptions.pop(pubsub_topic, None)
                raise NotSubscribed(pubsub_topic)
            check(status, body)
            if subscription is None:
                with self._lock:
                    self._subscriptions.setdefault(pubsub_topic, object())
            return RelayRead(*decode_messages(body, self._max_read_bytes))

    def publish(self, pubsub_topic: str, message: WakuMessage) -> None:
        """Hand a message to the network.

        go-waku answers an empty 500 to a message that is too large, to a topic it is not subscribed to, and when it has
        no peers: all three are `NodeUnreachable`. Keep messages below the node's limit, and do not try for ever. nwaku
        says success even without peers.

        Raises:
            NodeUnreachable: try again; if the message did go out, the network relays it only once.
            NodeRefused: this message will never be taken.
        """
        check_published(*self._send(messages_path(pubsub_topic), encode_message(message)))

    def check_alive(self) -> None:
        """Check that a node answers; that does not prove that its relay works.

        Raises:
            NodeError: the node failed; its subclasses say how.
        """
        status, body = self._send("/debug/v1/info")
        check(status, body)
        match parse(body):
            case {"enrUri": str(), "listenAddresses": [*_]}:
                return
        raise NodeUnreadable("the answer is not a node's info")

    def health(self) -> NodeHealth:
        """Return whether the node says that it is ready, and has peers.

        nwaku reports its health, which is READY without any peer too; a go-waku that answers at all counts as ready.

        Raises:
            NodeError: the node failed; its subclasses say how.
        """
        status, body = self._send("/health")
        if status in _NO_HEALTH:
            self.check_alive()
            return NodeHealth(ready=True, state="ALIVE")
        check(status, body)
        match parse(body):
            case {"nodeHealth": str(), "connectionStatus": "Disconnected" as state}:
                return NodeHealth(ready=False, state=state)
            case {"nodeHealth": str(state)}:
                return NodeHealth(ready=state == "READY", state=printable(state))
        raise NodeUnreadable("the answer is not a node's health")

    def relay_peers(self, pubsub_topics: Iterable[str]) -> dict[str, int]:
        """Return how many relay peers the node has of each topic. A topic that it says nothing about is left out.

        A nwaku tells with ``--rest-admin`` alone.

        Raises:
            NodeError: the node failed; its subclasses say how.
        """
        for path, count in _PEERS.items():
            status, body = self._send(path)
            if status != HTTPStatus.OK:
                continue
            try:
                return count(parse(body) or [], pubsub_topics)
            except (LookupError, TypeError, ValueError):
                raise NodeUnreadable("the answer is no list of peers") from None
        return {}


def _count_nwaku(shards: list[Any], pubsub_topics: Iterable[str]) -> dict[str, int]:
    """Return by topic how many relay peers there are; a nwaku lists the shards of its cluster by number."""
    peers = {shard["shard"]: len(shard["peers"]) for shard in shards}
    numbers = {topic: topic.rpartition("/")[2] for topic in pubsub_topics}
    return {topic: peers.get(int(number), 0) for topic, number in numbers.items() if number.isdigit()}


def _count_go_waku(peers: list[Any], pubsub_topics: Iterable[str]) -> dict[str, int]:
    """Return by topic how many connected peers relay it; a go-waku lists the topics of each peer."""
    topics = [peer["pubsubTopics"] or () for peer in peers if peer["connected"] and _relays(peer["protocols"])]
    return {topic: sum(topic in of_peer for of_peer in topics) for topic in pubsub_topics}


def _relays(protocols: Iterable[str]) -> bool:
    return any(protocol.startswith("/vac/waku/relay/") for protocol in protocols)


_PEERS: Final[dict[str, Callable[[Any, Iterable[str]], dict[str, int]]]] = {
    "/admin/v1/peers/relay": _count_nwaku,
    "/admin/v1/peers": _count_go_waku,
}
