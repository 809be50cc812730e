"""Asking servers for pushes (71, Sending Client): one for each device, also if servers fail. Sans-IO."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from wakupush.client.rules.acquaintances import Way
from wakupush.client.rules.backoff import Backoff
from wakupush.model.failures import Answer
from wakupush.model.notifications import NotificationType
from wakupush.protocol.keys import PublicKey
from wakupush.protocol.request import Item, Report, Request, RequestResponse, encode_request

#: Seconds to wait for an answer before another server is asked: at least 3, says the specification.
ANSWER_SECONDS = 3.2
#: Items of one request at most.
MOST_ITEMS = 100
#: How often all servers of a device are asked.
MOST_ROUNDS = 3
#: Waits once all servers of a device were asked.
BACKOFF = Backoff(first=4.0, most=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of a notification."""

    type: NotificationType
    #: SHAKE-256 of the chat id.
    chat_id: bytes = field(repr=False)
    #: SHAKE-256 of the author's key as text.
    author: bytes = field(repr=False)
    #: The message, encrypted to the receiver; may be empty.
    message: bytes = field(repr=False, default=b"")


class Result(StrEnum):
    """The outcome of the notification of one device."""

    PENDING = "pending"
    #: A server has accepted it.
    ACCEPTED = "accepted"
    #: No server has a registration of the device any more.
    NOT_REGISTERED = "not_registered"
    #: No server accepts a token that we have.
    WRONG_TOKEN = "wrong_token"  # noqa: S105 - a name
    #: All servers failed, or did not answer.
    FAILED = "failed"


@dataclass(slots=True)
class TargetDevice:
    """One device of one user."""

    user: PublicKey
    installation_id: str
    content: Content
    #: Servers that may be asked, with their tokens, in order.
    ways: list[Way]
    result: Result = Result.PENDING
    #: The server asked last, and the position of the next in `ways`.
    last_way: Way | None = None
    position: int = 0
    rounds: int = 0
    #: Seconds to wait for the answer of the server asked last.
    patience: float = 0.0
    #: When the next server is asked, by the clock of `Sending`.
    next_at: float = 0.0
    #: Whether its token was queried again, which is done once.
    is_refreshed: bool = False


@dataclass(frozen=True, slots=True)
class DueRequest:
    """A request to be sent, under its own key."""

    server: PublicKey
    request: Request = field(repr=False)
    ways: tuple[tuple[TargetDevice, Way], ...] = field(repr=False)

    @property
    def inner(self) -> bytes:
        """The PushNotificationRequest."""
        return encode_request(self.request)


@dataclass(frozen=True, slots=True)
class Useless:
    """A token that its server does not accept any more."""

    user: PublicKey
    installation_id: str
    server: PublicKey
    access_token: str = field(repr=False)
    #: True: the token is wrong, so query the user again, see `Sending.refresh`. False: the device is not registered.
    is_wrong: bool


