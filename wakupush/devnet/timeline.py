"""`wakupush demo`: runs the server on real messages, and shows what happens as a timeline."""

import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from wakupush.devnet import messages
from wakupush.devnet.conversation import ClientMessage, Conversation, OpenedReply, Player, Step, load, open_reply
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import StartFailedError
from wakupush.devnet.stack import SHARDS, Stack
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import (
    PushNotificationQueryResponse,
    PushNotificationRegistration,
    PushNotificationRegistrationResponse,
    PushNotificationResponse,
)
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode

#: Columns of a file or a pipe: nothing is folded.
WIDE = 200
#: Seconds to wait for an answer or a push.
PATIENCE = 60.0


class UnexpectedError(Exception):
    """The server did not do what it should."""


def run(recording: Path | None) -> int:
    """Run the demo and return the exit code: 0 if everything happened as it should.

    Args:
        recording: a recorded conversation to play, see `wakupush.devnet.conversation`; None plays none.
    """
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="wakupush-demo-"))
    directory.chmod(0o755)  # Postgres runs as another user if we are root
    conversation = load(recording) if recording else None
    code = 1
    try:
        with ExitStack() as exit_stack:
            stack = Stack(
                directory,
                key=conversation.server if conversation else PrivateKey.generate(),
                settings={"WAKUPUSH_GORUSH__DIALECT": "status", "WAKUPUSH_DELIVERY__FIRST_WAIT": "0.5"},
            )
            start = time.monotonic()
            with console.status("starting Postgres, Redis, a Waku node, gorush, the workers, beat and ingest …"):
                exit_stack.enter_context(stack)
            _show_processes(console, stack, time.monotonic() - start)
            pids = [process.pid for process in stack.processes if process.pid]
            _Demo(console, stack, exit_stack).run(conversation)
            code = 0
        console.print(_leftovers(pids))
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started has been stopped")
        code = 130
    except (StartFailedError, UnexpectedError) as error:
        console.print(f"{error}\nthe logs are in {directory}", style="red", markup=False)
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return code


