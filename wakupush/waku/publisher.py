"""Publishing many messages at once.

libcurl, which drives many small requests side by side at a sixth of the CPU time of any client in Python: see
docs/adr/0034-libcurl-publishes-answers.md.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pycurl

from wakupush.runtime.connections.curl import curl_handle, keep_within
from wakupush.waku.codec import encode_message
from wakupush.waku.errors import NodeError, NodeUnreachable, NodeUnreadable
from wakupush.waku.rest import check_published, messages_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wakupush.model.waku_message import WakuMessage

#: Largest wait in seconds before messages are published once more.
MOST_WAIT: Final = 0.3
#: Bytes of an answer at most: it says "OK", or in some words why not.
ANSWER_LIMIT: Final = 64 * 1024
#: Times that what the node was unreachable for is tried: most often it closed a connection that was idle.
_TRIES: Final = 2
#: Seconds until it is looked whether a request has timed out.
_LOOK_SECONDS: Final = 1.0
#: Seconds in which more answers may come after one, to be read together: each look at all requests has its price.
_GATHER_SECONDS: Final = 0.001


class Publisher:
    """A client of one node that only publishes. One per process, made after a fork; its threads may share it.

    Args:
        url: of the REST API. Proxies of the environment are not used.
        timeout: seconds for one request.
        connections: requests at the same time at most, of each thread.
    """

    def __init__(self, url: str, *, timeout: float, connections: int) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout
        self._connections = connections
        # Of threads that publish at the same time each has its own.
        self._idle: list[_Requests] = []

    def publish(self, messages: Sequence[tuple[str, WakuMessage]]) -> list[NodeError | None]:
        """Publish messages side by side, and return for each what went wrong.

        Where the node is unreachable no more is begun, so that a node that hangs holds nobody up for longer than two
        messages do.

        Args:
            messages: each with its shard.
        """
        results: list[NodeError | None] = [None] * len(messages)
        left: list[int] = list(range(len(messages)))
        for number in range(_TRIES):
            if number:
                time.sleep(random.uniform(0, MOST_WAIT))
            answers = self._post((messages[position] for position in left), len(left))
            for position, answer in zip(left, answers, strict=True):
                results[position] = answer
            left = [position for position in left if isinstance(results[position], NodeUnreachable)]
            if not left:
                break
        return results

    def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop().close()

    def _post(self, messages: Iterable[tuple[str, WakuMessage]], count: int) -> list[NodeError | None]:
        requests = self._requests()
        try:
            answers = requests.post(messages, count)
        except BaseException:
            requests.close()  # what is under way belongs to nobody any more
            raise
        self._idle.append(requests)
        return answers

    def _requests(self) -> _Requests:
        with suppress(IndexError):
            return self._idle.pop()
        return _Requests(self._url, self._timeout, self._connections)


class _Requests:
    """Requests side by side, of one thread at a time; connections are kept."""

    def __init__(self, url: str, timeout: float, connections: int) -> None:
        self._url = url
        self._multi = pycurl.CurlMulti()
        self._handles = [curl_handle(timeout=timeout) for _ in range(connections)]

    def post(self, messages: Iterable[tuple[str, WakuMessage]], count: int) -> list[NodeError | None]:
        """Post each of so many messages, and return what went wrong; those that are not begun are unreachable."""
        not_begun = NodeUnreachable("it was not reached before")
        answers: list[NodeError | None] = [not_begun] * count
        waiting = enumerate(messages)
        free = list(self._handles)
        under_way: dict[pycurl.Curl, tuple[int, bytearray]] = {}
        is_reached = True
        while True:
            while free and is_reached and (following := next(waiting, None)) is not None:
                position, (pubsub_topic, message) = following
                handle, body = free.pop(), bytearray()
                self._begin(handle, pubsub_topic, message, body)
                under_way[handle] = position, body
            if not under_way:
                return answers
            self._multi.perform()
            _, done, failed = self._multi.info_read()
            for handle, error in [*((handle, None) for handle in done), *((each[0], each[1:]) for each in failed)]:
                self._multi.remove_handle(handle)
                position, body = under_way.pop(handle)
                answers[position] = _outcome(handle, body, error)
                is_reached = is_reached and not isinstance(answers[position], NodeUnreachable)
                free.append(handle)
            if not done and not failed:
                self._multi.select(_LOOK_SECONDS)
                if len(under_way) > 1:
                    time.sleep(_GATHER_SECONDS)

    def close(self) -> None:
        """Close all connections, and give up what is under way."""
        for handle in self._handles:
            with suppress(pycurl.error):
                self._multi.remove_handle(handle)
            handle.close()
        self._multi.close()

    def _begin(self, handle: pycurl.Curl, pubsub_topic: str, message: WakuMessage, body: bytearray) -> None:
        handle.setopt(pycurl.URL, self._url + messages_path(pubsub_topic))
        handle.setopt(pycurl.POSTFIELDS, json.dumps(encode_message(message)))
        handle.setopt(pycurl.WRITEFUNCTION, keep_within(body, ANSWER_LIMIT))
        self._multi.add_handle(handle)


def _outcome(handle: pycurl.Curl, body: bytearray, error: tuple[int, str] | None) -> NodeError | None:
    """Return what went wrong, None if the node took the message."""
    if error is not None:
        code, _ = error
        if code == pycurl.E_WRITE_ERROR:
            return NodeUnreadable("the answer does not end")
        # Its text may name who is asked, with a password.
        return NodeUnreachable(f"libcurl's error {code}")
    try:
        check_published(handle.getinfo(pycurl.RESPONSE_CODE), bytes(body))
    except NodeError as refused:
        return refused
    return None
