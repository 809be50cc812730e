"""A scenario played to a server of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import httpx2

from conformance.expected import Answer, Expected, Row, Rows, Scenario, flat, in_order
from e2e.stacks import UNHURRIED
from support.forkserver import Forkserver
from support.stored import contents
from wakupush.devnet import conversation, messages
from wakupush.devnet.conversation import ClientMessage
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import WaitTimeoutError, wait_until
from wakupush.devnet.stack import SHARDS, Stack
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode

#: Seconds within which a step is over, on a machine that has much else to do.
PATIENCE = 120.0

_PROGRESS = """
SELECT
    (SELECT count(DISTINCT message_hash) FROM ledger WHERE message_hash = ANY (%(hashes)s)),
    (SELECT count(*) FROM answers),
    (SELECT count(*) FROM deliveries WHERE state IN ('pending', 'posting') AND NOT delivery_key = ANY (%(known)s))
"""


@dataclass(frozen=True)
class Outcome:
    """What a step came to with our server."""

    answers: list[Answer]
    #: Hashes of messages that the server sent to nobody whom the scenario knows.
    strays: list[str]
    #: As `flat` gives them.
    pushes: list[str]
    rows_before: Rows
    rows: Rows
    #: Messages in quarantine.
    quarantined: int
    #: States of the deliveries that were new in this step, while gorush failed and at the end.
    unfinished_states: list[str]
    ended: list[str]


def differences(expected: Expected, outcome: Outcome) -> list[str]:
    """Return a line for each answer, notification and row that is missing or unexpected."""
    rows = {key: row for key, row in (outcome.rows_before | expected.changes).items() if row is not None}
    return [
        *_differences("answer", map(str, expected.answers), map(str, outcome.answers)),
        *_differences("push", expected.pushes, outcome.pushes),
        *_differences("row", map(str, rows.items()), map(str, outcome.rows.items())),
    ]


def _differences(what: str, expected: Iterable[str], actual: Iterable[str]) -> list[str]:
    expected, actual = Counter(expected), Counter(actual)
    missing, unexpected = sorted((expected - actual).elements()), sorted((actual - expected).elements())
    return [f"missing {what}: {each}" for each in missing] + [f"unexpected {what}: {each}" for each in unexpected]


class Running:
    """A scenario and the server that it is played to. Steps are played once, in order, when their outcome is needed."""

    def __init__(self, scenario: Scenario, stack: Stack, exit_stack: ExitStack) -> None:
        self.scenario = scenario
        self._stack = stack
        self._conversation = conversation.load(scenario.path)
        self._node = exit_stack.enter_context(WakuNode(stack.node_url))
        self._observer = exit_stack.enter_context(closing(Observer(stack.node_url, stack.gorush_url)))
        self._postgres = exit_stack.enter_context(stack.connect())
        self._gorush = exit_stack.enter_context(httpx2.Client(base_url=stack.gorush_url, trust_env=False))
        self._installations = _installations(scenario, Identity.of(stack.key))
        self._played: list[Outcome | Exception] = []
        #: Everything that we sent ourselves.
        self._published_hashes: set[bytes] = set()
        #: Of the step that is being played: deliveries that were there before, answers, strays.
        self._earlier_deliveries: dict[bytes, str] = {}
        self._answers: list[Answer] = []
        self._strays: list[str] = []

    def outcome(self, position: int) -> Outcome:
        """Return what a step came to, after those before it.

        Raises:
            Exception: what was raised when it was played.
        """
        while len(self._played) <= position:
            try:
                self._played.append(self._play(len(self._played)))
            except Exception as error:  # noqa: BLE001 - it belongs to this step; the next one is played all the same
                self._played.append(error)
        result = self._played[position]
        if isinstance(result, Exception):
            raise result
        return result

    def _play(self, position: int) -> Outcome:
        sends = self._conversation.steps[position].sends
        times = self._conversation.steps[position].deliver_times
        trouble = self.scenario.expected[position].trouble
        rows_before = self._rows()
        self._earlier_deliveries = earlier_deliveries = self._deliveries()
        self._answers, self._strays = [], []
        unfinished_states = []
        with self._failing_gorush(trouble):
            # As their senders do, what is of another type waits for what comes before.
            for _, group in groupby(sends, key=lambda message: message.type_name):
                self._deliver(list(group), times, unfinished=trouble is not None)
            if trouble is not None:
                unfinished_states = [
                    state for key, state in self._deliveries().items() if key not in earlier_deliveries
                ]
        self._wait_until_quiet([])
        self._look()
        pushes = [flat(dict(push.notification)) for push in self._observer.pushes()]
        return Outcome(
            answers=self._answers,
            strays=self._strays,
            pushes=pushes,
            rows_before=rows_before,
            rows=self._rows(),
            quarantined=self._count("SELECT count(*) FROM quarantine"),
            unfinished_states=unfinished_states,
            ended=[state for key, state in self._deliveries().items() if key not in earlier_deliveries],
        )

    def _deliver(self, sends: list[ClientMessage], times: int, *, unfinished: bool) -> None:
        """Send messages, and wait until nothing more will come of them."""
        for message in sends:
            self._published_hashes.add(message.hash)
            for _ in range(times):
                self._node.publish(message.pubsub_topic, message.message)
        watched = [message.hash for message in sends if self._is_watched(message)]
        self._wait_until_quiet(watched, unfinished=unfinished)
        # Nothing tells that ingest has passed over a message, or its second copy, but that it took a later one.
        if times > 1 or len(watched) < len(sends):
            for shard in {message.pubsub_topic for message in sends} & set(SHARDS):
                self._wait_for_sentinel(shard)

    def _is_watched(self, message: ClientMessage) -> bool:
        """Return whether the server listens where a message was sent."""
        topic, entered = message.message.content_topic, "SELECT count(*) FROM ledger WHERE message_hash = %s"
        return not self._stack.is_handled(self._postgres, message.hash, topic) or self._count(entered, message.hash) > 0

    def _wait_until_quiet(self, hashes: list[bytes], *, unfinished: bool = False) -> None:
        """Wait until messages are entered in the ledger, no answer is left to publish, and no delivery to finish.

        Ledger, answers and deliveries are committed together, so nothing comes after that.
        """

        expected_entries = len(set(hashes))
        progress = (0, 0, 0)

        def is_quiet() -> bool:
            nonlocal progress
            progress = self._postgres.execute(
                _PROGRESS, {"hashes": hashes, "known": list(self._earlier_deliveries)}
            ).fetchone()
            entered, answers, deliveries = progress
            return entered == expected_entries and not answers and (unfinished or not deliveries)

        try:
            wait_until(is_quiet, timeout=PATIENCE, what="the step is over")
        except WaitTimeoutError as error:
            entered, answers, deliveries = progress
            raise AssertionError(
                f"{error}: {entered} of {expected_entries} messages are in the ledger, {answers} answers are "
                f"not published, {deliveries} deliveries are not over"
            ) from None

    def _wait_for_sentinel(self, shard: str) -> None:
        """Send a registration that is answered and changes nothing, and wait for the answer."""
        client, server = PrivateKey.generate(), self._stack.key.public_key
        message = messages.register(client, server, messages.registration(client, server, version=0))
        self._published_hashes.add(message_hash(shard, message))
        self._node.publish(shard, message)
        wait_until(lambda: self._look(client), timeout=PATIENCE, what="the sentinel is answered")

    def _look(self, sentinel: PrivateKey | None = None) -> bool:
        """Sort the messages that came since the last look; return whether one answers a sentinel."""
        clients = (*self._conversation.clients, *((sentinel,) if sentinel else ()))
        is_answered = False
        for arrival in self._observer.messages():
            digest = message_hash(arrival.pubsub_topic, arrival.message)
            if digest in self._published_hashes:
                continue
            reply = conversation.open_reply(arrival.message, clients)
            if reply is None:
                self._strays.append(digest.hex())
            elif sentinel and reply.recipient == sentinel.public_key:
                is_answered = True
            else:
                self._answers.append(_answer(reply))
        return is_answered

    @contextmanager
    def _failing_gorush(self, trouble: int | str | None) -> Iterator[None]:
        """Make gorush fail as it did in the recording."""
        if trouble == "unreachable":
            self._stack.gorush.stop()
            try:
                yield
            finally:
                self._stack.gorush.start()
                self._observer.gorush_restarted()
        elif trouble is not None:
            fault = {"kind": "status", "status": trouble, "path": "/api/push"}
            self._gorush.post("/dev/faults", json=fault).raise_for_status()
            try:
                yield
            finally:
                self._gorush.delete("/dev/faults").raise_for_status()
        else:
            yield

    def _deliveries(self) -> dict[bytes, str]:
        return dict(self._postgres.execute("SELECT delivery_key, state FROM deliveries").fetchall())

    def _rows(self) -> Rows:
        """Return all rows. Those of the scenario's devices are found through the keyed hash, others go by that hash."""
        rows: Rows = {}
        identity = Identity.of(self._stack.key)
        for installation, (version, device, _, columns) in contents(self._postgres, identity).items():
            key_hash, installation_hash = installation.key_hash, installation.installation_hash
            installation_id = self._installations.get((key_hash, installation_hash))
            clear = device and device.installation_id
            is_right = installation_id is not None and clear == (installation_id if columns["registered"] else None)
            name = installation_id if is_right else installation_hash.hex()
            rows[key_hash.hex(), name] = Row(columns["registered"], version)
        return rows

    def _count(self, query: str, *parameters: object) -> int:
        return self._postgres.execute(query, parameters).fetchone()[0]


