"""Sending requests, each under its own key, until the result for every device is known."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from wakupush.client.drivers.asking import Asker
from wakupush.client.drivers.book import Book
from wakupush.client.drivers.context import Context, Signal
from wakupush.client.drivers.tasks import Tasks
from wakupush.client.rules.mailbox import Mailbox
from wakupush.client.rules.sending import Content, DueRequest, Sending, TargetDevice, Useless
from wakupush.model.notifications import NotificationType
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import envelopes
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.request import parse_response
from wakupush.waku.errors import NodeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """A user to notify, and the installations that the message is for."""

    #: The chat key.
    user: PublicKey
    #: The message, encrypted to this user; may be empty.
    message: bytes = field(repr=False, default=b"")
    #: The installations that the message is for; None for all known ones.
    installation_ids: tuple[str, ...] | None = None


class Notifier:
    """Asks servers for the pushes of one message.

    Args:
        asker: finds new ones if a token is wrong.
    """

    def __init__(self, context: Context, book: Book, asker: Asker, tasks: Tasks, sending: Sending) -> None:
        self._context = context
        self._book = book
        self._asker = asker
        self._tasks = tasks
        self._sending = sending
        self._changes = Signal()

    async def run(self) -> None:
        """Work until every result is known."""
        async with AsyncExitStack() as exits:
            while not self._sending.is_done:
                due = self._sending.due(time.monotonic())
                await asyncio.gather(*(self._request(asking, exits) for asking in due))
                await self._changes.wait(self._sending.next_at - time.monotonic())

    async def _request(self, asking: DueRequest, exits: AsyncExitStack) -> None:
        """Send a request under its own key. Its answer is taken until all requests are done."""
        key = PrivateKey.generate()
        box = Mailbox(key)

        def receive(message: WakuMessage) -> None:
            content = box.take(message)
            if content is None or content.type != Type.PUSH_NOTIFICATION_RESPONSE:
                return
            try:
                response = parse_response(content.inner)
            except Refused:
                return
            tokens = self._sending.take_answer(asking, content.signer, response, time.monotonic())
            for useless in tokens:
                if useless.is_wrong:
                    self._tasks.start(self._refresh(useless))
            self._changes.set()
            # Last, as the book cannot be written on a full disk.
            for useless in tokens:
                self._book.note_useless(useless)

        kind = Type.PUSH_NOTIFICATION_REQUEST
        try:
            await exits.enter_async_context(self._context.transport.listening(box.content_topic, receive))
            for message in envelopes.to_key(key, asking.server, kind, asking.inner, timestamp=time.time_ns()):
                await self._context.transport.publish(message)
        except NodeError as error:
            self._context.report_unsent("request_not_sent", error)
        self._sending.note_sent(asking, time.monotonic())

    async def _refresh(self, wrong: Useless) -> None:
        try:
            await self._asker.ask((wrong.user,))
        except Exception as error:  # noqa: BLE001 - the device waits for the end of this, also while nothing can be stored
            self._context.report_unsent("query_not_sent", error)
        usable = self._book.find(wrong.user).usable(self._context.now())
        ways = [way for way in usable if way.installation_id == wrong.installation_id]
        self._sending.refresh(wrong.user, wrong.installation_id, ways, time.monotonic())
        self._changes.set()


def targets(
    context: Context, book: Book, recipients: Iterable[Recipient], *, chat_id: bytes, kind: NotificationType
) -> list[TargetDevice]:
    """Return the devices to notify.

    Args:
        context: of the client, whose key is the author.
        chat_id: SHAKE-256 of the chat's id.
    """
    devices = []
    for recipient in recipients:
        acquaintance = book.find(recipient.user)
        content = Content(
            type=kind, chat_id=chat_id, author=context.account.key.public_key.author_hash, message=recipient.message
        )
        ways_by_id = acquaintance.devices(
            context.now(), most=context.config.most_devices, only=recipient.installation_ids
        )
        devices += [
            TargetDevice(acquaintance.user, installation_id, content, ways)
            for installation_id, ways in ways_by_id.items()
        ]
    return devices
