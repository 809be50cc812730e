"""examples/android, a client in Kotlin: it holds to the vectors, and speaks with the server.

Maven builds it without the network, out of what `make setup-android` has loaded.
"""

import shutil
import subprocess
from pathlib import Path
from uuid import uuid4
from xml.etree import ElementTree as ET

import httpx2
import pytest

from wakupush.devnet.processes import wait_until

EXAMPLE = Path(__file__).parents[3] / "examples" / "android"
#: In the files that a client reads or writes.
VECTORS = 348

if not shutil.which("mvn") or not shutil.which("java"):
    pytest.skip("install Maven and Java 17, then run: make setup-android", allow_module_level=True)


def maven(output, **properties):
    """Run the tests of the example, and return how many ran of each class; skip if Maven lacks what they need.

    Args:
        output: the folder for all that Maven writes.
        properties: of Java, for the tests.
    """
    options = [f"-D{name}={value}" for name, value in {"output": output, **properties}.items()]
    command = ["mvn", "--offline", "--quiet", "--batch-mode", *options, "test"]
    result = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, timeout=840, check=False)
    if "in offline mode" in result.stdout:
        pytest.skip("Maven has not loaded what examples/android needs; run: make setup-android")
    assert result.returncode == 0, result.stdout + result.stderr
    suites = [ET.parse(path).getroot() for path in output.glob("surefire-reports/TEST-*.xml")]  # noqa: S314 - our own
    return {suite.get("name"): int(suite.get("tests")) - int(suite.get("skipped")) for suite in suites}


def test_it_holds_to_the_vectors_and_pushes(stack, own_node_url, tmp_path):
    token = f"alice-{uuid4()}"
    tests = maven(tmp_path / "target", node=own_node_url, server=stack.key.public_key, token=token)
    assert tests == {"wakupush.VectorsTest": VECTORS, "wakupush.GarbageTest": 3, "wakupush.ServerTest": 1}

    def pushes():
        entries = httpx2.get(f"{stack.gorush_url}/dev/log").json()["entries"]
        return [each["notification"] for each in entries if each["token"] == token]

    wait_until(pushes, timeout=60, what="the push")
    [push] = pushes()
    assert push["data"]["message"] == "0x" + b"hello".hex()
    # What PushService.kt reads.
    assert set(push["data"]) >= {"chat_id", "message"}