class Sending:
    """Notifies devices of one message. Times are seconds of any monotonic clock.

    Args:
        message_id: of the messenger's message, 32 bytes.
    """

    def __init__(self, message_id: bytes, targets: Iterable[TargetDevice], *, random: Random) -> None:
        self._message_id = message_id
        self.targets = list(targets)
        self._random = random
        for target in self.targets:
            if not target.ways:
                target.result = Result.WRONG_TOKEN

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be sent or waited for."""
        return not self._pending

    @property
    def next_at(self) -> float:
        """When to call `due` again: infinite while a token is asked for, 0 if done."""
        return min((target.next_at for target in self._pending), default=0.0)

    def due(self, now: float) -> list[DueRequest]:
        """Return the requests to be sent now, grouped by server, and count them as sent."""
        by_server: dict[PublicKey, list[tuple[TargetDevice, Way]]] = {}
        for target in self._pending:
            if target.next_at > now:
                continue
            if target.rounds >= MOST_ROUNDS:
                target.result = Result.FAILED
                continue
            way = target.ways[target.position]
            by_server.setdefault(way.server, []).append((target, way))
            target.last_way = way
            target.patience = self._advance(target)
            target.next_at = now + target.patience
        requests = []
        for server, ways in by_server.items():
            for start in range(0, len(ways), MOST_ITEMS):
                part = tuple(ways[start : start + MOST_ITEMS])
                items = tuple(_item(target, way) for target, way in part)
                requests.append(DueRequest(server, Request(self._message_id, items), part))
        return requests

    def note_sent(self, asking: DueRequest, now: float) -> None:
        """Wait for the answer from now on: a light client may have needed seconds to send the request."""
        for target, way in asking.ways:
            if way is target.last_way and target.next_at != math.inf:
                target.next_at = now + target.patience

    def take_answer(
        self, asking: DueRequest, signer: PublicKey, response: RequestResponse, now: float
    ) -> list[Useless]:
        """Take an answer that came to the key of a request, and return the tokens that it calls useless.

        An answer that another server signed, or about other messages or devices, is ignored. A late one counts.
        """
        if signer != asking.server or response.message_id != self._message_id:
            return []
        useless: list[Useless] = []
        for report in response.reports:
            for target, way in asking.ways:
                is_meant = (target.user.key_hash, target.installation_id) == (report.key_hash, report.installation_id)
                if is_meant and target.result is Result.PENDING:
                    useless += self._take(target, way, report, now)
        return useless

    def refresh(self, user: PublicKey, installation_id: str, ways: Sequence[Way], now: float) -> None:
        """Take over new tokens of a device whose token was wrong; without any, its other servers are asked."""
        for target in self._pending:
            if (target.user, target.installation_id) == (user, installation_id) and target.next_at == math.inf:
                pairs = {(way.server, way.access_token) for way in target.ways}
                target.ways += [way for way in ways if (way.server, way.access_token) not in pairs]
                self._go_on(target, now, Result.WRONG_TOKEN)

    @property
    def _pending(self) -> list[TargetDevice]:
        return [target for target in self.targets if target.result is Result.PENDING]

    def _advance(self, target: TargetDevice) -> float:
        """Turn to the next server, and return how long to wait for the answer of this one."""
        target.position += 1
        if target.position < len(target.ways):
            return ANSWER_SECONDS
        target.position = 0
        target.rounds += 1
        return max(ANSWER_SECONDS, BACKOFF.wait(target.rounds, self._random))

    def _take(self, target: TargetDevice, way: Way, report: Report, now: float) -> list[Useless]:
        # Only an error of the server asked last moves on. After one of an earlier server, the last may still answer.
        is_last = way is target.last_way
        match report.error:
            case None:
                target.result = Result.ACCEPTED
            case Answer.INTERNAL_ERROR if is_last and target.position:
                # Another server is next; otherwise the wait after a round goes on.
                target.next_at, target.last_way = now, None
            case Answer.WRONG_TOKEN | Answer.NOT_REGISTERED if way in target.ways:
                _drop(target, way)
                is_wrong = report.error is Answer.WRONG_TOKEN
                if is_wrong and is_last and not target.is_refreshed:
                    target.is_refreshed = True
                    target.next_at = math.inf
                elif (is_last or not target.ways) and target.next_at != math.inf:  # its refresh goes on
                    self._go_on(target, now, Result.WRONG_TOKEN if is_wrong else Result.NOT_REGISTERED)
                return [Useless(target.user, target.installation_id, way.server, way.access_token, is_wrong)]
        return []

    def _go_on(self, target: TargetDevice, now: float, otherwise: Result) -> None:
        """Ask the next server at once, or end if there is none."""
        if target.ways:
            target.next_at, target.last_way = now, None
        else:
            target.result = otherwise


def _drop(target: TargetDevice, way: Way) -> None:
    index = target.ways.index(way)
    del target.ways[index]
    target.position -= index < target.position
    if target.position >= len(target.ways):
        target.position = 0


def _item(target: TargetDevice, way: Way) -> Item:
    content = target.content
    return Item(
        key_hash=target.user.key_hash,
        installation_id=target.installation_id,
        access_token=way.access_token,
        type=content.type,
        chat_id=content.chat_id,
        author=content.author,
        message=content.message,
    )
