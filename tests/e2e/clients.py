"""Clients beside the whole server, what leaves them, and a server that lies to them."""

import asyncio
import os
import signal
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from wakupush.client.client import Client
from wakupush.client.drivers.notifying import Recipient
from wakupush.client.drivers.storage import SqliteFile
from wakupush.client.rules.mailbox import Mailbox
from wakupush.client.rules.registering import Device
from wakupush.client.rules.sending import Result
from wakupush.devnet.stack import SHARDS
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import TokenType
from wakupush.protocol import envelopes, registration, request
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey

SHARD = SHARDS[0]


def device(token):
    return Device(token_type=TokenType.APN, device_token=token, apn_topic="im.status")


class Recorder:
    """A transport that remembers what has left."""

    def __init__(self, transport):
        self._transport = transport
        self.listening = transport.listening
        self.published = []

    async def publish(self, message):
        await self._transport.publish(message)
        self.published.append(message)


@asynccontextmanager
async def people(transport, *names, file=None, **options):
    """Clients that share a transport and a file."""
    async with AsyncExitStack() as exits:
        running = await exits.enter_async_context(transport())
        file = file or exits.enter_context(SqliteFile(":memory:"))
        yield [
            await exits.enter_async_context(
                Client(PrivateKey.generate(), Recorder(running), file.account(name), **options)
            )
            for name in names
        ]


def key(client):
    return client.account.key.public_key


async def eventually(predicate, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not (value := predicate()):
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)
    return value


async def asked_while(stack, light, stop, times):
    """Register a device through a light transport, let something stop, and ask for pushes one after another.

    Returns for each push how many messages left, which is one if the answer came before the sender asks again, and the
    seconds until the answer.
    """
    async with people(lambda: light, "alice", "bob") as (alice, bob):
        alice.enable_receiving(device(os.urandom(8).hex()), [stack.key.public_key])
        assert await alice.wait_until_settled(120)
        assert await alice.wait_until_advertised(120)
        bob.enable_sending()
        assert (await bob.query([alice.push_key]))[0].ways
        stop()
        published, message_counts, took = bob._context.transport.published, [], []
        for _ in range(times):
            before, start_time = len(published), time.monotonic()
            assert await notify(bob, alice) == [Result.ACCEPTED]
            message_counts.append(len(published) - before)
            took.append(time.monotonic() - start_time)
        return message_counts, took


async def notify(sender, *recipients, kind=NotificationType.MESSAGE, chat_id="a chat", **fields):
    targets = await sender.notify(
        [Recipient(user=each if not isinstance(each, Client) else key(each), **fields) for each in recipients],
        message_id=os.urandom(32),
        chat_id=chat_id,
        kind=kind,
    )
    return [target.result for target in targets]


class Bot:
    """A server that answers registrations, and later nothing, or lies."""

    def __init__(self, transport):
        self.key = PrivateKey.generate()
        self._box = Mailbox(self.key)
        self._transport = transport
        self.behaviour = "honest"
        self.lies = 0
        self._tasks = set()

    def listening(self):
        return self._transport.listening(self._box.content_topic, self._receive)

    def _receive(self, message):
        opened = self._box.take(message)
        if opened is None or self.behaviour == "down":
            return
        answers = {
            Type.PUSH_NOTIFICATION_REGISTRATION: self._register,
            Type.PUSH_NOTIFICATION_REQUEST: self._lie_about_request,
        }[opened.type]
        for signer, kind, inner in answers(opened):
            self.send(signer, opened.signer, kind, inner)

    def send(self, signer, recipient, kind, inner):
        [message] = envelopes.to_key(signer, recipient, kind, inner, timestamp=time.time_ns())
        task = asyncio.create_task(self._transport.publish(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _register(self, opened):
        inner = registration.encode_response(registration.request_id(opened.inner), None)
        # First somebody else says so: that must not count.
        yield PrivateKey.generate(), Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE, inner
        yield self.key, Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE, inner

    def _lie_about_request(self, opened):
        """Say success with another key's signature, about another message, and of another device."""
        parsed_request = request.parse_request(opened.inner, most_items=10)
        kind = Type.PUSH_NOTIFICATION_RESPONSE
        self.lies += 1
        yield PrivateKey.generate(), kind, request.encode_response(parsed_request, [None])
        yield self.key, kind, request.encode_response(request.Request(b"another", parsed_request.items), [None])
        foreign = request.Item(
            key_hash=bytes(64), installation_id="x", access_token="", type=1, chat_id=b"", author=b"", message=b""
        )
        yield self.key, kind, request.encode_response(request.Request(parsed_request.message_id, (foreign,)), [None])


@contextmanager
def frozen(process):
    """Stop a process and its children for a while, as a machine without time would."""
    os.killpg(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGCONT)
