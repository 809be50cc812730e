"""Sending and receiving messages, by relay or as a light client. One transport serves any number of clients."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol, Self

from wakupush.client.drivers.light import POLL_SECONDS, RECOVER_SECONDS, SUBSCRIBE_ATTEMPTS, ServiceNode, again
from wakupush.client.drivers.tasks import Tasks
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash
from wakupush.runtime.tracebacks import places
from wakupush.waku.async_relay import AsyncRelay
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.errors import NodeError, NodeUnreachable, NotSubscribed

Receive = Callable[[WakuMessage], None]

log = logging.getLogger(__name__)

#: Static shards of the Status network: messages go to the first.
SHARDS = ("/waku/2/rs/16/32",)
#: Seconds to wait for other service nodes once one has done its part.
OTHERS_SECONDS = 1.5
#: How many of the last messages are remembered, so that one that comes through another node as well is dropped.
MOST_HEARD = 1_000


class Transport(Protocol):
    """The functions of a node that a client needs."""

    async def publish(self, message: WakuMessage) -> None:
        """Hand a message to the network, and again a few times while the node does not take it.

        Raises:
            NodeError: it did not.
        """

    def listening(self, content_topic: str, receive: Receive) -> AbstractAsyncContextManager[None]:
        """Receive the messages of a content topic inside the block: each that is published after the block began.

        Args:
            receive: called in the event loop, also with the client's own messages; it must not block.

        Raises:
            NodeError: the node does not let us listen.
        """


class Listeners:
    """The functions that listen to each content topic."""

    def __init__(self) -> None:
        #: By content topic.
        self.receivers: dict[str, list[Receive]] = {}

    @contextmanager
    def listening(self, content_topic: str, receive: Receive) -> Iterator[None]:
        """Let a function listen inside the block."""
        receivers = self.receivers.setdefault(content_topic, [])
        receivers.append(receive)
        try:
            yield
        finally:
            receivers.remove(receive)
            if not receivers:
                del self.receivers[content_topic]

    def deliver(self, messages: Sequence[WakuMessage]) -> None:
        """Hand messages to the functions that listen to their topics."""
        for message in messages:
            for receive in tuple(self.receivers.get(message.content_topic, ())):
                try:
                    receive(message)
                except Exception as error:  # noqa: BLE001 - an app's function must not stop the others
                    log.error("message_not_received: %s at %s", type(error).__name__, places(error))  # noqa: TRY400 - its text may hold secrets


class _Running:
    """A transport with tasks that run inside its block."""

    def __init__(self, urls: Sequence[str], shards: Sequence[str]) -> None:
        self._urls = tuple(urls)
        self._shards = tuple(shards)
        self._listeners = Listeners()
        self._tasks = Tasks()
        self._exits = AsyncExitStack()

    def _work(self, rests: Sequence[AsyncRest]) -> list[Coroutine[Any, Any, None]]:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        rests = [await self._exits.enter_async_context(AsyncRest(url)) for url in self._urls]
        self._exits.push_async_callback(self._tasks.stop)
        for work in self._work(rests):
            self._tasks.start(work)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._exits.aclose()


class RelayTransport(_Running):
    """A relay node of which this is the only reader.

    While it runs it reads all the time: an unread subscription stops a whole go-waku. Do not leave a go-waku running
    for long afterwards.

    Args:
        shards: pubsub topics that are read; messages go to the first.
    """

    def __init__(self, url: str, shards: Sequence[str] = SHARDS) -> None:
        super().__init__([url], shards)
        self._reads = {shard: asyncio.Event() for shard in self._shards}

    async def publish(self, message: WakuMessage) -> None:
        """Hand a message to the network; see `Transport`."""
        await again(self._relay.publish, self._shards[0], message)

    @asynccontextmanager
    async def listening(self, content_topic: str, receive: Receive) -> AsyncIterator[None]:
        """Receive the messages of a content topic inside the block; see `Transport`."""
        try:
            async with asyncio.timeout(RECOVER_SECONDS * SUBSCRIBE_ATTEMPTS):
                for first_read in self._reads.values():
                    await first_read.wait()
        except TimeoutError:
            raise NodeUnreachable("the relay cannot be read") from None
        with self._listeners.listening(content_topic, receive):
            yield

    def _work(self, rests: Sequence[AsyncRest]) -> list[Coroutine[Any, Any, None]]:
        self._relay = AsyncRelay(rests[0])
        return [self._poll(shard) for shard in self._shards]

    async def _poll(self, shard: str) -> None:
        while True:
            try:
                messages = await self._relay.read(shard)
            except NotSubscribed:
                self._reads[shard].clear()
                with suppress(NodeError):
                    await self._relay.subscribe(shard)
                await asyncio.sleep(POLL_SECONDS)
            except NodeError as error:
                self._reads[shard].clear()
                log.warning("relay_not_read: %s on %s", error, shard)
                await asyncio.sleep(RECOVER_SECONDS)
            else:
                self._reads[shard].set()
                self._listeners.deliver(messages)
                if not messages:
                    await asyncio.sleep(POLL_SECONDS)


class LightTransport(_Running):
    """A light client: filter and light push, at all given nodes at once.

    One working node is enough: every node publishes each message, and a message that several nodes deliver is handed
    over once. A node that only claims to do its part cannot be distinguished from one that does; it need not be.

    Args:
        url: of the REST API of a node that has peers which serve both, or serves them itself.
        shards: pubsub topics that are listened to, each at the cost of requests; messages go to the first.
        others: URLs of further such nodes.
    """

    def __init__(self, url: str, shards: Sequence[str] = SHARDS, *, others: Sequence[str] = ()) -> None:
        super().__init__([url, *others], shards)
        self._nodes: list[ServiceNode] = []
        #: Hashes of the last messages.
        self._recent_hashes: deque[bytes] = deque(maxlen=MOST_HEARD)

    async def publish(self, message: WakuMessage) -> None:
        """Hand a message to the network when its turn comes; see `Transport`. Return when one node has taken it."""
        attempts = [asyncio.ensure_future(node.publish(message)) for node in self._nodes]
        try:
            await _one_of(attempts)
        except BaseException:
            for attempt in attempts:
                attempt.cancel()
            raise
        if any(not attempt.done() for attempt in attempts):
            self._tasks.start(_let_end(attempts))

    @asynccontextmanager
    async def listening(self, content_topic: str, receive: Receive) -> AsyncIterator[None]:
        """Receive the messages of a content topic inside the block; see `Transport`."""
        with self._listeners.listening(content_topic, receive):
            subscriptions = [(node, node.subscription(content_topic)) for node in self._nodes]
            await _one_of([subscription for _, subscription in subscriptions])
            # An answer may come at once, and the node that has subscribed may only claim so: wait for the others.
            late = [subscription for node, subscription in subscriptions if node.is_well and not subscription.done()]
            if late:
                await asyncio.wait(late, timeout=OTHERS_SECONDS)
            for node, subscription in subscriptions:
                node.is_well = node.is_well and subscription.done()
            yield

    def _work(self, rests: Sequence[AsyncRest]) -> list[Coroutine[Any, Any, None]]:
        self._nodes = [ServiceNode(rest, self._shards, self._listeners.receivers, self._deliver) for rest in rests]
        return [work for node in self._nodes for work in node.work()]

    def _deliver(self, shard: str, messages: Sequence[WakuMessage]) -> None:
        """Hand over the messages of a node that have not come from another one already."""
        for message in messages:
            digest = message_hash(shard, message)
            if digest not in self._recent_hashes:
                self._recent_hashes.append(digest)
                self._listeners.deliver([message])


async def _one_of(futures: Collection[asyncio.Future[None]]) -> None:
    """Wait until one has succeeded; raise the first error if all fail."""
    errors: list[BaseException] = []
    pending = set(futures)
    while pending:
        finished_futures, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        failures = [error for future in finished_futures if (error := future.exception()) is not None]
        if len(failures) < len(finished_futures):
            return
        errors += failures
    raise errors[0]


async def _let_end(attempts: Collection[asyncio.Future[None]]) -> None:
    """Let attempts that are under way go on for a moment, then cancel them."""
    try:
        await asyncio.wait(attempts, timeout=OTHERS_SECONDS)
    finally:
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
