"""examples/js, a client in another language: it holds to the vectors, and speaks with the server."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from wakupush.devnet.demo.observer import Observer
from wakupush.devnet.parts.processes import wait_until

EXAMPLE = Path(__file__).parents[3] / "examples" / "js"
INSTALLED = shutil.which("node") and (EXAMPLE / "node_modules" / "protobufjs").is_dir()
if not INSTALLED and os.environ.get("CI") != "true":
    pytest.skip("install Node.js 20 or newer with npm, then run: make setup-node", allow_module_level=True)


def node(*words, code=0):
    result = subprocess.run(["node", *words], cwd=EXAMPLE, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout


def test_it_is_little():
    assert sum(len((EXAMPLE / name).read_text().splitlines()) for name in ("client.js", "protocol.js")) <= 300


def test_it_holds_to_the_vectors():
    assert "vectors hold" in node("vectors.js")


def test_it_registers_asks_and_sends(stack, own_node_url, tmp_path):
    common = ["--node", own_node_url]
    alice, bob = ([*common, "--account", str(tmp_path / name)] for name in ("alice.json", "bob.json"))
    register = ["client.js", "register", *alice, "--server", str(stack.key.public_key), "--device-token", "alice-phone"]
    registered = json.loads(node(*register))
    assert (registered["version"], registered["error"]) == (1, None)
    assert json.loads(node(*register))["version"] == 2
    [device] = json.loads(node("client.js", "query", registered["publicKey"], *common))
    assert (device["version"], device["server"]) == ("2", str(stack.key.public_key))
    observer = Observer(own_node_url, stack.gorush_url)
    try:
        send = ["client.js", "send", registered["publicKey"], *bob, "--chat", "a chat", "--text", "hello"]
        assert json.loads(node(*send)) == [{"installationId": device["installationId"], "error": None}]
        pushes = []
        wait_until(lambda: pushes.extend(observer.pushes()) or pushes, timeout=60, what="the push")
    finally:
        observer.close()
    assert pushes[0].notification["tokens"] == ["alice-phone"]
    assert pushes[0].notification["data"]["message"] == "0x" + b"hello".hex()
