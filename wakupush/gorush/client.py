"""The HTTP client of gorush: one post in, one outcome per notification out.

Source: docs/contracts/gorush.md, sections 1, 2 and 5. gorush runs in sync mode: an answer comes when the slowest push
is done.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

import httpx2

from wakupush.gorush.outcomes import Outcome, read_answer
from wakupush.model.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wakupush.model.notifications import Notification

#: Notifications in a post at most (gorush's own max_notification).
POST_LIMIT = 100
#: Bytes of an answer that are read; far above 100 failures with their texts.
ANSWER_LIMIT = 8 * 1024 * 1024
#: Seconds for the health check.
HEALTH_TIMEOUT = 2.0
#: Seconds of a time-out at least; 0 would be none for a socket.
LEAST_TIMEOUT = 0.001

#: With these nothing of the post has left us.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_DIGITS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Posted:
    """What a post brought."""

    #: Of each notification, in their order.
    outcomes: list[Outcome]
    #: Seconds for which gorush, or a proxy before it, asks to be left alone.
    retry_after: float = 0.0


class Gorush:
    """A client of gorush. One per process, made after a fork; its threads may share it.

    Args:
        url: for example ``http://127.0.0.1:8088``. Proxies of the environment are not used: posts hold device tokens.
        connect_timeout: seconds to wait for a connection, for a free one of the pool, and for each write.
        timeout: seconds that a post takes from its beginning to the end of its answer, all of that included; the
            answer's head and its body are each waited for as long as was left when they began. gorush needs up to 60
            to fail an iOS push.
        connections: posts that are open at the same time at most.
    """

    def __init__(self, url: str, *, connect_timeout: float = 5.0, timeout: float = 75.0, connections: int = 16) -> None:
        self._timeout = timeout
        self._timeouts = dict.fromkeys(("pool", "connect", "write"), connect_timeout) | {"read": timeout}
        self._http = httpx2.Client(
            base_url=url,
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
            trust_env=False,
        )

    def post(self, notifications: Sequence[Notification]) -> Posted:
        """Post notifications and return the outcome of each, in their order.

        Nothing that gorush or the network does raises: no connection is `GORUSH_UNREACHABLE` (nothing was sent), no
        answer, or half of one, is `GORUSH_TIMED_OUT` (gorush goes on, unknown). An answer that never ends is
        `GORUSH_UNREADABLE`.

        Args:
            notifications: 1 to 100, each with its own ``notif_id``.

        Raises:
            ValueError: there are none, too many, or two with the same ``notif_id``.
        """
        if not 1 <= len(notifications) <= POST_LIMIT:
            raise ValueError(f"a post has 1 to {POST_LIMIT} notifications, not {len(notifications)}")
        if len({each.notif_id for each in notifications}) < len(notifications):
            raise ValueError("two notifications of a post have the same notif_id")
        content = json.dumps({"notifications": [each.to_json() for each in notifications]})
        headers = {"Content-Type": "application/json"}
        timeouts = _Countdown(self._timeouts, self._timeout)
        try:
            with self._http.stream(
                "POST", "/api/push", content=content, headers=headers, extensions={"timeout": timeouts}
            ) as response:
                outcomes = read_answer(notifications, response.status_code, _read(response, timeouts))
                return Posted(outcomes, read_retry_after(response.headers.get("Retry-After", ""), time.time()))
        except _NOT_SENT:
            failure = Failure.GORUSH_UNREACHABLE
        except httpx2.DecodingError:
            failure = Failure.GORUSH_UNREADABLE
        except httpx2.RequestError:
            failure = Failure.GORUSH_TIMED_OUT
        return Posted([failure] * len(notifications))

    def healthy(self) -> bool:
        """Return whether gorush listens; it looks neither at its queue nor at the platforms."""
        try:
            return self._http.get("/healthz", timeout=HEALTH_TIMEOUT).status_code == HTTPStatus.OK
        except httpx2.RequestError:
            return False

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Countdown(Mapping[str, float]):
    """The time-outs of a request's phases, which httpcore asks for as each begins, within those of the whole."""

    def __init__(self, phases: Mapping[str, float], seconds: float) -> None:
        self._phases = phases
        self._deadline = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._deadline

    def __getitem__(self, phase: str) -> float:
        return max(LEAST_TIMEOUT, min(self._phases[phase], self._deadline - time.monotonic()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._phases)

    def __len__(self) -> int:
        return len(self._phases)


def _read(response: httpx2.Response, timeouts: _Countdown) -> bytes:
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > ANSWER_LIMIT or timeouts.is_over:
            break
    return bytes(body)


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
