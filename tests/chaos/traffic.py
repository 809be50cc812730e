"""The clients of a run: their load, when all is quiet again, and the evidence."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

from chaos import collect
from chaos.checker import last_registrations
from chaos.clients import repeat, roll_call
from chaos.evidence import Evidence
from chaos.load import publish_all
from chaos.plan import Sent, load
from wakupush.devnet.processes import Process, wait_until
from wakupush.devnet.stack import Stack
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration

#: Requests that come again at the end.
REPEATS = 50
_TESTS = Path(__file__).parent.parent
#: Where Python finds us and the server.
PYTHONPATH = f"{_TESTS.parent}{os.pathsep}{_TESTS}"


class Traffic:
    """Clients that write down what they send.

    Args:
        stack: the server.
        seed: of the clients and what they send.
        users: of each process, with two devices each.
        processes: how many send.
        node_url: of the clients' node; the server's first one unless given.
    """

    def __init__(self, stack: Stack, *, seed: str, users: int, processes: int, node_url: str | None = None) -> None:
        self._stack, self._seed, self._users = stack, seed, users
        self._node_url = node_url or stack.node_url
        self._plans = [stack.directory / f"plan-{number}.jsonl" for number in range(processes)]
        self._last_plan = stack.directory / "plan-roll-call.jsonl"

    def register(self, seconds: float = 60) -> None:
        """Register all devices, and wait for that."""
        for process in [process.start() or process for process in self._loads("register")]:
            ended_well(process)
        self.wait_until_quiet(seconds, "all devices are registered")

    def load(self, rate: float, count: int = 10**9) -> list[Process]:
        """Return the processes that send so many messages a second; SIGTERM ends them before."""
        each = len(self._plans)
        return self._loads("load", "--count", str(count // each), "--rate", str(rate / each))

    def _loads(self, name: str, *arguments: str) -> list[Process]:
        return [
            Process(
                f"{name} {number}",
                [
                    *(sys.executable, "-m", "chaos.load", "--node", self._node_url),
                    *("--server", str(self._stack.key.public_key), "--plan", str(plan)),
                    *("--seed", f"{self._seed} {number}", "--users", str(self._users), *arguments),
                ],
                log=self._stack.directory / f"{name}-{number}.log",
                env=os.environ | {"PYTHONPATH": PYTHONPATH},
                grace=150.0,
            )
            for number, plan in enumerate(self._plans)
        ]

    def messages(self) -> tuple[Sent, ...]:
        """Return what was sent so far."""
        plans = [plan for plan in (*self._plans, self._last_plan) if plan.exists()]
        return tuple(message for plan in plans for message in load(plan))

    def wait_until_quiet(self, seconds: float, what: str) -> None:
        """Wait until everything that was sent is handled and nothing is left to be done."""
        with self._stack.connect() as connection:

            def quiet() -> bool:
                if any(collect.in_flight(self._stack, connection).values()):
                    return False
                return {message.envelope for message in self.messages()} <= collect.handled(connection)

            wait_until(quiet, timeout=seconds, what=what, interval=0.5)

    def call_the_roll(self) -> None:
        """Ask for a push to each device as it is registered now, and again for some that may have failed since."""
        messages, server = self.messages(), self._stack.key.public_key
        contents = [
            (each.client, PushNotificationRegistration.FromString(bytes.fromhex(each.content)))
            for each in last_registrations(messages).values()
        ]
        doubtful = {each.id: each for each in messages if each.content and each.is_doubtful}
        chosen = Random(self._seed).sample(sorted(doubtful), min(REPEATS, len(doubtful)))
        posts = [*roll_call(server, contents, self._seed), *(repeat(server, doubtful[id_]) for id_ in chosen)]
        publish_all(self._node_url, posts, self._last_plan)

    def evidence(self, relayed: list[tuple[str, WakuMessage, float]] | None = None, **fields: object) -> Evidence:
        """Return what the server, gorush and the clients' node tell, and what the caller knows besides.

        Args:
            relayed: what the node has relayed, if it has no log of that.
            known: see `Evidence`.
        """
        stack, messages = self._stack, self.messages()
        with stack.connect() as connection:
            # All of it is of one moment, even if not all is quiet.
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            return Evidence(
                sent=messages,
                answers=collect.answers(
                    stack, collect.relayed(self._node_url) if relayed is None else relayed, messages
                ),
                pushes=collect.pushes(stack),
                events=collect.events(stack, connection, messages),
                pseudonyms=collect.pseudonyms(stack, messages),
                registrations=collect.registrations(stack, connection, messages),
                deliveries=collect.deliveries(connection),
                in_flight=collect.in_flight(stack, connection),
                leftovers=collect.leftovers(stack, connection),
                ledger=collect.handled(connection),
                quarantined=collect.quarantined(connection),
                healed=collect.healed(stack),
                **fields,
            )


def ended_well(process: Process) -> None:
    """Wait for the end of a process.

    Raises:
        RuntimeError: it failed.
    """
    if process.wait(timeout=600):
        raise RuntimeError(f"{process.name} failed\n{process.log_tail()}")
