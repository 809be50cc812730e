"""`python -m benchmarks.light_answers`: measures whether light clients get answers, and what publishing twice brings.

The whole server on a real go-waku, another real go-waku beside it that serves filter and light push, and light clients
of that one: go-wakus too, used by the transport of the client SDK. Each question is one query or one push request under
a key of its own. Some are asked as the SDK does, when the topic is subscribed; some by a client that does not wait,
whose subscription begins at once, or late: over a slow line, or because the service node refuses it for a second.
gorush is the development one and answers at once, so answers are fast.

Prints, for each `WAKUPUSH_WORKER__REPEAT_ANSWERS_AFTER`, how often the first answer did not come, how often no answer
came within the 3 s that senders wait, and the time from the service node taking the question to the answer.
With --times it writes a line of JSON for each question. The binary comes from --waku or WAKUPUSH_TEST_WAKU. With --cost
it measures instead what the repeats cost a loaded server, on development parts: pairs of runs without and with them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from random import Random
from statistics import median

import httpx2
from rich.console import Console
from rich.table import Table

from benchmarks import made, topic_keys
from benchmarks.real import ASKED, Came
from benchmarks.real import serving as loaded
from benchmarks.running import UNLIMITED, cpu, end_on_signals, idle_cpu
from wakupush.client.client import Client
from wakupush.client.drivers.context import topic_key
from wakupush.client.drivers.storage import SqliteFile
from wakupush.client.drivers.transport import LightTransport, RelayTransport
from wakupush.client.rules.mailbox import Mailbox
from wakupush.client.rules.querying import TokenQuery
from wakupush.client.rules.registering import Device
from wakupush.client.rules.sending import Content, Sending, TargetDevice
from wakupush.devnet.demo.stack import SHARDS, External, Stack
from wakupush.devnet.parts.processes import Process, answers_http, free_port, wait_until
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import TokenType
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import envelopes
from wakupush.protocol.application import Type
from wakupush.protocol.hashing import shake256_64
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.errors import NodeError

#: Seconds that a sender waits for an answer at least, and that we do.
SENDERS_WAIT, WAIT = 3.0, 4.5
#: Seconds between two questions of a light client: its transport sends a filter server 28 requests a minute at most,
#: those that keep and end subscriptions among them.
PAUSE = 3.0
#: Seconds between a question and the subscription for its answer; None is the SDK's way, which subscribes first.
LATE = {"before": None, "at once": 0.0, "0.3": 0.3, "1.0": 1.0}
VARIABLE = "WAKUPUSH_WORKER__REPEAT_ANSWERS_AFTER"


@dataclass
class Question:
    """The time line of one, in seconds since its beginning; infinite is never."""

    kind: str
    late: float | None
    begun: float = field(default_factory=time.time)
    subscribed: float = float("inf")
    #: When the service node had taken it.
    left: float = float("inf")
    #: Of each answer that came: when the server published it, by its clock, and when it came.
    answers: list[tuple[float, float]] = field(default_factory=list)

    @property
    def latency(self) -> float:
        """Seconds from its leaving to the answer."""
        return min((came for _, came in self.answers), default=float("inf")) - self.left

    def first_came(self, repeat_after: float) -> bool:
        """Say whether what the server published first has come: what is published again is so much later."""
        first = min((published for published, _ in self.answers), default=float("inf"))
        return len(self.answers) > 1 or first - self.left < (repeat_after or float("inf"))

    def now(self) -> float:
        return time.time() - self.begun


@contextmanager
def go_waku(binary: str, directory: Path, name: str, *flags: str) -> Iterator[str]:
    """Run a go-waku; its URL."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [
        binary, "--address=127.0.0.1", "--ext-ip=127.0.0.1", f"--tcp-port={free_port()}", "--cluster-id=16",
        "--nat=none", "--ip-colocation-limit=0", "--rest", "--rest-address=127.0.0.1", f"--rest-port={port}", *flags,
    ]  # fmt: skip
    (home := directory / name).mkdir()
    ready = f"{url}/debug/v1/info"
    with Process(name, command, log=home / "log", cwd=home, ready=lambda: answers_http(ready), grace=2):
        yield url


def address(url: str) -> str:
    """Return where a node's peers find it."""
    found: str = httpx2.get(f"{url}/debug/v1/info").json()["listenAddresses"][0]
    return found


