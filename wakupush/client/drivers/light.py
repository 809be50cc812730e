"""A service node of a light client: subscribes there, keeps subscriptions alive, reads them, and publishes."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from wakupush.model.waku_message import WakuMessage
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.errors import AnswerLost, NodeError, NodeUnreachable, NotSubscribed, PushedToNobody
from wakupush.waku.light import MOST_TOPICS, LightNode

log = logging.getLogger(__name__)

#: Seconds to the next read when one brought nothing.
POLL_SECONDS = 0.1
#: Seconds between two attempts to read a node that does not answer.
RECOVER_SECONDS = 1.0
#: Attempts to publish a message, with waits around these seconds.
ATTEMPTS, FIRST_WAIT = 6, 0.5
#: Seconds between two requests to a filter server, and requests a minute: go-waku's limit, and nwaku's 30.
FILTER_PAUSE, FILTER_REQUESTS = 1.05, 28
#: The same for light push: go-waku refuses two messages within a second. Our node does not say which kind serves it.
PUSH_PAUSE, PUSH_REQUESTS = 1.05, 60
#: Seconds between two pings of a filter server: nwaku forgets clients that have not pinged for five minutes.
PING_SECONDS = 30.0
#: Subscriptions that are renewed in place of a ping, at most: each 100 are a request, and nwaku, which keeps 1,000 of a
#: client, refuses a hundred more from 901 on, even if it has them.
MOST_RENEWED = 800
#: Attempts to subscribe before the waiting callers get the error.
SUBSCRIBE_ATTEMPTS = 5


class ServiceNode:
    """One node that is used for filter and light push; `work` has to run all the time.

    Args:
        shards: pubsub topics that are listened to, each at the cost of requests.
        listened_topics: content topics that a client listens to, as they change.
        deliver: called with a shard and the messages that were read of it.
    """

    def __init__(
        self,
        rest: AsyncRest,
        shards: Sequence[str],
        listened_topics: Collection[str],
        deliver: Callable[[str, Sequence[WakuMessage]], None],
    ) -> None:
        self._light = LightNode(rest)
        self._shards = shards
        self._listened_topics = listened_topics
        self._deliver = deliver
        #: Topics that are to be subscribed, each with the future of its callers, and those that are subscribed.
        self._futures: dict[str, asyncio.Future[None]] = {}
        self._subscriptions: set[str] = set()
        self._changes = asyncio.Event()
        self._filtering = Pacer(FILTER_PAUSE, FILTER_REQUESTS)
        self._pushing = Pacer(PUSH_PAUSE, PUSH_REQUESTS)
        #: A ping says that the filter server knows some topic of ours, and a go-waku that hangs still answers it. So
        #: it proves nothing after a subscription, which may be all that is known, or a failure: topics are renewed.
        self._is_in_doubt = False
        #: False: it has failed lately, so a caller that has another node should not wait for this one.
        self.is_well = True

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines that have to run while the node is used."""
        return [self._keep_subscribed(), self._poll()]

    def subscription(self, content_topic: str) -> asyncio.Future[None]:
        """Return a future of a topic's subscription, done when it succeeds or fails. It is shared: do not cancel it."""
        if content_topic in self._subscriptions:
            future = asyncio.get_running_loop().create_future()
            future.set_result(None)
            return future
        return self._miss(content_topic)

    async def publish(self, message: WakuMessage) -> None:
        """Hand a message to the network when its turn comes, and again a few times while the node does not take it.

        Raises:
            NodeError: it did not.
        """
        await again(self._pushing.send, self._light.publish, self._shards[0], message)

    def _miss(self, content_topic: str) -> asyncio.Future[None]:
        self._subscriptions.discard(content_topic)
        if content_topic not in self._futures:
            future = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda ended_future: ended_future.exception())  # perhaps no caller waits any more
            self._futures[content_topic] = future
            self._changes.set()
        return self._futures[content_topic]

    async def _keep_subscribed(self) -> None:
        tend_at = time.monotonic() + PING_SECONDS
        ends_unused = False
        while True:
            self._changes.clear()
            if time.monotonic() >= tend_at:
                await self._tend(self._keep_alive)
                tend_at, ends_unused = time.monotonic() + PING_SECONDS, True
            elif self._futures:
                await self._subscribe(list(self._futures)[:MOST_TOPICS])
            elif ends_unused and not self._filtering.pause(time.monotonic()):
                await self._tend(self._end_unused)
                ends_unused = False
            else:  # unused topics are ended when their time comes: new callers go first
                until = self._filtering.pause(time.monotonic()) if ends_unused else tend_at - time.monotonic()
                with suppress(TimeoutError):
                    async with asyncio.timeout(until):
                        await self._changes.wait()

    async def _subscribe(self, content_topics: list[str]) -> None:
        retrying = _retrying(SUBSCRIBE_ATTEMPTS, most_wait=5)
        topics = [topic for topic in content_topics if topic in self._listened_topics]
        problem: NodeError | None = None
        try:
            for shard in self._shards if topics else ():
                await retrying(self._filtering.send, self._light.subscribe, shard, topics)
            self._subscriptions.update(topics)
            if topics:
                self.is_well, self._is_in_doubt = True, True
        except NodeError as error:
            problem, self.is_well, self._is_in_doubt = error, False, True
            log.warning("filter_not_subscribed: %s; topics: %d", error, len(topics))
        for topic in content_topics:
            if topic not in topics and topic in self._listened_topics:
                continue  # a caller has begun to listen since: it is among the next
            future = self._futures.pop(topic)
            if problem is None:
                future.set_result(None)
            else:
                future.set_exception(problem)
        if problem is not None:
            await asyncio.sleep(RECOVER_SECONDS)
            for topic in topics:
                if topic in self._listened_topics:  # a caller was listening before
                    self._miss(topic)

    async def _tend(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Renew or end subscriptions; a lost one is queued to be made again."""
        try:
            await work()
        except NotSubscribed:
            log.warning("filter_subscription_lost: topics: %d", len(self._subscriptions))
            for topic in tuple(self._subscriptions):
                self._miss(topic)
        except NodeError as error:
            self.is_well, self._is_in_doubt = False, True
            log.warning("filter_not_kept: %s", error)

    async def _keep_alive(self) -> None:
        if not self._subscriptions:
            return
        topics = [topic for topic in self._subscriptions if topic in self._listened_topics]
        if self._is_in_doubt and 0 < len(topics) * len(self._shards) <= MOST_RENEWED:
            await self._renew(topics)
        else:
            await self._filtering.send(self._light.ping)
        self.is_well = self.is_well or not self._is_in_doubt

    async def _end_unused(self) -> None:
        topics = [topic for topic in self._subscriptions if topic not in self._listened_topics][:MOST_TOPICS]
        self._subscriptions.difference_update(topics)
        for shard in self._shards if topics else ():
            await self._filtering.send(self._light.unsubscribe, shard, topics)

    async def _renew(self, content_topics: list[str]) -> None:
        """Renew subscriptions. Reading goes on; if the renewal fails, the topics count as missing.

        Raises:
            NodeError: the node did not take all of them.
        """
        try:
            for first in range(0, len(content_topics), MOST_TOPICS):
                for shard in self._shards:
                    some = content_topics[first : first + MOST_TOPICS]
                    await self._filtering.send(self._light.subscribe, shard, some)
        except NodeError:
            for topic in content_topics:
                self._miss(topic)
            raise
        self._is_in_doubt = False

    async def _poll(self) -> None:
        while True:
            any_messages = False
            for content_topic in [topic for topic in self._listened_topics if topic in self._subscriptions]:
                for shard in self._shards:
                    try:
                        messages = await self._light.read(shard, content_topic)
                    except NotSubscribed:
                        self._miss(content_topic)
                        break
                    except NodeError as error:
                        self.is_well = False
                        log.warning("filter_not_read: %s", error)
                        await asyncio.sleep(RECOVER_SECONDS)
                        break
                    any_messages = any_messages or bool(messages)
                    self._deliver(shard, messages)
            if not any_messages:
                await asyncio.sleep(POLL_SECONDS)


class Pacer:
    """Spreads requests over time.

    Args:
        pause: seconds between two.
        most: requests within a minute.
    """

    def __init__(self, pause: float, most: int) -> None:
        self._pause = pause
        self._times: deque[float] = deque([-1e9] * most, maxlen=most)
        self._turn = asyncio.Lock()

    def wait(self, now: float) -> float:
        """Return the seconds to wait before the next request, and count it as sent at that time."""
        pause = self.pause(now)
        self._times.append(now + pause)
        return pause

    def pause(self, now: float) -> float:
        """Return the seconds until the next request may be sent."""
        return max(0.0, self._times[-1] + self._pause - now, self._times[0] + 60.0 - now)

    async def send(self, request: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        """Send a request when its turn comes. The pause begins at the end of the last one, which may have been slow."""
        async with self._turn:
            await asyncio.sleep(self.wait(time.monotonic()))
            try:
                await request(*arguments)
            finally:
                self._times[-1] = time.monotonic()


async def again(publish: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
    """Publish, and again a few times while the node cannot be reached.

    A nwaku refuses a light push of a message that it knows. After an answer that was lost this counts as success.
    """
    is_perhaps_out = False

    async def attempt() -> None:
        nonlocal is_perhaps_out
        try:
            await publish(*arguments)
        except AnswerLost:
            is_perhaps_out = True
            raise
        except PushedToNobody:
            if not is_perhaps_out:
                raise

    await _retrying(ATTEMPTS, most_wait=2)(attempt)


def _retrying(attempts: int, *, most_wait: float) -> AsyncRetrying:
    return AsyncRetrying(
        retry=retry_if_exception_type(NodeUnreachable),
        wait=wait_random_exponential(multiplier=FIRST_WAIT, max=most_wait),
        stop=stop_after_attempt(attempts),
        reraise=True,
    )
