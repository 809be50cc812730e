"""Publishing many messages at once, on two nodes if there are several: it is enough that one takes a message.

libcurl drives many small requests side by side at a sixth of the CPU time of any client in Python: see
docs/adr/0034-libcurl-publishes-answers.md.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import pycurl

from wakupush.model.waku_message import WakuMessage
from wakupush.runtime import metrics
from wakupush.runtime.connections.curl import curl_handle, keep_within
from wakupush.waku.codec import encode_message
from wakupush.waku.errors import NodeError, NodeRefused, NodeUnreachable, NotPublished
from wakupush.waku.rest import check_published, messages_path

#: Seconds after which publishing an answer has failed this time: its client waits 3 s.
PUBLISH_SECONDS: Final = 2.0
#: Longest wait in seconds before the second try of a message.
MOST_WAIT: Final = 0.3
#: The number of nodes that get each message at once.
NODES_AT_ONCE: Final = 2
#: Seconds to wait for late nodes once some node has taken every message: the node that took it may be mute.
LATE_SECONDS: Final = 1.0
#: Times in a row that a node was late or unreachable, or published to nobody on a shard, after which it rests, or does
#: so on that shard; and seconds for which it does.
MOST_FAILURES: Final = 2
REST_SECONDS: Final = 5.0
#: Bytes of an answer at most: it is "OK", or a short reason.
ANSWER_LIMIT: Final = 64 * 1024
#: How often to try a message that no node takes. The usual reason is that a node closed an idle connection.
_TRIES: Final = 2
#: Seconds between two checks for requests that have timed out.
_LOOK_SECONDS: Final = 1.0
#: Seconds in which more answers may come after one, to be read together: each look at all requests has its price.
_GATHER_SECONDS: Final = 0.001

#: In place of a shard.
_ALL_SHARDS: Final = ""
_NOT_BEGUN: Final = NodeUnreachable("it was not reached before")


class Publisher:
    """A client of nodes that only publishes. One per process, made after a fork; its threads may share it.

    Args:
        urls: of the REST APIs, by the nodes' names. Proxies of the environment are not used.
        timeout: seconds for one request.
        connections: requests to a node at the same time at most, of each thread.
        left_out: returns the names of nodes that nothing is to be published on for a shard, unless no others are left.
        without_peers: returns the names of nodes that have no relay peer on a shard: their success is none.
    """

    def __init__(
        self,
        urls: Mapping[str, str],
        *,
        timeout: float,
        connections: int,
        left_out: Callable[[str], Collection[str]] = lambda _shard: (),
        without_peers: Callable[[str], Collection[str]] = lambda _shard: (),
    ) -> None:
        self._urls = {name: url.rstrip("/") for name, url in urls.items()}
        self._timeout = timeout
        self._connections = connections
        self._left_out = left_out
        self._without_peers = without_peers
        # Of threads that publish at the same time each has its own.
        self._idle: list[_Requests] = []
        #: By name and shard, `_ALL_SHARDS` if it fails as a whole: failures in a row, and until when it rests, in
        #: monotonic seconds.
        self._failures: Counter[tuple[str, str]] = Counter()
        self._rests: dict[tuple[str, str], float] = {}

    def publish(self, messages: Sequence[tuple[str, WakuMessage]]) -> list[NodeError | None]:
        """Publish messages side by side, and return the error of each; None if a node took it.

        No further request is begun on a node that is unreachable, nor for a shard on which it publishes to nobody. So a
        node that hangs delays this by at most the time-outs of two messages, and by `LATE_SECONDS` if another node
        takes them all.

        Args:
            messages: each with its shard.
        """
        results: list[NodeError | None] = [None] * len(messages)
        positions: list[int] = list(range(len(messages)))
        for number in range(_TRIES):
            if number:
                time.sleep(random.uniform(0, MOST_WAIT))
            answers = self._post([messages[position] for position in positions])
            for position, answer in zip(positions, answers, strict=True):
                results[position] = answer
            positions = [position for position in positions if isinstance(results[position], NodeUnreachable)]
            if not positions:
                break
        return results

    def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop().close()

    def _choose_nodes(self, shard: str) -> list[str]:
        """Return the names of the nodes to publish on now for a shard."""
        names = list(self._urls)
        if len(names) > 1:
            left_out, now = self._left_out(shard), time.monotonic()
            names = [name for name in names if name not in left_out] or names
            names = [
                name
                for name in names
                if all(self._rests.get((name, which), now) <= now for which in (_ALL_SHARDS, shard))
            ] or names
        return random.sample(names, NODES_AT_ONCE) if len(names) > NODES_AT_ONCE else names

    def _post(self, messages: Sequence[tuple[str, WakuMessage]]) -> list[NodeError | None]:
        names_by_shard = {shard: self._choose_nodes(shard) for shard in {shard for shard, _ in messages}}
        positions = defaultdict(list)
        for position, (shard, _) in enumerate(messages):
            for name in names_by_shard[shard]:
                positions[name].append((position, shard))
        lonely_places = {(name, shard) for shard in names_by_shard for name in self._without_peers(shard)}
        requests = self._requests()
        try:
            answers, queues = requests.post(messages, positions, lonely_places)
        except BaseException:
            requests.close()  # nobody waits any more for the open requests
            raise
        self._idle.append(requests)
        for name, queue in queues.items():
            self._note(name, queue)
        return answers

    def _note(self, name: str, queue: _NodeRequests) -> None:
        """Count the results of the requests to a node, and let the node rest if it fails, or a shard of it."""
        results = queue.results
        for result, count in results.items():
            metrics.PUBLICATIONS.labels(name, result).inc(count)
        is_failing = {shard: shard in queue.closed_shards for shard in queue.asked_shards}
        if results:
            is_failing[_ALL_SHARDS] = bool(results["late"] or results["unreachable"])
        for shard, fails in is_failing.items():
            self._failures[name, shard] = self._failures[name, shard] + 1 if fails else 0
            if self._failures[name, shard] >= MOST_FAILURES:
                self._rests[name, shard] = time.monotonic() + REST_SECONDS

    def _requests(self) -> _Requests:
        with suppress(IndexError):
            return self._idle.pop()
        return _Requests(self._urls, self._timeout, self._connections)


class _NodeRequests:
    """The requests to one node."""

    def __init__(
        self,
        url: str,
        handles: Sequence[pycurl.Curl],
        positions: Sequence[tuple[int, str]],
        lonely_shards: Collection[str],
    ) -> None:
        self.url = url
        #: Shards on which it has no relay peer.
        self.lonely_shards = lonely_shards
        self.free = list(handles)
        #: Of messages, each with its shard.
        self._positions = iter(positions)
        #: Whether it answered so far.
        self.is_reached = True
        #: Shards for which it gave an answer, and those on which it published to nobody.
        self.asked_shards: set[str] = set()
        self.closed_shards: set[str] = set()
        self.results: Counter[str] = Counter()

    def next(self) -> int | None:
        """Return the position of the message that is to be begun now, None if none is."""
        if not self.free or not self.is_reached:
            return None
        return next((position for position, shard in self._positions if shard not in self.closed_shards), None)

    def note(self, handle: pycurl.Curl, shard: str, outcome: NodeError | None) -> None:
        """Note the outcome of a request, whose handle is free again."""
        self.free.append(handle)
        self.results[_RESULTS.get(type(outcome), "unreachable")] += 1
        if isinstance(outcome, NodeUnreachable) and not isinstance(outcome, NotPublished):
            self.is_reached = False
            return
        self.asked_shards.add(shard)
        if isinstance(outcome, NotPublished):
            self.closed_shards.add(shard)


class _Post:
    """Messages on their way to nodes."""

    def __init__(
        self, messages: Sequence[tuple[str, WakuMessage]], queues: Sequence[_NodeRequests], nodes: Iterable[int]
    ) -> None:
        self._messages = messages
        self._queues = queues
        self._answers: list[NodeError | None] = [_NOT_BEGUN] * len(messages)
        #: By position: how many nodes were to get a message, and how many refused it.
        self._nodes: Counter[int] = Counter(nodes)
        self._refusals: Counter[int] = Counter()
        self._bodies: dict[int, str] = {}
        self.under_way: dict[pycurl.Curl, tuple[_NodeRequests, int, bytearray]] = {}
        #: When to give up late requests, in monotonic seconds; None until every message was taken.
        self._ends: float | None = None

    def begin(self) -> Iterator[pycurl.Curl]:
        """Yield the requests that can be begun now."""
        for queue in self._queues:
            while (position := queue.next()) is not None:
                handle, answer = queue.free.pop(), bytearray()
                pubsub_topic, message = self._messages[position]
                if position not in self._bodies:
                    self._bodies[position] = json.dumps(encode_message(message))
                handle.setopt(pycurl.URL, (queue.url + messages_path(pubsub_topic)).encode())
                handle.setopt(pycurl.POSTFIELDS, self._bodies[position])
                handle.setopt(pycurl.WRITEFUNCTION, keep_within(answer, ANSWER_LIMIT))
                self.under_way[handle] = queue, position, answer
                yield handle

    def note(self, handle: pycurl.Curl, error: tuple[int, str] | None) -> None:
        """Note how a request ended."""
        queue, position, answer = self.under_way.pop(handle)
        outcome, shard = _outcome(handle, answer, error), self._messages[position][0]
        if outcome is None and shard in queue.lonely_shards:
            outcome = NotPublished("the node says that it did, but has no peers there")
        queue.note(handle, shard, outcome)
        if outcome is None or self._answers[position] is not None:
            self._answers[position] = outcome
        if outcome is not None and not isinstance(outcome, NodeUnreachable):
            self._refusals[position] += 1

    def is_over(self) -> bool:
        """Return whether to give up the open requests: some node took every message, and the other node is late."""
        if self._ends is None and len(self._queues) > 1 and not any(self._answers):
            self._ends = time.monotonic() + LATE_SECONDS
        return self._ends is not None and time.monotonic() >= self._ends

    def give_up(self) -> Iterator[pycurl.Curl]:
        """Yield the requests that are under way, as late ones."""
        for handle, (queue, _, _) in self.under_way.items():
            queue.results["late"] += 1
            yield handle
        self.under_way.clear()

    def patience(self) -> float:
        """Return how many seconds to wait at most."""
        return _LOOK_SECONDS if self._ends is None else max(0.0, self._ends - time.monotonic())

    def answers(self) -> list[NodeError | None]:
        """Return the error of each message; None if some node took it."""
        for position, times in self._refusals.items():
            if times < self._nodes[position] and self._answers[position] is not None:
                self._answers[position] = _NOT_BEGUN
        return self._answers


class _Requests:
    """Requests side by side, of one thread at a time; connections are kept."""

    def __init__(self, urls: Mapping[str, str], timeout: float, connections: int) -> None:
        self._urls = urls
        self._multi = pycurl.CurlMulti()
        self._handles = {name: [curl_handle(timeout=timeout) for _ in range(connections)] for name in urls}

    def post(
        self,
        messages: Sequence[tuple[str, WakuMessage]],
        positions: Mapping[str, Sequence[tuple[int, str]]],
        lonely_places: Collection[tuple[str, str]],
    ) -> tuple[list[NodeError | None], dict[str, _NodeRequests]]:
        """Post messages to nodes.

        Args:
            messages: each with its shard.
            positions: by the name of a node, those of the messages that it gets, each with its shard.
            lonely_places: names of nodes, and shards on which these have no relay peer.

        Returns:
            The error of each message, and by node what came of the requests.
        """
        queues = {
            name: _NodeRequests(
                self._urls[name],
                self._handles[name],
                of_node,
                {shard for lonely, shard in lonely_places if lonely == name},
            )
            for name, of_node in positions.items()
        }
        nodes = (position for of_node in positions.values() for position, _ in of_node)
        post = _Post(messages, list(queues.values()), nodes)
        while True:
            for handle in post.begin():
                self._multi.add_handle(handle)
            if not post.under_way:
                break
            self._multi.perform()
            _, succeeded_handles, failed_handles = self._multi.info_read()
            for handle, error in [
                *((handle, None) for handle in succeeded_handles),
                *((failure[0], failure[1:]) for failure in failed_handles),
            ]:
                self._multi.remove_handle(handle)
                post.note(handle, error)
            if post.is_over():
                for handle in post.give_up():
                    self._multi.remove_handle(handle)
                break
            if not succeeded_handles and not failed_handles:
                self._multi.select(post.patience())
                if len(post.under_way) > 1:
                    time.sleep(_GATHER_SECONDS)
        return post.answers(), queues

    def close(self) -> None:
        """Close all connections, and give up open requests."""
        for handle in (handle for handles in self._handles.values() for handle in handles):
            with suppress(pycurl.error):
                self._multi.remove_handle(handle)
            handle.close()
        self._multi.close()


#: The result of a request, as the metric calls it; "unreachable" for any other.
_RESULTS: Final = {
    type(None): "taken",
    NodeRefused: "refused",
    NotPublished: "not_published",
}


def _outcome(handle: pycurl.Curl, body: bytearray, error: tuple[int, str] | None) -> NodeError | None:
    """Return the error, None if the node took the message."""
    if error is not None:
        code, _ = error
        if code == pycurl.E_WRITE_ERROR:
            return NodeUnreachable("the answer does not end: a proxy's page, not what a node says of a message")
        # Its text may hold the URL, with a password.
        return NodeUnreachable(f"libcurl's error {code}")
    try:
        check_published(handle.getinfo(pycurl.RESPONSE_CODE), bytes(body))
    except NodeError as refused:
        return refused
    return None
