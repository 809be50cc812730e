"""`wakupush replay`: publishes recorded messages into a node, in order.

Two kinds of files are read. One is a scenario of the vectors (``tests/vectors/README.md``), whose messages are sent as
often as their step says. The other is JSON lines, each a message in the form of a node's REST API, with its
``pubsubTopic``. Lines are streamed. A file is checked to its end before anything is published.
"""

import itertools
import json
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tenacity import retry, retry_if_exception_type, stop_after_attempt, stop_before_delay, wait_random_exponential

from wakupush.model.waku_message import WakuMessage
from wakupush.runtime.urls import is_http, without_user
from wakupush.runtime.usage import UsageError
from wakupush.waku.codec import decode_message
from wakupush.waku.errors import NodeError, NodeRefused, NodeUnreachable, NodeUnreadable
from wakupush.waku.node import WakuNode

#: Bytes of a line at most.
LINE_LIMIT = 2 * 1024 * 1024
#: Failures in a row after which the command stops.
PATIENCE = 10
#: How many reasons are shown at most.
MOST_REASONS = 5

#: A message's fields in the vectors, by their names in the REST API.
_VECTOR_FIELDS = {
    "pubsubTopic": "pubsub_topic",
    "payload": "payload",
    "contentTopic": "content_topic",
    "version": "version",
    "timestamp": "timestamp",
    "meta": "meta",
    "ephemeral": "ephemeral",
}


class ReplayError(UsageError):
    """The file or the node cannot be used; the text says why."""


class RecordedMessage(NamedTuple):
    """A message of a file."""

    #: For example ``line 7``.
    place: str
    pubsub_topic: str
    message: WakuMessage
    times: int = 1


@dataclass(slots=True)
class ReplayTally:
    """How many messages had each outcome."""

    publications: int = 0
    refusals: int = 0
    failures: int = 0
    #: Failures since the last answer of the node.
    in_a_row: int = 0

    @property
    def attempts(self) -> int:
        """Messages that were sent to the node, whatever it answered."""
        return self.publications + self.refusals + self.failures


