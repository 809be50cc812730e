"""`wakupush client` as a person and a program use it, and the README's examples as they stand there."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.logs import logging_as_before
from wakupush.cli import app
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import Process, wait_until
from wakupush.protocol.keys import PrivateKey

README = Path(__file__).parents[3] / "README.md"
SECONDS = 300


@pytest.fixture
def observer(stack):
    observer = Observer(stack.node_url, stack.gorush_url)
    yield observer
    observer.close()


class Person:
    """Somebody with a key, at a command line."""

    def __init__(self, directory, stack, name):
        self.directory, self.stack, self.name = directory, stack, name
        [key_row] = self.run("keygen", str(directory / f"{name}.key"), keyless=True)
        self.public_key = key_row["public_key"]

    def words(self, *arguments, keyless=False, node=None):
        common = ["--json", "--node", node or self.stack.node_url]
        common += [] if keyless else ["--key", str(self.directory / f"{self.name}.key")]
        return ["client", *common, *arguments]

    def command(self, *arguments):
        """Return what starts a command in a process of its own."""
        return [sys.executable, "-m", "wakupush", *self.words(*arguments)]

    def run(self, *arguments, code=0, **options):
        """Run a command, in this process, and return the rows that it prints."""
        with logging_as_before():
            result = CliRunner().invoke(app, self.words(*arguments, **options), catch_exceptions=False)
        assert result.exit_code == code, result.stdout + result.stderr
        self.complaint = result.stderr
        return json.loads(result.stdout) if result.stdout else []

    def register(self, stack, *more, code=0):
        server, token = str(stack.key.public_key), f"{self.name}-phone"
        return self.run("register", "--server", server, "--device-token", token, *more, code=code)


@pytest.fixture
def person(stack, tmp_path):
    return lambda name: Person(tmp_path, stack, name)


def test_everything_in_turn(stack, person, observer):
    alice, bob = person("alice"), person("bob")
    assert alice.run("status") == []
    server = str(stack.key.public_key)
    registered = {"server": server, "status": "registered", "version": 1, "error": None}
    assert alice.register(stack) == [registered]
    assert alice.run("status") == [registered]
    assert alice.register(stack, "--wait", "60") == [registered]  # nothing is left to wait for
    assert bob.run("test-push", code=1) == []
    assert "not registered" in bob.complaint
    [own] = alice.run("test-push")
    assert own.keys() == {"query_seconds", "request_seconds", "result"}
    assert own["result"] == "accepted"
    wait_until(lambda: list(observer.pushes()), timeout=60, what="her own push")
    [way] = bob.run("query", alice.public_key)
    assert (way["user"], way["server"], way["version"]) == (alice.public_key, server, 1)
    [first_row] = bob.run("send", alice.public_key, "--chat", "c", "--text", "hello", "--message-id", "ab" * 32)
    assert first_row == {"user": alice.public_key, "installation_id": way["installation_id"], "result": "accepted"}
    pushes = []
    wait_until(lambda: pushes.extend(observer.pushes()) or pushes, timeout=60, what="the push")
    assert pushes[0].notification["tokens"] == ["alice-phone"]
    [request_row] = bob.run("send", alice.public_key, "--chat", "c", "--kind", "contact_request")
    assert request_row == first_row
    wait_until(lambda: pushes.extend(observer.pushes()) or pushes[1:], timeout=60, what="the contact request")
    assert pushes[1].notification["message"] == "Someone sent you a contact request"
    # The same message again is the same notification. Not everybody was notified.
    nobody = str(PrivateKey.generate().public_key)
    [again] = bob.run("send", alice.public_key, nobody, "--chat", "c", "--message-id", "ab" * 32, code=1)
    assert again == first_row
    assert nobody in bob.complaint
    assert alice.run("unregister") == [{**registered, "status": "unregistered", "version": 2}]
    assert bob.run("query", alice.public_key, code=3) == []
    assert bob.run("send", alice.public_key, "--chat", "c", code=1)[0]["result"] == "not_registered"
    assert alice.run("advertise", code=1) == []


def test_advertised_discovered_and_listened_to(stack, person):
    alice, bob = person("alice"), person("bob")
    alice.register(stack, "--contacts-only", "--contact", bob.public_key)
    log = alice.directory / "listen.log"
    listening = Process("listen", bob.command("listen", alice.public_key, "--seconds", str(SECONDS)), log=log)
    with listening:
        start_time = time.monotonic()
        while "learned" not in log.read_text():
            assert time.monotonic() < start_time + SECONDS
            assert alice.run("advertise") == [{"advertised": 1}]
    events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    assert {"event": "learned", "user": alice.public_key}.items() <= events[0].items()
    # Another process of bob's knows it too; a stranger could not have used it.
    assert len(bob.run("discover", alice.public_key)) == 1
    carol = person("carol")
    assert carol.run("discover", alice.public_key, "--wait", "0.5", code=3) == []
    assert carol.run("query", alice.public_key, code=3) == []


def test_a_dead_node_costs_nothing_beside_another(stack, person):
    alice = person("alice")
    server = str(stack.key.public_key)
    [registered] = alice.run("--node", "http://127.0.0.1:1", "register", "--server", server, "--device-token", "a")
    assert registered["status"] == "registered"
    assert alice.run("--mode", "relay", "--node", stack.node_url, "status", code=2) == []
    assert "one --node" in alice.complaint


def test_exit_codes(stack, person, monkeypatch):
    alice = person("alice")
    assert alice.run("send", alice.public_key, "--chat", "c", code=1) == []  # nobody knows her
    assert alice.run("keygen", str(alice.directory / "alice.key"), code=2, keyless=True) == []
    assert alice.run("status", code=2, keyless=True) == []
    silent = str(PrivateKey.generate().public_key)
    [row] = alice.run("register", "--server", silent, "--device-token", "t", "--wait", "3", code=3)
    assert row["status"] == "asked"
    # A server that was a mistake, and never answers, spoils nothing with the right one.
    bob = person("bob")
    bob.run("register", "--server", silent, "--device-token", "t", "--wait", "3", code=3)
    assert {each["status"] for each in bob.register(stack)} == {"asked", "registered"}
    assert f"{silent} has not said yet" in bob.complaint
    # To register goes on in the background: that it is the node is said all the same.
    [row] = alice.run("register", "--server", silent, "--device-token", "new", code=4, node="http://127.0.0.1:1")
    assert row["status"] == "due"
    assert "the node at http://127.0.0.1:1 did not do its part" in alice.complaint
    assert alice.run("send", alice.public_key, "--chat", "c", "--message-id", "ab", code=2) == []
    assert alice.run("--anonymous", "whoami", code=2) == []
    assert "without anonymous mode" in alice.complaint
    # The silent one is waited for each time. The client itself would refuse this topic.
    monkeypatch.setattr("wakupush.client.rules.registering.device_faults", lambda _: iter(()))
    unfit = ("--platform", "apn", "--apn-topic", "im status", "--wait", "5")
    refused = alice.register(stack, *unfit, code=1)
    assert {each["error"] for each in refused} == {None, "MALFORMED_MESSAGE"}
    # Said again, it is asked again.
    again = alice.register(stack, *unfit, code=1)
    assert sum(each["version"] for each in again) == sum(each["version"] for each in refused) + 1


def test_ctrl_c(person):
    alice = person("alice")
    state = alice.directory / "alice.key.state"
    for arguments, code in ((["discover", alice.public_key, "--wait", "600"], 130), (["listen"], 0)):
        for path in state.parent.glob(f"{state.name}*"):
            path.unlink()
        with subprocess.Popen(alice.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            wait_until(
                lambda: list(state.parent.glob(f"{state.name}.*.lock")), timeout=SECONDS, what="the command is at work"
            )
            # Another one may look meanwhile, and do no more.
            assert alice.run("status") == []
            assert alice.run("advertise", code=2) == []
            assert "another client of this account runs" in alice.complaint
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == code


def test_a_listener_to_whom_nobody_listens_ends(stack, person):
    alice, bob = person("alice"), person("bob")
    alice.register(stack)
    command = bob.command("listen", alice.public_key)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        wait_until(lambda: alice.run("advertise") and process.poll() is not None, timeout=SECONDS, what="the end")
        assert process.returncode == 1
        assert process.stderr.read() == ""


def test_no_token_is_printed(stack, person):
    alice, bob = person("alice"), person("bob")
    alice.register(stack)
    state = (alice.directory / "alice.key.state").read_bytes()
    tokens = set(re.findall(rb'"access_token":"([0-9a-f-]{36})"', state))
    printed = json.dumps([bob.run("query", alice.public_key), alice.run("status")]) + bob.complaint
    assert tokens
    assert not any(token.decode() in printed for token in tokens)
    assert "alice-phone" not in printed


def shell_example(text):
    [block] = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return block


GUIDE = shell_example((README.parent / "docs" / "reference" / "client.md").read_text())


@pytest.mark.parametrize("block", [shell_example(README.read_text()), GUIDE], ids=["README", "guide"])
def test_the_examples_of_commands(stack, own_node_url, tmp_path, block):
    """They run one after the other, in one shell, and each ends with 0."""
    script = f"""
    set -eu
    wakupush() {{ "{sys.executable}" -m wakupush "$@"; }}
    NODE={own_node_url} SERVER={stack.key.public_key}
    {block}
    """
    root = str(README.parent)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": root}
    result = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "registered" in result.stdout
    assert "accepted" in result.stdout


def test_the_python_examples_of_the_guide_run(stack, tmp_path):
    text = (README.parent / "docs" / "reference" / "client.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    whole = "\n".join(blocks)
    values = {"NODE": stack.node_url, "SERVER": str(stack.key.public_key), "STATE": str(tmp_path / "state")}
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(README.parent), **values}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", whole], env=environment, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "accepted" in result.stdout
