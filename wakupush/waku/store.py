"""The Store of a node: the messages that went over the network while ingest was not reading.

Source: docs/reference/contracts/waku-rest.md, sections 5 to 7. nwaku answers Store v3, go-waku Store v1:
its answer to the first query shows which one a node is.

A Store never has: ephemeral messages; on a nwaku, messages that arrived more than 20 s off their sender's time; what is
past the node's retention; what went over the network while the node itself was down, stalled or cut off from its peers.
Two nodes are better than one.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from wakupush.waku.client import NodeClient
from wakupush.waku.codec import PAYLOAD_LIMIT
from wakupush.waku.errors import AnswerTooLarge, EndlessPages, NodeError, NodeUnreadable
from wakupush.waku.rest import check, while_busy
from wakupush.waku.store_codec import (
    DATA_PAGE_SIZE,
    MOST_CONTENT_TOPICS,
    PAGE_SIZE,
    V1,
    V3,
    Cursor,
    Page,
    Query,
    decode_v1,
    decode_v3,
    hash_parameters,
    is_go_waku,
    speaks_v1,
)

Decode = Callable[[bytes, str, int], tuple[Page, Cursor | None]]

#: Pages of a walk at most; a Store that has more does not end.
MOST_PAGES = 100_000
#: Pages to read at most, to find a message with a time.
MOST_PAGES_TIMELESS = 125


class Store(NodeClient):
    """A client of one node's Store, or through it of another node's.

    Args:
        url: see `NodeClient`, as for the other two.
        timeout: seconds.
        max_read_bytes: bytes of a payload at most; a message with a larger one counts as malformed.
        peer: multiaddress of another node, whose Store this node asks in place of its own. A node that has no Store
            asks this peer from then on, whoever is meant.
        pace: called before each request, to wait.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        max_read_bytes: int = PAYLOAD_LIMIT,
        peer: str | None = None,
        pace: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(url, timeout=timeout)
        self._max_read_bytes = max_read_bytes
        self._peer = {} if peer is None else {"peerAddr": peer}
        self._pace = pace
        self._speaks_v1: bool | None = None
        #: Of a peer's Store a go-waku speaks v3, in its own words.
        self._is_go_waku: bool | None = None

    def walk(self, query: Query, *, with_messages: bool) -> Iterator[Page]:
        """Yield the pages that a query finds, the oldest messages first. A message can come twice.

        More than `MOST_CONTENT_TOPICS` content topics are walked in parts, one after the other.
        Messages that the Store gets during the walk may or may not be found. Messages outside the query count as
        malformed.

        Args:
            query: with a fixed end, ascending.
            with_messages: False asks for hashes alone if the node knows them; then fetch what is missing.

        Raises:
            NodeError: the Store failed; its subclasses say how. Begin again from the start: a cursor is of no use then.
        """
        topics = query.content_topics
        try:
            for start in range(0, max(1, len(topics)), MOST_CONTENT_TOPICS):
                part = replace(query, content_topics=topics[start : start + MOST_CONTENT_TOPICS])
                if self._is_v1(part):
                    yield from self._walk_v1(part)
                else:
                    yield from self._walk_v3(part, with_messages=with_messages)
        except NodeError:
            self._forget_kind()
            raise

    def fetch(self, query: Query, hashes: Sequence[bytes]) -> Iterator[Page]:
        """Yield the messages with these hashes (32 bytes each), that the node still has, in pages.

        For hashes that a walk found without their messages. Messages that its query did not ask for count as
        malformed.

        Raises:
            NodeError: the Store failed; its subclasses say how.
        """
        try:
            for start in range(0, len(hashes), DATA_PAGE_SIZE):
                yield from self._fetch(query, hashes[start : start + DATA_PAGE_SIZE])
        except NodeError:
            self._forget_kind()
            raise

    def oldest(self, pubsub_topic: str) -> int | None:
        """Return the least time of a message that the node has of a shard, in nanoseconds since the epoch.

        Messages without a time are passed over; in a Store v1 they come first. None if there are no others.

        Raises:
            NodeError: the Store failed; its subclasses say how.
        """
        query = Query(pubsub_topic=pubsub_topic, start=1, end=time.time_ns())
        for page in islice(self.walk(query, with_messages=True), MOST_PAGES_TIMELESS):
            times = [entry.message.timestamp for entry in page.messages if entry.message is not None]
            if any(times):
                return min(filter(None, times))
        return None

    def _forget_kind(self) -> None:
        """Learn anew after a failure which kind of node it is: it may be another one when it is back."""
        self._speaks_v1 = self._is_go_waku = None

    def _is_v1(self, query: Query) -> bool:
        if self._peer:
            return False
        if self._speaks_v1 is None:
            status, body = self._send(V3, parameters={**query.parameters(), "pageSize": "1"})
            self._speaks_v1 = speaks_v1(status, body)
        return self._speaks_v1

    def _walk_v3(self, query: Query, *, with_messages: bool) -> Iterator[Page]:
        page_size = DATA_PAGE_SIZE if with_messages else PAGE_SIZE
        parameters = {**query.parameters(page_size), "includeData": str(with_messages).lower()}
        for page, _ in self._pages(V3, parameters, decode_v3, query):
            yield page

    def _walk_v1(self, query: Query) -> Iterator[Page]:
        """Walk a go-waku's archive, in spans of time that are small enough.

        It sorts by the sender's time, in which messages without one come first, but goes on from the time that the last
        message of a page *arrived*. So when such messages fill a page, whatever is older than the last of them would be
        left out, with no sign of it. A span where that happens is halved.
        """
        spans = [(query.start, query.end)]
        while spans:
            start, end = spans.pop()
            parameters = {**query.parameters(), "startTime": str(start), "endTime": str(end)}
            for page, cursor in self._pages(V1, parameters, decode_v1, query):
                if cursor is not None and cursor.is_timeless and start < end:
                    middle = (start + end) // 2
                    spans += [(middle + 1, end), (start, middle)]
                    break
                yield page

    def _pages(
        self, path: str, parameters: Mapping[str, str], decode: Decode, query: Query
    ) -> Iterator[tuple[Page, Cursor | None]]:
        """Yield pages, each with where the next one begins, up to the last one.

        Raises:
            NodeError: the Store failed, or its pages do not come to an end.
        """
        been = set()
        at: Mapping[str, str] = {}
        size = int(parameters["pageSize"])
        for _ in range(MOST_PAGES):
            try:
                page, cursor = self._ask(path, {**parameters, **at, "pageSize": str(size)}, decode, query)
            except AnswerTooLarge:
                # Escapes in the JSON of strange content topics take six bytes a character.
                if size == 1:
                    raise
                size = 1
                continue
            size = int(parameters["pageSize"])
            if cursor is not None and not page.messages and not page.malformed:
                raise NodeUnreadable("an empty page is not the last one")
            yield page, cursor
            if cursor is None:
                return
            at = cursor.parameters
            key = tuple(at.values())
            if key in been:
                break
            been.add(key)
        raise EndlessPages("the pages do not end")

    def _fetch(self, query: Query, hashes: Sequence[bytes]) -> Iterator[Page]:
        """Yield one page with these messages, or one for each of them if all together are too large for an answer."""
        parameters = hash_parameters(hashes, for_go_waku=bool(self._is_go_waku))
        try:
            page, _ = self._ask(V3, parameters, decode_v3, query)
        except AnswerTooLarge:
            if len(hashes) == 1:
                raise
            for hash_ in hashes:
                yield from self._fetch(query, [hash_])
            return
        yield Page(tuple(entry for entry in page.messages if entry.message is not None), page.malformed)

    @while_busy
    def _ask(
        self, path: str, parameters: Mapping[str, str], decode: Decode, query: Query
    ) -> tuple[Page, Cursor | None]:
        self._pace()
        with self._answer(path, parameters={**parameters, **self._peer}) as (status, body):
            check(status, body)
            if self._peer and self._is_go_waku is None:
                self._is_go_waku = is_go_waku(body)
            page, cursor = decode(body, query.pubsub_topic, self._max_read_bytes)
        return query.only(page, timeless=path == V1), cursor