@contextmanager
def serving(binary: str, clients: int, repeat_after: float) -> Iterator[tuple[Stack, str, list[str]]]:
    """Run a server, a service node, and light nodes."""
    with ExitStack() as exits:
        directory = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="wakupush-light-")))
        directory.chmod(0o755)
        relay = ["--relay", *(f"--pubsub-topic={shard}" for shard in SHARDS)]
        server = exits.enter_context(go_waku(binary, directory, "server", *relay, "--min-relay-peers-to-publish=0"))
        services = ["--filter", "--lightpush", f"--staticnode={address(server)}"]
        service = exits.enter_context(go_waku(binary, directory, "service", *relay, *services))
        peer = address(service)
        light = ["--relay=false", f"--pubsub-topic={SHARDS[0]}", f"--filternode={peer}", f"--lightpushnode={peer}"]
        nodes = [exits.enter_context(go_waku(binary, directory, f"light-{n}", *light)) for n in range(clients)]
        stack = Stack(
            directory,
            external=External(waku_url=server),
            defaults={**UNLIMITED, VARIABLE: str(repeat_after)},
            fsync=False,
        )
        exits.enter_context(stack)
        wait_until(lambda: answers_http(f"{stack.ingest_url}/readyz"), timeout=120, what="ingest is ready")
        time.sleep(3)  # until the nodes have made their mesh
        yield stack, service, nodes


