"""Running the registrar and the advertiser: sends due messages, and stores the answers."""

import logging
import math
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import AsyncExitStack

from wakupush.client.drivers.context import Context, Signal, topic_key
from wakupush.client.drivers.storage import ADVERTISING, REGISTRATION, Advertising
from wakupush.client.events import Advertised, Enrolled, Lost
from wakupush.client.rules.advertising import Advertiser, advertisement
from wakupush.client.rules.mailbox import Mailbox, read_advertisement
from wakupush.client.rules.registering import Enrolment, Registrar, RegistrarState, Status
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import envelopes, topics
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.keys import PublicKey
from wakupush.protocol.query import Info
from wakupush.protocol.registration import parse_response
from wakupush.waku.errors import NodeError, NodeRefused

log = logging.getLogger(__name__)

#: Seconds until an advertisement that the node did not take is tried again.
RETRY_SECONDS = 10.0
#: Seconds to sleep at most before the clock is read again: it may have been set.
MOST_SECONDS = 600.0


class Enroller:
    """Keeps one installation registered and advertised."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._account = context.account
        self.registrar = Registrar(
            self._account.push_key, self._account.installation_id, RegistrarState(), random=context.random
        )
        self._advertiser = Advertiser(context.config.advertise_every)
        self.load()
        self._mailbox = Mailbox(self._account.push_key)
        self._topic = topics.contact_code_topic(self._account.push_key.public_key)
        #: Number of the last change that is to be advertised, and of the last one that was advertised.
        self._last_to_advertise = self._last_advertised = 0
        self._changes = Signal()

    def load(self) -> None:
        """Load the stored state.

        Raises:
            UnreadableError: it cannot be read.
        """
        self.registrar.state = self._context.storage.get(REGISTRATION, "") or RegistrarState()
        self._advertiser.next_at = (self._context.storage.get(ADVERTISING, "") or Advertising()).next_at

    def store_change(self) -> None:
        """Store the registrar's changed state, and act on it."""
        self._context.storage.put(REGISTRATION, "", self.registrar.state)
        self._changes.set()

    def try_again(self) -> None:
        """Ask at once servers without a final answer, and those that refused."""
        self.registrar.try_again(self._context.now())
        self.store_change()

    def advertise(self) -> None:
        """Advertise soon, out of turn."""
        self._advertise_soon()
        self._changes.set()

    def take_infos(self, server: PublicKey, infos: Iterable[Info], versions: Mapping[PublicKey, int]) -> None:
        """Take a server's answer to a query about this user, see `Registrar.take_infos`."""
        self._report_loss(self.registrar.take_infos(server, infos, versions, self._context.now()))

    def note_loss(self, server: PublicKey, version: int) -> None:
        """Register again with a server that does not know a version any more, see `Registrar.note_loss`."""
        self._report_loss(self.registrar.note_loss(server, version, self._context.now()))

    def check_soon(self) -> None:
        """Ask servers about this installation at once."""
        self.registrar.check_soon()
        self.store_change()

    def note_checked(self) -> None:
        """Ask servers about this installation in a day."""
        self.registrar.note_checked(self._context.now())
        self.store_change()

    async def wait_until_check(self) -> None:
        """Wait until the client should ask servers about itself."""
        while (seconds := self.registrar.seconds_to_check(self._context.now())) > 0:
            await self._changes.wait(min(seconds, MOST_SECONDS))

    async def wait_until_advertised(self, seconds: float) -> bool:
        """Wait until every change is advertised, and return whether it is within so many seconds."""
        return await self._changes.wait_until(lambda: self._last_advertised == self._last_to_advertise, seconds)

    async def wait_until_settled(self, seconds: float, servers: Collection[PublicKey] | None) -> bool:
        """Wait until these servers, or all, have answered, and return whether they have within so many seconds."""
        return await self._changes.wait_until(lambda: self.registrar.has_settled(servers), seconds)

    async def run(self) -> None:
        """Work until cancelled."""
        async with AsyncExitStack() as exits:
            is_listening = False
            while True:
                try:
                    if not is_listening and self._next_at < math.inf:
                        # Before anything is sent, or a fast answer would be lost.
                        await self._listen(exits)
                        is_listening = True
                    await self._register()
                    await self._advertise()
                except NodeError as error:
                    self._context.report_unsent("not_sent", error)
                    if not is_listening:
                        await self._changes.wait(RETRY_SECONDS)
                except Exception as error:  # noqa: BLE001 - what cannot be stored now, on a full disk, may be stored later
                    self._context.report_unsent("not_sent", error)
                    await self._changes.wait(RETRY_SECONDS)
                await self._changes.wait(min(self._next_at - self._context.now(), MOST_SECONDS))

    def _report_loss(self, enrolment: Enrolment | None) -> None:
        if enrolment is not None:
            self.store_change()
            log.warning("registration_lost: losses so far: %d", enrolment.losses)
            self._context.tell(Lost(enrolment))

    @property
    def _next_at(self) -> float:
        times = (self.registrar.next_at, self._advertiser.next_at)
        return min((at for at in times if at is not None), default=math.inf)

    async def _listen(self, exits: AsyncExitStack) -> None:
        """Listen for answers, and for advertisements of this user's other installations."""
        listening = self._context.transport.listening
        key = await topic_key(self._topic)
        async with AsyncExitStack() as both:
            await both.enter_async_context(listening(self._mailbox.content_topic, self._take_answer))
            await both.enter_async_context(
                listening(topics.content_topic(self._topic), lambda message: self._take_advertisement(message, key))
            )
            await exits.enter_async_context(both.pop_all())

    async def _register(self) -> None:
        before = self.registrar.state
        asking = self.registrar.due(self._context.now())
        if self.registrar.state != before:
            # Stored before it is sent, so that no version is ever used twice.
            self._context.storage.put(REGISTRATION, "", self.registrar.state)
        kind = Type.PUSH_NOTIFICATION_REGISTRATION
        for registration in asking:
            key = self._account.push_key
            for message in envelopes.to_key(
                key, registration.server, kind, registration.sealed, timestamp=time.time_ns()
            ):
                await self._context.transport.publish(message)
            self.registrar.note_sent(registration, self._context.now())

    async def _advertise(self) -> None:
        infos = self._advertiser.due(self.registrar.infos(), self._context.now())
        if infos is None:
            return
        if not infos and self.registrar.is_registering:
            return  # an empty one would say that nothing is registered any more; the answer will be advertised
        change = self._last_to_advertise
        message = advertisement(
            self._account.push_key,
            infos,
            topic_key=await topic_key(self._topic),
            timestamp=time.time_ns(),
            # Bundles name the chat key, and servers read the messages on the push key's topic.
            contact_code=b"" if self._account.is_anonymous else self._context.config.contact_code,
        )
        try:
            await self._context.transport.publish(message)
        except NodeRefused:
            self._keep_advertising()  # the same message would be refused again
            raise
        except NodeError:
            self._advertiser.advertise_soon(self._context.now() + RETRY_SECONDS)
            self._keep_advertising()
            raise
        self._last_advertised = max(self._last_advertised, change)
        self._context.tell(Advertised(len(infos)))
        self._changes.set()
        self._keep_advertising()

    def _advertise_soon(self) -> None:
        self._last_to_advertise += 1
        self._advertiser.advertise_soon(self._context.now())
        self._keep_advertising()

    def _keep_advertising(self) -> None:
        self._context.storage.put(ADVERTISING, "", Advertising(self._advertiser.next_at))

    def _take_answer(self, message: WakuMessage) -> None:
        content = self._mailbox.take(message)
        if content is None or content.type != Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE:
            return
        try:
            response = parse_response(content.inner)
        except Refused:
            return
        enrolment = self.registrar.take_answer(content.signer, response, self._context.now())
        if enrolment is not None:
            # Leaving another server was not advertised while this one could still register the device.
            is_due = enrolment.status is Status.REFUSED and self._last_advertised != self._last_to_advertise
            if is_due or enrolment.status in {Status.REGISTERED, Status.UNREGISTERED}:
                self._advertise_soon()
            self.store_change()
            self._context.tell(Enrolled(enrolment))

    def _take_advertisement(self, message: WakuMessage, key: bytes) -> None:
        infos = read_advertisement(message, key, self._account.push_key.public_key)
        if infos is not None:
            self._advertiser.learn(infos, self._account.installation_id, self._context.now())
