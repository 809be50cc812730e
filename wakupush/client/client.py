"""The client: everything that one user does on one device."""

import asyncio
import logging
import math
import secrets
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Self

from wakupush.client.config import Config
from wakupush.client.drivers.asking import QUERY_SECONDS, Asker
from wakupush.client.drivers.book import Book
from wakupush.client.drivers.context import Context
from wakupush.client.drivers.enrolling import MOST_SECONDS, RETRY_SECONDS, Enroller
from wakupush.client.drivers.history import History
from wakupush.client.drivers.notifying import Notifier, Recipient, targets
from wakupush.client.drivers.storage import SEEN, SETTINGS, ClientSettings, InUseError, SeenMessage, Storage
from wakupush.client.drivers.tasks import Tasks
from wakupush.client.drivers.transport import Transport
from wakupush.client.events import Event
from wakupush.client.rules import receiving
from wakupush.client.rules.accounts import Account
from wakupush.client.rules.acquaintances import Acquaintance
from wakupush.client.rules.receiving import Received
from wakupush.client.rules.registering import Device, Options, RegistrarState
from wakupush.client.rules.sending import Result, Sending, TargetDevice
from wakupush.model.notifications import NotificationType
from wakupush.protocol.hashing import shake256_64
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.runtime.tracebacks import places
from wakupush.waku.errors import NodeError

log = logging.getLogger(__name__)

#: Seconds for which the id of a received message is remembered.
SEEN_SECONDS = 30 * 86_400.0


class SendingDisabledError(Exception):
    """Asking for pushes was not switched on, see `Client.enable_sending`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPush:
    """What came of asking for a push to one's own device. Seconds are those until an answer; None if none came."""

    query_seconds: float | None
    #: None if no server said how to notify the device, so nothing was asked for.
    result: Result | None
    request_seconds: float | None