class _Demo:
    def __init__(self, console: Console, stack: Stack, exit_stack: ExitStack) -> None:
        self.console = console
        self.stack = stack
        self.node = exit_stack.enter_context(WakuNode(stack.node_url))
        self.observer = exit_stack.enter_context(closing(Observer(stack.node_url, stack.gorush_url)))
        self.postgres = exit_stack.enter_context(stack.connect())
        self.start = time.time()

    def run(self, conversation: Conversation | None) -> None:
        self.small_client()
        if conversation:
            self.play_recording(conversation)

    def small_client(self) -> None:
        """Register, query, notify; then a device whose first pushes fail temporarily, and one that is gone."""
        server = self.stack.key.public_key
        alice, bob = PrivateKey.generate(), PrivateKey.generate()
        key_hash = alice.public_key.key_hash
        self.console.rule("a small client")

        phone = messages.registration(alice, server)
        reply = self.ask("alice registers her iPhone", alice, messages.register(alice, server, phone))
        self.expect(PushNotificationRegistrationResponse.FromString(reply.inner).success, "the registration")

        reply = self.ask("bob asks for alice's access token", bob, messages.query(bob, key_hash))
        [info] = PushNotificationQueryResponse.FromString(reply.inner).info
        self.expect(info.access_token == phone.access_token, "the access token")

        self.notify("bob asks for a push to her iPhone", alice, bob, phone)

        tablet = messages.registration(
            alice, server, token_type=PushNotificationRegistration.FIREBASE_TOKEN, device_token="flaky-2", apn_topic=""  # noqa: S106 - the development gorush's script
        )  # fmt: skip
        reply = self.ask(
            "alice registers a tablet (Firebase will fail twice)", alice, messages.register(alice, server, tablet)
        )
        self.expect(PushNotificationRegistrationResponse.FromString(reply.inner).success, "the registration")
        self.notify("bob asks for a push to her tablet", alice, bob, tablet, attempts=3)

        dead = messages.registration(alice, server, device_token="dead-phone")  # noqa: S106 - likewise
        self.ask("alice registers a phone that was wiped", alice, messages.register(alice, server, dead))
        self.notify("bob asks for a push to it", alice, bob, dead, error="NOT_REGISTERED")

    def ask(self, what: str, asker: PrivateKey, message: WakuMessage) -> OpenedReply:
        """Send a message and return the answer."""
        start = self.send(what, message)
        reply, arrived_at = self.wait_for_reply(asker)
        self.line(f"  ← {reply.type_name}", arrived_at - start)
        return reply

    def notify(
        self,
        what: str,
        receiver: PrivateKey,
        sender: PrivateKey,
        registered: PushNotificationRegistration,
        *,
        attempts: int = 1,
        error: str = "",
    ) -> None:
        """Ask for a push, and show each attempt at gorush and the answer."""
        item = messages.notification(receiver.public_key.key_hash, registered)
        start = self.send(what, messages.request(sender, self.stack.key.public_key, [item]))
        lines: list[tuple[float, str]] = []
        is_answered = False
        deadline = start + PATIENCE
        while time.time() < deadline and not (is_answered and len(lines) > attempts):
            lines += [
                (push.arrived, f"  → gorush: {push.notification['message']}: {push.outcome}")
                for push in self.observer.pushes()
            ]
            for message in self.observer.messages():
                reply = open_reply(message.message, (sender,))
                if reply and reply.type == Type.PUSH_NOTIFICATION_RESPONSE:
                    [report] = PushNotificationResponse.FromString(reply.inner).reports
                    name = type(report).ErrorType.Name(report.error) if not report.success else ""
                    self.expect(name == error, f"the report ({name or 'success'})")
                    lines.append((message.arrived, f"  ← {reply.type_name}: {name or 'success'}"))
                    is_answered = True
            time.sleep(0.005)
        for at, text in sorted(lines):
            self.line(text, at - start)
        self.expect(is_answered and len(lines) == attempts + 1, f"{attempts} pushes and an answer")

    def play_recording(self, conversation: Conversation) -> None:
        """Play a recorded conversation, and compare the answers byte by byte."""
        self.console.rule(f"the recorded conversation of real clients: {conversation.title}")
        player = Player(conversation, self.node, self.observer, self.is_handled)
        table = Table("step", "answers", "pushes", "ms", box=None)
        differ = []
        for step in conversation.steps:
            reply_count = (step.raw["spec_expect"] or {}).get("replies", len(step.replies))
            result = player.play(step, replies=reply_count, pushes=len(step.notifications), timeout=PATIENCE)
            same = len(result.replies) == reply_count and all(
                (reply.type, reply.inner) in {(other.type, other.inner) for other in step.replies}
                for reply in result.replies
            )
            if not same or len(result.pushes) != len(step.notifications):
                differ.append(step.name)
            table.add_row(
                step.name,
                _verdict(step, len(result.replies)) if same else "[red]differ[/red]",
                str(len(result.pushes) or ""),
                " ".join(f"{1000 * latency:.0f}" for latency in result.latencies),
            )
        self.console.print(table)
        self.expect(not differ, f"the steps {', '.join(differ)}")
        self.console.print(f"{len(conversation.steps)} steps: every answer byte for byte as recorded")

    def is_handled(self, outgoing: ClientMessage) -> bool:
        return self.stack.is_handled(self.postgres, outgoing.hash, outgoing.message.content_topic)

    def send(self, what: str, message: WakuMessage) -> float:
        start = time.time()
        self.line(what, None)
        self.node.publish(SHARDS[0], message)
        return start

    def wait_for_reply(self, asker: PrivateKey) -> tuple[OpenedReply, float]:
        deadline = time.time() + PATIENCE
        while time.time() < deadline:
            for message in self.observer.messages():
                reply = open_reply(message.message, (asker,))
                if reply is not None and reply.signer == self.stack.key.public_key:
                    return reply, message.arrived
            time.sleep(0.005)
        raise UnexpectedError(f"no answer within {PATIENCE:g} s")

    def line(self, what: str, seconds: float | None) -> None:
        latency = "" if seconds is None else f"{1000 * seconds:.0f} ms"
        self.console.print(f"{time.time() - self.start:6.2f} s  {what:<58} [green]{latency:>7}[/green]")

    def expect(self, is_so: bool, what: str) -> None:
        if not is_so:
            raise UnexpectedError(f"{what}: not as expected")


def _show_processes(console: Console, stack: Stack, seconds: float) -> None:
    table = Table("process", "pid", box=None)
    for process in stack.processes:
        table.add_row(process.name, str(process.pid))
    console.print(table)
    console.print(f"everything runs after {seconds:.1f} s; the server's public key is {stack.key.public_key}\n")


def _verdict(step: Step, replies: int) -> str:
    if replies < len(step.replies):
        return "none, as the specification says"
    return f"{replies} as recorded" if replies else "none"


def _leftovers(pids: list[int]) -> str:
    alive = [pid for pid in pids if _is_alive(pid)]
    return f"[red]processes are left: {alive}[/red]" if alive else f"all {len(pids)} processes have ended"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