def run(
    file: Path, waku_url: str, *, limit: int | None = None, rate: float | None = None, restamp: bool = False
) -> int:
    """Publish the messages of a file and return the exit code: 0, or 1 if the node did not take all of them.

    Args:
        waku_url: REST API of a node, which must be subscribed to the shards already.
        restamp: give each message the present time, as nodes archive only what is fresh.

    Raises:
        ReplayError: the file or the URL cannot be used; nothing was published.
    """
    total = sum(entry.times for entry in itertools.islice(read(file), limit))
    if not total:
        raise ReplayError(f"{file} holds no message")
    console = Console(highlight=False, soft_wrap=True)
    columns = (TextColumn("publishing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
    with _connect(waku_url) as node, progress:
        bar = progress.add_task("", total=total)
        start, tally = time.monotonic(), ReplayTally()
        for entry in itertools.islice(read(file), limit):
            message = replace(entry.message, timestamp=time.time_ns()) if restamp else entry.message
            for _ in range(entry.times):
                if rate is not None:
                    time.sleep(max(0.0, start + tally.attempts / rate - time.monotonic()))
                _publish(node, entry, message, tally)
                progress.update(bar, completed=tally.attempts)
            if tally.in_a_row >= PATIENCE:
                break
    console.print(_summary(tally, total, time.monotonic() - start))
    return int(tally.publications < total)


def read(file: Path) -> Iterator[RecordedMessage]:
    """Yield the messages of a file, in order.

    Raises:
        ReplayError: the file cannot be read, or holds something else.
    """
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise ReplayError(f"{file} is not a file")
        yield from _scenario(file) if _is_scenario(file) else _lines(file)
    except OSError as error:
        raise ReplayError(f"{file} cannot be read: {error.strerror}") from error


def _is_scenario(file: Path) -> bool:
    with file.open("rb") as stream:
        first = stream.readline(LINE_LIMIT).strip()
    return first == b"{" or b'"steps"' in first


def _scenario(file: Path) -> Iterator[RecordedMessage]:
    try:
        steps = json.loads(file.read_bytes())["steps"]
        numbered_steps = list(enumerate(steps, 1))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ReplayError(f"{file} is neither a scenario nor JSON lines") from None
    for number, step in numbered_steps:
        place = f"step {number}"
        try:
            place += f" ({step['name']})"
            sends, times = [item["waku_message"] for item in step["send"]], step["deliver_times"]
            fields = [{name: send[vector] for name, vector in _VECTOR_FIELDS.items()} for send in sends]
        except (KeyError, TypeError, IndexError):
            raise ReplayError(f"{file}, {place}: not a step of a scenario") from None
        if type(times) is not int or times < 0:
            raise ReplayError(f"{file}, {place}: deliver_times is not a number")
        for position, values in enumerate(fields, 1):
            yield _entry(file, f"{place}, message {position}", values)._replace(times=times)


def _lines(file: Path) -> Iterator[RecordedMessage]:
    with file.open("rb") as stream:
        for number in itertools.count(1):
            line = stream.readline(LINE_LIMIT + 1)
            if not line:
                return
            place = f"line {number}"
            if len(line) > LINE_LIMIT:
                raise ReplayError(f"{file}, {place}: longer than {LINE_LIMIT} bytes")
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                raise ReplayError(f"{file}, {place}: not JSON") from None
            yield _entry(file, place, value)


def _entry(file: Path, place: str, value: Any) -> RecordedMessage:
    try:
        message = decode_message(value)
        pubsub_topic = value.get("pubsubTopic")
        if not isinstance(pubsub_topic, str) or not pubsub_topic or not pubsub_topic.isprintable():
            raise NodeUnreadable("pubsubTopic is not a text")  # noqa: TRY301
        return RecordedMessage(place, pubsub_topic, message)
    except NodeUnreadable as error:
        raise ReplayError(f"{file}, {place}: {error}") from None


def _connect(waku_url: str) -> WakuNode:
    if not is_http(waku_url):
        raise ReplayError("--waku-url is the URL of a REST API, for example http://127.0.0.1:8645")
    try:
        node = WakuNode(waku_url)
        node.check_alive()
    except NodeError as error:
        raise ReplayError(f"no Waku node answers at {without_user(waku_url)}: {error}; see --waku-url") from error
    return node


def _publish(node: WakuNode, entry: RecordedMessage, message: WakuMessage, tally: ReplayTally) -> None:
    """Publish a message and count the outcome; the first reasons why the node did not take one are shown."""
    try:
        _hand_over(node, entry.pubsub_topic, message)
    except NodeError as error:
        if isinstance(error, NodeRefused):
            tally.refusals += 1
            tally.in_a_row = 0
        else:
            tally.failures += 1
            tally.in_a_row += 1
        if tally.refusals + tally.failures <= MOST_REASONS:
            complaints = Console(stderr=True, highlight=False, soft_wrap=True)
            complaints.print(f"{entry.place}: {type(error).__name__}: {error}", markup=False)
    else:
        tally.publications += 1
        tally.in_a_row = 0


@retry(
    retry=retry_if_exception_type(NodeUnreachable),
    wait=wait_random_exponential(multiplier=0.2, max=2),
    stop=stop_after_attempt(3) | stop_before_delay(5),
    reraise=True,
)
def _hand_over(node: WakuNode, pubsub_topic: str, message: WakuMessage) -> None:
    """Publish a message, up to three times within five seconds while the node is unreachable.

    Raises:
        NodeError: the last attempt failed; its subclasses say how.
    """
    node.publish(pubsub_topic, message)


def _summary(tally: ReplayTally, total: int, seconds: float) -> str:
    given_up = f", {total - tally.attempts} not tried" if tally.attempts < total else ""
    return (
        f"{tally.publications} published, {tally.refusals} refused, {tally.failures} failed{given_up} "
        f"in {seconds:.1f} s, {tally.publications / max(seconds, 0.001):.0f} per second"
    )
