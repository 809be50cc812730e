"""examples/js, the client in JavaScript, as a test runs it."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from wakupush.devnet.processes import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "js"
INSTALLED = shutil.which("node") and (EXAMPLE / "node_modules" / "@waku" / "sdk").is_dir()


def need_node():
    """Skip a module if Node.js or the packages are missing; on CI nothing is skipped in silence."""
    if not INSTALLED and os.environ.get("CI") != "true":
        pytest.skip("install Node.js 20 or newer with npm, then run: make setup-node", allow_module_level=True)


def node(*words):
    result = subprocess.run(["node", *words], cwd=EXAMPLE, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def register_query_and_send(stack, address, folder):
    """Run the client's commands through a Waku node, and check that pushes reach gorush, one to oneself, too.

    Args:
        address: of the Waku node, as the client's option --node takes it.
        folder: for the accounts.
    """
    # Other tests push through the same gorush.
    token = f"alice-{uuid4()}"
    common = ["--node", address]
    alice, bob = ([*common, "--account", str(folder / name)] for name in ("alice.json", "bob.json"))
    register = ["client.js", "register", *alice, "--server", str(stack.key.public_key), "--device-token", token]
    registered = json.loads(node(*register))
    assert (registered["version"], registered["error"]) == (1, None)
    assert json.loads(node(*register))["version"] == 2
    [device] = json.loads(node("client.js", "query", registered["publicKey"], *common))
    assert (device["version"], device["server"]) == ("2", str(stack.key.public_key))
    send = ["client.js", "send", registered["publicKey"], *bob, "--chat", "a chat", "--text", "hello"]
    for kind in ("MESSAGE", "CONTACT_REQUEST"):
        answers = json.loads(node(*send, "--kind", kind))
        assert answers == [{"installationId": device["installationId"], "error": None}]

    def pushes():
        entries = httpx2.get(f"{stack.gorush_url}/dev/log").json()["entries"]
        return [each["notification"] for each in entries if each["token"] == token]

    wait_until(lambda: len(pushes()) > 1, timeout=60, what="both pushes")
    assert {push["data"]["message"] for push in pushes()} == {"0x" + b"hello".hex()}
    assert len({push["message"] for push in pushes()}) == len(pushes()) == 2, "each type has a text"
    assert json.loads(node("client.js", "test-push", *alice)) == answers
    own = "0x" + b"test".hex()
    wait_until(lambda: own in {push["data"]["message"] for push in pushes()}, timeout=60, what="the push to oneself")
