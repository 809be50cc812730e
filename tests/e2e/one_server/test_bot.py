"""examples/bot, a bot on the SDK: it registers, asks for pushes, and reads them."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import wait_until
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime import keyfile

BOT = Path(__file__).parents[3] / "examples" / "bot" / "bot.py"


class Bot:
    """A running bot."""

    def __init__(self, process):
        self.process = process
        self.name = self.answer().removeprefix("registered as ")

    def answer(self):
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()


@contextmanager
def bot(directory, node_url, server, name):
    key = directory / f"{name}.key"
    keyfile.write(key, PrivateKey.generate().secret)
    command = [
        *(sys.executable, str(BOT), "--node", node_url, "--server", str(server), "--key", str(key)),
        *("--device-token", f"{name}-phone"),
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Bot(process)
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.timeout(900)
def test_two_bots_push_to_each_other(stack, own_node_url, tmp_path):
    observer = Observer(stack.node_url, stack.gorush_url)
    try:
        with (
            bot(tmp_path, own_node_url, stack.key.public_key, "alice") as alice,
            bot(tmp_path, own_node_url, stack.key.public_key, "bob") as bob,
        ):
            assert bob.ask(f"{alice.name} Good morning") == "accepted"
            pushes = []

            def has_come():
                pushes.extend(push for push in observer.pushes() if push.notification["tokens"] == ["alice-phone"])
                return bool(pushes)

            wait_until(has_come, timeout=60, what="the push to alice's phone")
            data = json.dumps(pushes[0].notification["data"])
            assert alice.ask(data) == f"{bob.name} says 'Good morning'"
            assert alice.ask(data) == "received before"
            assert bob.ask(data) == "for somebody else"
            assert bob.ask("0x04 hello").startswith("cannot do that: ")
            stranger = PrivateKey.generate().public_key
            assert bob.ask(f"{stranger} hello") == "no device is known"
    finally:
        observer.close()
