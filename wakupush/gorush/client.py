"""The HTTP client of gorush: one post in, one outcome per notification out.

Source: docs/reference/contracts/gorush.md, sections 1, 2 and 5. gorush runs in sync mode: an answer comes when the
slowest push is done.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus

import pycurl

from wakupush.gorush.outcomes import PostOutcome, read_answer
from wakupush.model.failures import Failure
from wakupush.model.notifications import Notification
from wakupush.runtime.connections.curl import CurlHandles, curl_handle, keep_within, set_content, set_timeout

#: Notifications in a post at most (gorush's own max_notification).
POST_LIMIT = 100
#: Bytes of an answer that are read; far above 100 failures with their texts.
ANSWER_LIMIT = 8 * 1024 * 1024
#: Seconds for the health check.
HEALTH_TIMEOUT = 2.0
_DIGITS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of a post."""

    #: One for each notification, in the same order.
    outcomes: list[PostOutcome]
    #: Seconds to wait before the next post, as gorush or a proxy before it asks.
    retry_after: float = 0.0


class Gorush:
    """A client of gorush. One per process, made after a fork; its threads may share it.

    Args:
        url: for example ``http://127.0.0.1:8088``. Proxies of the environment are not used: posts hold device tokens.
        connect_timeout: seconds to wait for a connection.
        timeout: seconds that a post takes from its beginning to the end of its answer, connecting included. gorush
            needs up to 60 to fail an iOS push.
    """

    def __init__(self, url: str, *, connect_timeout: float = 5.0, timeout: float = 75.0) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._handles = CurlHandles(partial(curl_handle, timeout=timeout, connect_timeout=connect_timeout))

    def post(self, notifications: Sequence[Notification]) -> PostResult:
        """Post notifications and return the outcome of each, in their order.

        No fault of gorush or the network raises. Without a connection the outcome is `GORUSH_UNREACHABLE`: nothing was
        sent. Without a whole answer in time it is `GORUSH_TIMED_OUT`: gorush goes on, and the result is unknown. If the
        answer is too long, it is `GORUSH_UNREADABLE`. What may have been sent is never sent again.

        Args:
            notifications: 1 to 100, each with its own ``notif_id``.

        Raises:
            ValueError: there are none, too many, or two with the same ``notif_id``.
        """
        if not 1 <= len(notifications) <= POST_LIMIT:
            raise ValueError(f"a post has 1 to {POST_LIMIT} notifications, not {len(notifications)}")
        if len({notification.notif_id for notification in notifications}) < len(notifications):
            raise ValueError("two notifications of a post have the same notif_id")
        content = json.dumps({"notifications": [notification.to_json() for notification in notifications]}).encode()
        answer = self._request("/api/push", self._timeout, content)
        if isinstance(answer, Failure):
            return PostResult([answer] * len(notifications))
        retry_after = read_retry_after(answer.retry_after, time.time())
        return PostResult(read_answer(notifications, answer.status, bytes(answer.body)), retry_after)

    def healthy(self) -> bool:
        """Return whether gorush listens. This checks neither its queue nor the platforms."""
        answer = self._request("/healthz", HEALTH_TIMEOUT)
        return not isinstance(answer, Failure) and answer.status == HTTPStatus.OK

    def close(self) -> None:
        """Close all connections."""
        self._handles.close()

    def _request(self, path: str, timeout: float, content: bytes | None = None) -> _Answer | Failure:
        answer = _Answer()
        with self._handles.take() as handle:
            handle.setopt(pycurl.URL, (self.url + path).encode())
            set_timeout(handle, timeout)
            handle.setopt(pycurl.HEADERFUNCTION, answer.take_header)
            handle.setopt(pycurl.WRITEFUNCTION, keep_within(answer.body, ANSWER_LIMIT))
            set_content(handle, content)
            try:
                handle.perform()
            except pycurl.error as error:
                if error.args[0] == pycurl.E_WRITE_ERROR:
                    return Failure.GORUSH_UNREADABLE
                return Failure.GORUSH_TIMED_OUT if handle.getinfo(pycurl.REQUEST_SIZE) else Failure.GORUSH_UNREACHABLE
            answer.status = handle.getinfo(pycurl.RESPONSE_CODE)
        return answer


class _Answer:
    """An answer of gorush while it arrives."""

    def __init__(self) -> None:
        self.status = 0
        self.retry_after = ""
        self.body = bytearray()

    def take_header(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name.lower() == b"retry-after":
            self.retry_after = value.strip().decode("latin-1")


def read_retry_after(value: str, now: float) -> float:
    """Return the seconds that a Retry-After header asks for, 0 if it asks for nothing (RFC 9110, section 10.2.3).

    Args:
        value: seconds or an HTTP date; anything else asks for nothing.
        now: seconds since the epoch.
    """
    if _DIGITS.fullmatch(value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError, OSError):
        return 0.0