async def ask_all(stack: Stack, service: str, nodes: list[str], late: list[float | None], count: int) -> list[Question]:
    """Register a device, and have all light clients ask about it."""
    async with AsyncExitStack() as exits:
        # A go-waku whose relay is not read stops.
        await exits.enter_async_context(RelayTransport(service, SHARDS))
        transports = [await exits.enter_async_context(LightTransport(node)) for node in nodes]
        own = Mailbox(PrivateKey.generate()).content_topic
        for transport in transports:  # an app has a topic that it always listens to
            await exits.enter_async_context(transport.listening(own, lambda _: None))
        file = exits.enter_context(SqliteFile(":memory:"))
        alice, bob = [
            await exits.enter_async_context(Client(PrivateKey.generate(), transport, file.account(str(number))))
            for number, transport in enumerate((transports[0], transports[-1]))
        ]
        device = Device(token_type=TokenType.FIREBASE, device_token=os.urandom(16).hex())
        alice.enable_receiving(device, [stack.key.public_key])
        if not await alice.settled(60):
            raise SystemExit("the server does not answer")
        bob.enable_sending()
        [known] = await bob.query([alice.push_key])
        key = await topic_key(TokenQuery((alice.push_key,), PrivateKey.generate()).topic)

        def query(asker: PrivateKey) -> list[WakuMessage]:
            return [TokenQuery((alice.push_key,), asker).message(key, time.time_ns())]

        def request(asker: PrivateKey) -> list[WakuMessage]:
            content = Content(
                type=NotificationType.MESSAGE, chat_id=shake256_64(b"c"), author=bob.account.key.public_key.author_hash
            )
            target = TargetDevice(alice.push_key, known.ways[0].installation_id, content, list(known.ways))
            [asking] = Sending(os.urandom(32), [target], random=Random(0)).due(0.0)
            kind = Type.PUSH_NOTIFICATION_REQUEST
            return envelopes.to_key(asker, asking.server, kind, asking.inner, timestamp=time.time_ns())

        kinds = {"query": query, "push request": request}

        async def client(number: int) -> list[Question]:
            await asyncio.sleep(PAUSE * number / len(nodes))
            tasks = []
            for turn in range(number, count, len(nodes)):
                kind = list(kinds)[turn // len(nodes) // len(late) % 2]
                question = Question(kind, late[turn // len(nodes) % len(late)])
                tasks.append(asyncio.create_task(ask(transports[number], kinds[kind], question)))
                await asyncio.sleep(PAUSE)
            return [await each for each in tasks]

        parts = await asyncio.gather(*map(client, range(len(nodes))))
    return [question for part in parts for question in part]


async def ask(
    transport: LightTransport, make: Callable[[PrivateKey], list[WakuMessage]], question: Question
) -> Question:
    """Ask one question, and note what comes."""
    asker = PrivateKey.generate()
    box = Mailbox(asker)

    def receive(message: WakuMessage) -> None:
        if box.take(message) is not None:
            question.answers.append((message.timestamp / 1e9 - question.begun, question.now()))

    async def publish() -> None:
        for message in make(asker):
            await transport.publish(message)
        question.left = question.now()

    async with AsyncExitStack() as exits:
        question.begun = time.time()
        publishing = None if question.late is None else asyncio.create_task(publish())
        await asyncio.sleep(question.late or 0.0)
        try:
            await exits.enter_async_context(transport.listening(box.content_topic, receive))
            question.subscribed = question.now()
            await (publishing or publish())
        except NodeError as error:
            print(f"not asked: {error}")
        await asyncio.sleep(WAIT)
    return question


def costs(pairs: int, count: int) -> Table:
    """Measure CPU time a message under load. The repeat leaves soon, so that nearly all of them are within the run."""
    table = Table("", "never: µs of CPU, a second", "repeated: µs of CPU, a second", box=None)
    found: dict[tuple[str, str], list[Came]] = {}
    for after in ["0", "0.1"] * pairs:
        with loaded(None, None, 1, {VARIABLE: after}) as subject:
            registered = subject.make(partial(made.registration, subject.server), list(range(ASKED)))
            subject.measure([message for message, _ in registered])
            users = [user for _, user in registered]
            topic_keys.set_for(users, subject, subject.connection)
            asked = [users[number % ASKED] for number in range(count)]
            for kind, make in (("queries", made.query), ("push requests", partial(made.request, subject.server))):
                found.setdefault((kind, after), []).append(subject.measure(subject.make(make, asked)))
    for kind in ("queries", "push requests"):
        cells = [
            f"{median(run.cpu for run in runs):,.0f} ({min(run.cpu for run in runs):,.0f}-"
            f"{max(run.cpu for run in runs):,.0f}), {median(run.per_second for run in runs):,.0f}"
            for runs in (found[kind, "0"], found[kind, "0.1"])
        ]
        table.add_row(kind, *cells)
    return table


def at(share: float, values: list[float]) -> str:
    """Return a percentile in milliseconds."""
    found = sorted(values)[min(len(values) - 1, int(share * len(values)))]
    return "never" if found == float("inf") else f"{1000 * found:.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.light_answers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--waku", default=os.environ.get("WAKUPUSH_TEST_WAKU"), help="a go-waku 0.10 binary")
    parser.add_argument("--after", type=float, nargs="+", default=[0.0, 0.3, 0.5, 1.0], help="seconds; 0 is never")
    parser.add_argument("--questions", type=int, default=300, help="for each of them")
    parser.add_argument("--clients", type=int, default=6, help="light nodes; a go-waku serves 20")
    parser.add_argument(
        "--late", choices=LATE, nargs="+", default=list(LATE), help="when they subscribe; the SDK: before"
    )
    parser.add_argument("--cost", type=int, metavar="PAIRS", help="measure the cost with so many pairs of runs")
    parser.add_argument("--times", type=Path, help="file for the time lines")
    options = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, 200)
    if options.cost:
        console.print(costs(options.cost, 2000))
        return 0
    if not options.waku:
        parser.error("name the binary of go-waku")
    late = [LATE[each] for each in options.late]
    table = Table(
        "repeat after, s", "subscribes", "questions", "first answer missed", "none within 3 s",
        "answer after, ms: median", "90 %", "99 %", "slowest", "copies", "server's CPU, ms a question", box=None,
    )  # fmt: skip
    for after in options.after:
        with serving(options.waku, options.clients, after) as (stack, service, nodes):
            idle = idle_cpu(stack)
            before, begun = cpu(stack), time.monotonic()
            questions = asyncio.run(ask_all(stack, service, nodes, late, options.questions))
            used, seconds = cpu(stack), time.monotonic() - begun
        spent = sum(used[name] - before[name] - each * seconds for name, each in idle.items())
        if options.times:
            with options.times.open("a") as file:
                file.writelines(json.dumps({"after": after, **asdict(each)}) + "\n" for each in questions)
        for each_late in late:
            some = [each for each in questions if each.late == each_late and isfinite(each.left)]
            latencies = [each.latency for each in some]
            table.add_row(
                f"{after:g}" if after else "never",
                "before it asks" if each_late is None else f"{each_late:g} s after",
                str(len(some)),
                str(sum(not each.first_came(after) for each in some)),
                str(sum(each > SENDERS_WAIT for each in latencies)),
                *(at(share, latencies) for share in (0.5, 0.9, 0.99, 1.0)),
                f"{sum(len(each.answers) for each in some) / len(some):.2f}",
                f"{1000 * spent / len(questions):.1f}",
            )
    console.print(table)
    return 0


if __name__ == "__main__":
    end_on_signals()
    raise SystemExit(main())
