"""`wakupush dev`."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import httpx2
import pytest

from wakupush.protocol.keys import PrivateKey


@contextmanager
def running(*options):
    command = [sys.executable, "-m", "wakupush", "dev", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        shown = {}
        try:
            for line in process.stdout:
                if line.strip() == "ready":
                    break
                name, value = line[:12].strip(), line[12:].strip()
                shown[name] = value
            yield process, shown
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.stdout.read()


def test_it_says_when_it_is_ready_and_ends_on_ctrl_c(tmp_path):
    key = PrivateKey.generate()
    file = tmp_path / "identity.key"
    file.write_text(key.secret.hex())
    with running("--identity-key", str(file)) as (process, shown):
        assert shown["public key"] == str(key.public_key)
        assert httpx2.get(f"{shown['Waku node']}/health").status_code == 200
        assert httpx2.get(shown["ingest"].split()[0]).status_code == 200
        node = shown["Waku node"]
    assert process.returncode == 0
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{node}/health")


def test_a_part_that_runs_already_is_used():
    with running() as (_, first):
        with running("--waku-url", first["Waku node"], "--gorush-url", first["gorush"]) as (process, second):
            assert (second["Waku node"], second["gorush"]) == (first["Waku node"], first["gorush"])
            assert second["public key"] != first["public key"]
        assert process.returncode == 0
        assert httpx2.get(f"{first['Waku node']}/health").status_code == 200


def test_a_part_that_does_not_start_ends_it_with_the_reason():
    command = [sys.executable, "-m", "wakupush", "dev", "--postgres-dsn", "postgresql://127.0.0.1:1/nowhere"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "wakupush migrate failed" in result.stdout
    assert "connection" in result.stdout


def test_what_is_unusable_is_said():
    command = [sys.executable, "-m", "wakupush", "dev", "--identity-key", "/nowhere"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "/nowhere cannot be read" in result.stderr