class Client:
    """One user on one device; an async context manager that runs inside the block, with no other client of the account.

    Nothing is registered before `enable_receiving`, and no server is asked before `enable_sending`. Both are stored.

    Args:
        key: the chat key.
        transport: running already; it may be shared.
        storage: for this user alone.
        history: a Store, asked for the latest advertisements of users who are followed.
        on_event: called in the event loop with each event; it must not block. What it raises is logged.
        now: the clock, in seconds since the epoch.

    Raises:
        ValueError: the account belongs to another key; or `config` asks for anonymous mode, and the account was first
            used without it.
        UnreadableError: what is stored cannot be read.
    """

    def __init__(
        self,
        key: PrivateKey,
        transport: Transport,
        storage: Storage,
        config: Config | None = None,
        *,
        history: History | None = None,
        on_event: Callable[[Event], None] = lambda _: None,
        now: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        config = config or Config()
        self._storage = storage
        self._settings = storage.get(SETTINGS, "") or self._first_settings(key.public_key, config)
        if self._settings.user is None:
            self._settings = replace(self._settings, user=key.public_key)
            storage.put(SETTINGS, "", self._settings)
        if self._settings.user != key.public_key:
            raise ValueError("this account belongs to another chat key, and its servers know that one")
        secret = self._settings.push_key
        self.account = Account.of(key, self._settings.installation_id, PrivateKey(secret) if secret else None)
        if config.anonymous and not self.account.is_anonymous:
            raise ValueError("this account was first used without anonymous mode, and its servers know its key")
        self._context = Context(
            account=self.account,
            transport=transport,
            storage=storage,
            config=config,
            tell=_guard(on_event),
            now=now,
            random=random or Random(secrets.randbits(64)),
        )
        self._exits = ExitStack()
        self._tasks = Tasks()
        self._enroller = Enroller(self._context)
        self._book = Book(self._context, history, self._tasks)
        self._asker = Asker(self._context, self._book, self._enroller, self._tasks)

    # Registering and advertising.

    def enable_receiving(self, device: Device, servers: Iterable[PublicKey], options: Options | None = None) -> None:
        """Register with these servers and no others, and stay registered. Also for a new device token or server.

        Args:
            device: the device token that Apple or Google gave.
            options: the users who may notify; None leaves them as they are.
        """
        registrar = self._enroller.registrar
        if options is not None:
            registrar.set_options(options)
        registrar.enable(device)
        registrar.set_servers(servers)
        self._enroller.store_change()

    def set_options(self, options: Options) -> None:
        """Change who may notify."""
        self._enroller.registrar.set_options(options)
        self._enroller.store_change()

    def disable_receiving(self) -> None:
        """Unregister everywhere; also to be done on logout. Wait for `settled` before the client is closed."""
        self._enroller.registrar.disable()
        self._enroller.store_change()

    @property
    def registration(self) -> RegistrarState:
        """The state of the registration at each server."""
        return self._enroller.registrar.state

    async def wait_until_settled(self, seconds: float, servers: Collection[PublicKey] | None = None) -> bool:
        """Wait until servers have given a final answer, and return whether they have within so many seconds.

        Args:
            servers: None for all, including those at which the client is still unregistering.
        """
        return await self._enroller.wait_until_settled(seconds, servers)

    def try_again(self) -> None:
        """Ask at once servers without a final answer, and those that refused, for example when the network is back."""
        self._enroller.try_again()

    async def wait_until_advertised(self, seconds: float) -> bool:
        """Wait until the servers' answers are advertised, and return whether they are within so many seconds."""
        return await self._enroller.wait_until_advertised(seconds)

    def advertise(self) -> None:
        """Advertise soon, out of turn."""
        self._enroller.advertise()

    @property
    def push_key(self) -> PublicKey:
        """The key that is registered. In anonymous mode, send it only in contact updates to those who may notify."""
        return self.account.push_key.public_key

    # Discovering and querying.

    def acquaintance(self, user: PublicKey) -> Acquaintance:
        """Return the acquaintance of a user: the known devices, servers and tokens."""
        return self._book.find(user)

    async def follow(self, user: PublicKey) -> None:
        """Listen to a user's advertisements from now on, and ask the Store for the latest ones.

        Raises:
            NodeError: the node does not let us listen.
        """
        await self._book.follow(user)

    async def unfollow(self, user: PublicKey) -> None:
        """Stop listening to a user's advertisements."""
        await self._book.unfollow(user)

    async def discover(self, user: PublicKey, seconds: float) -> Acquaintance:
        """Follow a user, and return what is known as soon as there is a way to notify, or after so many seconds.

        Raises:
            NodeError: the node does not let us listen.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._book.follow(user)
                await self._book.changes.wait_until(
                    lambda: bool(self._book.find(user).usable(self._context.now())), math.inf
                )
        return self._book.find(user)

    async def query(
        self, users: Sequence[PublicKey], *, force: bool = False, seconds: float = QUERY_SECONDS
    ) -> list[Acquaintance]:
        """Ask servers about users for whom a usable access token is missing, and return what is known then.

        The client uses the answers for a day. Servers that know none of the users do not answer.

        Args:
            force: whether to ask even if tokens are known, or the user was asked about lately.

        Raises:
            SendingDisabledError: sending was not switched on, and queries are part of it.
            NodeError: the node did not take a query.
        """
        self._check_sending()
        await self._asker.query(users, force=force, seconds=seconds)
        return [self._book.find(user) for user in users]

    def note_active(self, user: PublicKey, installation_id: str) -> None:
        """Note that an installation of a user is active: those that were active last are notified."""
        self._book.note_active(user, installation_id, self._context.now())

    def learn_push_key(self, user: PublicKey, push_key: PublicKey) -> None:
        """Notify a user under the key from a contact update, see `push_key`. Call `follow` for the user again."""
        self._book.learn_push_key(user, push_key)

    # Sending.

    def enable_sending(self, *, enabled: bool = True) -> None:
        """Switch on, or off, queries about other users and requests for pushes to them."""
        self._settings = replace(self._settings, sending=enabled)
        self._storage.put(SETTINGS, "", self._settings)

    async def notify(
        self,
        recipients: Sequence[Recipient],
        *,
        message_id: bytes,
        chat_id: str,
        kind: NotificationType,
        force: bool = False,
    ) -> list[TargetDevice]:
        """Ask for pushes to the devices of users, and return each device with its result, in any order.

        If servers have to be asked about a user first, that user is notified afterwards; the others at once. A query or
        request that the node does not take is reported as `Unsent`, and what is known is used. Every query and request
        has its own key at both layers. This may take minutes if servers do not answer. The result leaves out users of
        whom no device is known.

        Args:
            message_id: of the message, 32 bytes.
            chat_id: of the chat; it is sent as a hash.
            force: whether to ask about users without a usable token even if they were asked about lately.

        Raises:
            SendingDisabledError: sending was not switched on.
        """
        self._check_sending()
        chat_hash = shake256_64(chat_id.encode())

        async def send(some: Sequence[Recipient]) -> list[TargetDevice]:
            devices = targets(self._context, self._book, some, chat_id=chat_hash, kind=kind)
            sending = Sending(message_id, devices, random=self._context.random)
            await Notifier(self._context, self._book, self._asker, self._tasks, sending).run()
            return sending.targets

        async def ask_and_send(some: Sequence[Recipient]) -> list[TargetDevice]:
            try:
                await self._asker.query(
                    [acquaintance.user for acquaintance in some], force=force, seconds=QUERY_SECONDS
                )
            except Exception as error:  # noqa: BLE001 - also on a full disk, what is known is used
                self._context.report_unsent("query_not_sent", error)
            return await send(some)

        now = self._context.now()

        def is_unknown(user: PublicKey) -> bool:
            acquaintance = self._book.find(user)
            return acquaintance.is_to_be_asked(now) or (force and not acquaintance.usable(now))

        unknown = {recipient.user for recipient in recipients if is_unknown(recipient.user)}
        at_once, later = await asyncio.gather(
            send([recipient for recipient in recipients if recipient.user not in unknown]),
            ask_and_send([recipient for recipient in recipients if recipient.user in unknown]),
        )
        return at_once + later

    async def notify_self(self) -> OwnPush:
        """Ask for a push to this device as anybody else would, and return what came of it; the push may come later.

        Servers cannot tell such a push from others, and count it like them. With `Options.contacts_only` they tell the
        device's token to contacts alone: then the client has to be one. If a server does not know the device any more,
        the client registers there again.

        Raises:
            SendingDisabledError: sending was not switched on.
            NodeError: the node did not take the query.
        """
        own, ours = self.push_key, self.account.installation_id
        asked_at, start = self._context.now(), time.monotonic()
        [acquaintance] = await self.query([own], force=True)
        ways = [way for way in acquaintance.usable(self._context.now()) if way.installation_id == ours]
        if not any(way.learned_at >= asked_at for way in ways):
            self._enroller.check_soon()
            return OwnPush(query_seconds=None, result=None, request_seconds=None)
        query_seconds, start = time.monotonic() - start, time.monotonic()
        recipient = Recipient(user=own, installation_ids=(ours,))
        [device] = await self.notify(
            [recipient], message_id=secrets.token_bytes(32), chat_id="test", kind=NotificationType.MESSAGE
        )
        if device.result in {Result.NOT_REGISTERED, Result.WRONG_TOKEN}:  # as every server of the device says
            for way in ways:
                self._enroller.note_loss(way.server, way.version)
        return OwnPush(query_seconds=query_seconds, result=device.result, request_seconds=time.monotonic() - start)

    # The content of a push.

    def receive(self, data: Mapping[str, Any], chat_ids: Iterable[str] = ()) -> Received | None:
        """Return the account, chat and message of gorush's data; None if they are not for this account.

        A message that comes with them counts as received from now on.

        Args:
            data: of a notification of any built-in profile.
            chat_ids: of the chats that are known.
        """
        notification = receiving.receive(
            receiving.parse(data),
            [self.account],
            chat_ids,
            lambda message_id: self._storage.get(SEEN, message_id.hex()) is not None,
        )
        if notification is not None and notification.message is not None:
            self.remember(notification.message.message_id)
        return notification

    def remember(self, message_id: bytes) -> None:
        """Note the id (32 bytes) of a message that was received: `receive` marks a push for it as repeated."""
        self._storage.put(SEEN, message_id.hex(), SeenMessage())
        self._storage.forget(SEEN, self._context.now() - SEEN_SECONDS)

    async def __aenter__(self) -> Self:
        """Start to run.

        Raises:
            InUseError: another client of this account runs, or used it for the first time in the same moment.
        """
        with ExitStack() as exits:
            exits.enter_context(self._storage.lock())
            self._check_settings()
            self._enroller.load()  # another may have run since
            self._exits = exits.pop_all()
        self._tasks.start(self._enroller.run())
        self._tasks.start(self._check_registration())
        return self

    async def __aexit__(self, *exception: object) -> None:
        with self._exits:
            await self._tasks.stop()
            await self._book.close()

    async def _check_registration(self) -> None:
        """Ask servers about this user once a day: those that lost the registration get it again."""
        while True:
            await self._enroller.wait_until_check()
            try:
                await self._asker.check()
                self._enroller.note_checked()
            except Exception as error:  # noqa: BLE001 - what cannot be stored now, on a full disk, may be stored later
                self._context.report_unsent("check_failed", error)
                # The query may have left before the answer could not be stored.
                await asyncio.sleep(RETRY_SECONDS if isinstance(error, NodeError) else MOST_SECONDS)

    def _first_settings(self, user: PublicKey, config: Config) -> ClientSettings:
        """Return the settings that are decided when an account is first used, and store them."""
        push_key = PrivateKey.generate().secret if config.anonymous else b""
        settings = ClientSettings(installation_id=str(uuid.uuid4()), user=user, push_key=push_key)
        self._storage.put(SETTINGS, "", settings)
        return settings

    def _check_settings(self) -> None:
        settings = self._storage.get(SETTINGS, "") or self._settings
        if settings.installation_id != self.account.installation_id:
            # It was first used by two at once, and the other one's id is the account's.
            raise InUseError("another client used this account for the first time, too: make this one anew")

    def _check_sending(self) -> None:
        if not self._settings.sending:
            raise SendingDisabledError("sending is off")


def _guard(on_event: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return a function that does not raise: an error in the app must not end the work that it is informed about."""

    def tell(event: Event) -> None:
        try:
            on_event(event)
        except Exception as error:  # noqa: BLE001 - see above
            log.error("event_not_taken: %s at %s", type(error).__name__, places(error))  # noqa: TRY400 - its text may hold secrets

    return tell
