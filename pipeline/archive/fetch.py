"""``wakupush pipeline fetch-archive``: fetches the Stores' messages on the server's own topics into Parquet."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from wakupush.model.waku_message import WakuMessage
from wakupush.pipeline.archive.files import HOUR, Archive, Hour
from wakupush.pipeline.errors import PipelineError
from wakupush.protocol.keys import PublicKey
from wakupush.protocol.topics import server_content_topics
from wakupush.runtime.settings import Settings, SettingsError
from wakupush.server.engine.identity import NoIdentityError, load_identity, load_public_keys
from wakupush.waku.errors import NodeError
from wakupush.waku.store import Store
from wakupush.waku.store_codec import Query

#: Seconds after its end for which an hour may still get messages, from senders whose clocks are slow.
SETTLE_SECONDS: Final = 600.0
#: Hours that are fetched from a Store at the same time: few, as others use the node too.
CONNECTIONS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTotals:
    """The counts of a run."""

    #: Hours that were fetched, those of them that failed, and those that were there already.
    hours: int
    failed: int
    complete_before: int
    messages: int
    #: Messages from the Stores that cannot be read.
    malformed: int
    #: The first hour that failed, and why.
    error: str | None


def run(settings: Settings, since: float, progress: Callable[[int, int], None]) -> FetchTotals:
    """Fetch the hours since a time that are not complete yet.

    A connection fetches an hour from all Stores, and its commit has that hour alone. So the next run goes on
    where a killed one ended. The present hour, hours that have just ended and hours without messages are fetched each
    time.

    Args:
        settings: with the server's public key.
        since: seconds since the epoch.
        progress: called with the hours done, and their total.

    Raises:
        PipelineError: the text says what to do.
    """
    servers = server_keys(settings)
    archive = Archive.of(settings.pipeline, servers[0])
    now = time.time()
    hours = [
        Hour(shard, start)
        for start in range(int(since * 10**9) // HOUR * HOUR, int(now * 10**9), HOUR)
        for shard in settings.waku.shards
    ]
    waku = settings.waku
    topics = tuple({topic for server in servers for topic in server_content_topics(server)})
    messages = failures = 0
    error = None
    with ExitStack() as stack:
        stack.enter_context(archive.writing())
        stores = [
            stack.enter_context(Store(url, timeout=waku.timeout, max_read_bytes=waku.max_read_bytes))
            for url in settings.stores.values()
        ]
        walks = [_Walk(hour, stores, topics, now) for hour in hours if not archive.is_complete(hour)]
        progress(0, len(walks))
        threads = stack.enter_context(ThreadPoolExecutor(CONNECTIONS))
        # Hours that wait are not fetched any more if this ends early.
        stack.callback(threads.shutdown, cancel_futures=True)
        walking = {
            threads.submit(archive.write, walk.hour, walk.pages(), is_complete=walk.is_complete): walk for walk in walks
        }
        for count, future in enumerate(as_completed(walking), 1):
            try:
                messages += future.result()
            except NodeError as failure:
                failures += 1
                error = error or f"{walking[future].hour.path}: {type(failure).__name__}: {failure}"
            except OSError as failure:
                raise PipelineError(f"the archive cannot be written: {failure.strerror}") from None
            progress(count, len(walks))
    return FetchTotals(
        hours=len(walks),
        failed=failures,
        complete_before=len(hours) - len(walks),
        messages=messages,
        malformed=sum(walk.malformed for walk in walks),
        error=error,
    )


def server_keys(settings: Settings) -> tuple[PublicKey, ...]:
    """Return the public keys that the server's topics are derived from, today's first.

    Raises:
        PipelineError: the settings name no key, or one that cannot be read.
    """
    try:
        if settings.public_key is not None:
            return load_public_keys(settings)
        return tuple(key.public_key for key in load_identity(settings).keys)
    except SettingsError as error:
        raise PipelineError(str(error)) from None
    except NoIdentityError as error:
        raise PipelineError(f"WAKUPUSH_PUBLIC_KEY is missing, and {error}") from None


class _Walk:
    """The messages of an hour from all Stores, each once."""

    def __init__(self, hour: Hour, stores: list[Store], topics: tuple[str, ...], now: float) -> None:
        self.hour, self.malformed = hour, 0
        self.is_complete = hour.end / 10**9 + SETTLE_SECONDS < now
        self._stores, self._topics = stores, topics

    def pages(self) -> Iterator[dict[bytes, WakuMessage]]:
        """Yield messages by their hashes.

        Raises:
            NodeError: a Store failed.
        """
        start, end = self.hour.start, self.hour.end
        query = Query(pubsub_topic=self.hour.shard, content_topics=self._topics, start=max(1, start), end=end)
        hashes: set[bytes] = set()
        for store in self._stores:
            for page in store.walk(query, with_messages=True):
                self.malformed += page.malformed
                yield {
                    message.hash: message.message
                    for message in page.messages
                    if message.message is not None
                    and message.message.content_topic in self._topics
                    and message.hash not in hashes
                }
                hashes.update(message.hash for message in page.messages)
