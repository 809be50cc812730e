"""A relay node out of an event loop: subscribe, read, publish.

Source: docs/reference/contracts/waku-rest.md, sections 1, 2 and 6. The remarks of `wakupush.waku.node` apply here too.
"""

from http import HTTPStatus

from wakupush.model.waku_message import WakuMessage
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.codec import decode_messages, encode_message
from wakupush.waku.errors import NotSubscribed
from wakupush.waku.rest import check, check_published, messages_path


class AsyncRelay:
    """The relay of a node that no other process reads."""

    def __init__(self, rest: AsyncRest) -> None:
        self._rest = rest

    async def subscribe(self, pubsub_topic: str) -> None:
        """Subscribe the node to a topic. To be done only after a read raised `NotSubscribed`.

        Raises:
            NodeUnreachable: it may or may not have subscribed.
            NodeRefused: nwaku does not know such a topic.
        """
        check(*await self._rest.send("POST", "/relay/v1/subscriptions", [pubsub_topic]))

    async def read(self, pubsub_topic: str) -> tuple[WakuMessage, ...]:
        """Take the waiting messages of a topic out of the node; unreadable messages are left out.

        Raises:
            NotSubscribed: the node is new or was restarted.
            NodeUnreachable: try again.
            NodeUnreadable: what was read is lost.
            NodeRefused: nwaku does not know such a topic.
        """
        status, body = await self._rest.send("GET", messages_path(pubsub_topic))
        if status == HTTPStatus.NOT_FOUND:
            raise NotSubscribed(pubsub_topic)
        check(status, body)
        return decode_messages(body)[0]

    async def publish(self, pubsub_topic: str, message: WakuMessage) -> None:
        """Hand a message to the network.

        Raises:
            NodeUnreachable: try again.
            NodeRefused: this message will never be taken.
        """
        check_published(*await self._rest.send("POST", messages_path(pubsub_topic), encode_message(message)))
