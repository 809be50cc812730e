"""How messages leave and come: by relay, or as a light client. One transport serves any number of clients."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol, Self

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from wakupush.client.tasks import Tasks
from wakupush.runtime.tracebacks import places
from wakupush.waku.async_relay import AsyncRelay
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.errors import NodeError, NodeUnreachable, NotSubscribed
from wakupush.waku.light import MOST_TOPICS, LightNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Any

    from wakupush.model.waku_message import WakuMessage

    Receive = Callable[[WakuMessage], None]

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Static shards of the Status network: messages go to the first.
SHARDS = ("/waku/2/rs/16/32",)
#: Seconds between two reads that brought nothing.
POLL_SECONDS = 0.1
#: Seconds between two attempts to read a node that does not answer.
RECOVER_SECONDS = 1.0
#: Attempts to publish a message, with waits around these seconds.
ATTEMPTS, FIRST_WAIT = 6, 0.5
#: Seconds between two requests to a filter server, and requests a minute: go-waku's limit, and nwaku's 30.
FILTER_PAUSE, FILTER_REQUESTS = 1.05, 28
#: Likewise for light push: go-waku refuses what follows within a second. Our node does not tell which kind serves it.
PUSH_PAUSE, PUSH_REQUESTS = 1.05, 60
#: Seconds between two pings of a filter server: nwaku forgets those who do not for five minutes.
PING_SECONDS = 30.0
#: Attempts to subscribe before whoever waits for it is told.
SUBSCRIBE_ATTEMPTS = 5


class Transport(Protocol):
    """What a client needs of a node."""

    async def publish(self, message: WakuMessage) -> None:
        """Hand a message to the network, and again a few times while the node does not take it.

        Raises:
            NodeError: it did not.
        """

    def listening(self, content_topic: str, receive: Receive) -> AbstractAsyncContextManager[None]:
        """Receive the messages of a content topic inside the block: every one that is published after it began.

        Args:
            content_topic: to be listened to.
            receive: called in the event loop, with own messages too; it must not block.

        Raises:
            NodeError: the node does not let us.
        """


class Listeners:
    """Who listens to what."""

    def __init__(self) -> None:
        self._receivers: dict[str, list[Receive]] = {}

    def __contains__(self, content_topic: str) -> bool:
        return content_topic in self._receivers

    def __iter__(self) -> Any:
        return iter(self._receivers)

    def add(self, content_topic: str, receive: Receive) -> None:
        """Let somebody listen."""
        self._receivers.setdefault(content_topic, []).append(receive)

    def remove(self, content_topic: str, receive: Receive) -> None:
        """Let somebody listen no longer."""
        receivers = self._receivers[content_topic]
        receivers.remove(receive)
        if not receivers:
            del self._receivers[content_topic]

    def deliver(self, messages: Sequence[WakuMessage]) -> None:
        """Hand messages to those who listen to their topics."""
        for message in messages:
            for receive in tuple(self._receivers.get(message.content_topic, ())):
                try:
                    receive(message)
                except Exception as error:  # noqa: BLE001 - an app's function must not stop the others
                    log.error("message_not_received", error=type(error).__name__, at=places(error))  # noqa: TRY400 - its text may hold secrets


class _Running:
    """A transport with tasks that run inside its block."""

    def __init__(self, url: str, shards: Sequence[str]) -> None:
        self._url = url
        self._shards = tuple(shards)
        self._listeners = Listeners()
        self._exits = AsyncExitStack()

    def _work(self, rest: AsyncRest) -> list[Coroutine[Any, Any, None]]:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        rest = await self._exits.enter_async_context(AsyncRest(self._url))
        tasks = Tasks()
        self._exits.push_async_callback(tasks.stop)
        for work in self._work(rest):
            tasks.start(work)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._exits.aclose()


class RelayTransport(_Running):
    """A relay node of which this is the only reader.

    While it runs it reads all the time: an unread subscription stops a whole go-waku. Leave no go-waku running for long
    after it.

    Args:
        url: of the node's REST API.
        shards: pubsub topics that are read; messages go to the first.
    """

    def __init__(self, url: str, shards: Sequence[str] = SHARDS) -> None:
        super().__init__(url, shards)
        self._reads = {shard: asyncio.Event() for shard in self._shards}

    async def publish(self, message: WakuMessage) -> None:
        """Hand a message to the network; see `Transport`."""
        await _again(self._relay.publish, self._shards[0], message)

    @asynccontextmanager
    async def listening(self, content_topic: str, receive: Receive) -> AsyncIterator[None]:
        """Receive the messages of a content topic inside the block; see `Transport`."""
        try:
            async with asyncio.timeout(RECOVER_SECONDS * SUBSCRIBE_ATTEMPTS):
                for read in self._reads.values():
                    await read.wait()
        except TimeoutError:
            raise NodeUnreachable("the relay cannot be read") from None
        self._listeners.add(content_topic, receive)
        try:
            yield
        finally:
            self._listeners.remove(content_topic, receive)

    def _work(self, rest: AsyncRest) -> list[Coroutine[Any, Any, None]]:
        self._relay = AsyncRelay(rest)
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
                log.warning("relay_not_read", shard=shard, error=str(error))
                await asyncio.sleep(RECOVER_SECONDS)
            else:
                self._reads[shard].set()
                self._listeners.deliver(messages)
                if not messages:
                    await asyncio.sleep(POLL_SECONDS)


class LightTransport(_Running):
    """A light client: filter and light push.

    Args:
        url: of the REST API of a node that has peers which serve both, or serves them itself.
        shards: pubsub topics that are listened to, each at the cost of requests; messages go to the first.
    """

    def __init__(self, url: str, shards: Sequence[str] = SHARDS) -> None:
        super().__init__(url, shards)
        #: Topics that are to be subscribed, each with who waits for it, and those that are.
        self._missing: dict[str, asyncio.Future[None]] = {}
        self._subscribed: set[str] = set()
        self._changed = asyncio.Event()
        self._filtering = Pacer(FILTER_PAUSE, FILTER_REQUESTS)
        self._pushing = Pacer(PUSH_PAUSE, PUSH_REQUESTS)

    async def publish(self, message: WakuMessage) -> None:
        """Hand a message to the network when its turn comes; see `Transport`."""
        await _again(self._pushing.send, self._light.publish, self._shards[0], message)

    @asynccontextmanager
    async def listening(self, content_topic: str, receive: Receive) -> AsyncIterator[None]:
        """Receive the messages of a content topic inside the block; see `Transport`."""
        self._listeners.add(content_topic, receive)
        try:
            if content_topic not in self._subscribed:
                await asyncio.shield(self._miss(content_topic))
            yield
        finally:
            self._listeners.remove(content_topic, receive)

    def _work(self, rest: AsyncRest) -> list[Coroutine[Any, Any, None]]:
        self._light = LightNode(rest)
        return [self._keep_subscribed(), self._poll()]

    def _miss(self, content_topic: str) -> asyncio.Future[None]:
        self._subscribed.discard(content_topic)
        if content_topic not in self._missing:
            future = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: done.exception())  # nobody may wait for it any more
            self._missing[content_topic] = future
            self._changed.set()
        return self._missing[content_topic]

    async def _keep_subscribed(self) -> None:
        tend_at = time.monotonic() + PING_SECONDS
        while True:
            self._changed.clear()
            if time.monotonic() >= tend_at:
                await self._tend()
                tend_at = time.monotonic() + PING_SECONDS
            elif self._missing:
                await self._subscribe(list(self._missing)[:MOST_TOPICS])
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(tend_at - time.monotonic()):
                        await self._changed.wait()

    async def _subscribe(self, content_topics: list[str]) -> None:
        """Subscribe to topics, and tell those who wait for them what came of it."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(NodeUnreachable),
            wait=wait_random_exponential(multiplier=FIRST_WAIT, max=5),
            stop=stop_after_attempt(SUBSCRIBE_ATTEMPTS),
            reraise=True,
        )
        wanted = [each for each in content_topics if each in self._listeners]
        problem: NodeError | None = None
        try:
            for shard in self._shards if wanted else ():
                await retrying(self._filtering.send, self._light.subscribe, shard, wanted)
            self._subscribed.update(wanted)
        except NodeError as error:
            problem = error
            log.warning("filter_not_subscribed", topics=len(wanted), error=str(error))
        for each in content_topics:
            if each not in wanted and each in self._listeners:
                continue  # somebody has begun to listen since: it is among the next
            future = self._missing.pop(each)
            if problem is None:
                future.set_result(None)
            else:
                future.set_exception(problem)
        if problem is not None:
            await asyncio.sleep(RECOVER_SECONDS)
            for each in wanted:
                if each in self._listeners:  # somebody was listening before
                    self._miss(each)

    async def _tend(self) -> None:
        """Keep the subscriptions alive, heal them if they are gone, and take back those that nobody needs."""
        if not self._subscribed:
            return
        try:
            await self._filtering.send(self._light.ping)
            unused = [each for each in self._subscribed if each not in self._listeners][:MOST_TOPICS]
            self._subscribed.difference_update(unused)
            for shard in self._shards if unused else ():
                await self._filtering.send(self._light.unsubscribe, shard, unused)
        except NotSubscribed:
            log.warning("filter_subscription_lost", topics=len(self._subscribed))
            for each in tuple(self._subscribed):
                self._miss(each)
        except NodeError as error:
            log.warning("filter_not_kept", error=str(error))

    async def _poll(self) -> None:
        while True:
            found = False
            for content_topic in [each for each in self._listeners if each in self._subscribed]:
                for shard in self._shards:
                    try:
                        messages = await self._light.read(shard, content_topic)
                    except NotSubscribed:
                        self._miss(content_topic)
                        break
                    except NodeError as error:
                        log.warning("filter_not_read", error=str(error))
                        await asyncio.sleep(RECOVER_SECONDS)
                        break
                    found = found or bool(messages)
                    self._listeners.deliver(messages)
            if not found:
                await asyncio.sleep(POLL_SECONDS)


class Pacer:
    """Spreads requests.

    Args:
        pause: seconds between two.
        most: requests within a minute.
    """

    def __init__(self, pause: float, most: int) -> None:
        self._pause = pause
        self._times: deque[float] = deque([-1e9] * most, maxlen=most)
        self._turn = asyncio.Lock()

    def wait(self, now: float) -> float:
        """Return the seconds to wait before the next request, and take it for sent then."""
        at = max(now, self._times[-1] + self._pause, self._times[0] + 60.0)
        self._times.append(at)
        return at - now

    async def send(self, request: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        """Send a request once it is its turn. The pause begins at the last one's end: it may have taken its time."""
        async with self._turn:
            await asyncio.sleep(self.wait(time.monotonic()))
            try:
                await request(*arguments)
            finally:
                self._times[-1] = time.monotonic()


async def _again(publish: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(NodeUnreachable),
        wait=wait_random_exponential(multiplier=FIRST_WAIT, max=2),
        stop=stop_after_attempt(ATTEMPTS),
        reraise=True,
    )
    await retrying(publish, *arguments)