@contextmanager
def running(scenario: Scenario, forkserver: Forkserver) -> Iterator[Running]:
    """Start a server with the key of a scenario, in a directory that Postgres' user can reach."""
    directory = Path(tempfile.mkdtemp(prefix="wakupush-conformance-"))
    directory.chmod(0o755)
    try:
        key = conversation.load(scenario.path).server
        stack = Stack(
            directory,
            key=key,
            settings={"WAKUPUSH_GORUSH__DIALECT": scenario.profile},
            defaults=UNHURRIED,
            fsync=False,
            launcher=forkserver.fork,
        )
        with ExitStack() as exit_stack:
            exit_stack.enter_context(stack)
            yield Running(scenario, stack, exit_stack)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _installations(scenario: Scenario, identity: Identity) -> dict[tuple[bytes, bytes], str]:
    """Return the ids of all installations that a scenario names, by the key of their rows."""
    named = {key for expected in scenario.expected for key in expected.changes} | set(scenario.devices)
    places = {key: identity.installation(bytes.fromhex(key[0]), key[1]) for key in named}
    return {(place.key_hash, place.installation_hash): key[1] for key, place in places.items()}


def _answer(reply: conversation.OpenedReply) -> Answer:
    return Answer(
        reply.type,
        in_order(reply.type, reply.inner),
        reply.signer.uncompressed.hex(),
        reply.transport_signer.uncompressed.hex() if reply.transport_signer else "",
        reply.recipient.uncompressed.hex(),
        reply.content_topic,
    )
