"""A real gorush on loopback, whose binary WAKUPUSH_TEST_GORUSH names, and stand-ins for Apple and Google behind it."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from support.certificates import self_signed
from wakupush.devnet.processes import free_port, wait_until
from wakupush.gorush.client import Gorush

BINARY = os.environ.get("WAKUPUSH_TEST_GORUSH", "")
_STAND_INS = Path(__file__).parent / "platforms.js"
#: Posts a body; returns gorush's status and answer, and what Apple and then Google got.
Post = Callable[[dict[str, Any]], tuple[httpx2.Response, list[dict[str, Any]]]]


def pem(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def account(token_uri: str) -> str:
    """An invented service account of Google."""
    fields = {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "k",
        "private_key": pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)),
        "client_email": "a@p.iam.gserviceaccount.com",
        "token_uri": token_uri,
    }
    return json.dumps(fields)


def configuration(directory, port, **changes):
    """A gorush with an invented key for iOS; Android is switched off."""
    key = directory / "key.p8"
    key.write_text(pem(ec.generate_private_key(ec.SECP256R1())))
    config = {
        "core": {
            "enabled": True,
            "address": "127.0.0.1",
            "port": str(port),
            "sync": True,
            "worker_num": 8,
            "queue_num": 8192,
            "max_notification": 100,
            "mode": "release",
            "feedback_timeout": 2,
        },
        "queue": {"engine": "local"},
        "android": {"enabled": False, "max_retry": 0},
        "huawei": {"enabled": False},
        "ios": {
            "enabled": True,
            "key_path": str(key),
            "key_type": "p8",
            "key_id": "ABCDEFGHIJ",
            "team_id": "KLMNOPQRST",
            "max_concurrent_pushes": 100,
            "max_retry": 0,
        },
        "log": {"access_level": "error", "hide_token": True},
        "stat": {"engine": "memory"},
    }
    for section, values in changes.items():
        config[section] |= values
    return config


@contextmanager
def running(directory: Path, environment: dict[str, str] | None = None, **changes: dict) -> Iterator[Gorush]:
    port = free_port()
    path = directory / "gorush.yml"
    path.write_text(json.dumps(configuration(directory, port, **changes)))  # JSON is YAML
    process = subprocess.Popen(
        [BINARY, "-c", str(path)],
        cwd=directory,
        env=os.environ | (environment or {}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with closing(Gorush(f"http://127.0.0.1:{port}", timeout=30)) as gorush:
            deadline = time.monotonic() + 20
            while not gorush.healthy() and time.monotonic() < deadline:
                time.sleep(0.02)
            yield gorush
    finally:
        process.kill()
        process.wait()


@contextmanager
def connected(directory: Path) -> Iterator[Post]:
    """Run a gorush that reaches the stand-ins, which deliver everything."""
    certificate, log = directory / "platforms.pem", directory / "platforms.log"
    certificate.write_bytes(self_signed("api.sandbox.push.apple.com", "fcm.googleapis.com"))
    with log.open("wb") as output:
        stand_ins = subprocess.Popen(["node", _STAND_INS, certificate], stdout=output)
    try:
        wait_until(lambda: b"\n" in log.read_bytes(), timeout=20, what="the stand-ins listen")
        port = json.loads(log.read_bytes())["port"]
        core = {"http_proxy": f"http://127.0.0.1:{port}"}
        android = {"enabled": True, "credential": account("http://127.0.0.1:9/token")}
        with running(directory, {"SSL_CERT_FILE": str(certificate)}, core=core, android=android) as gorush:

            def post(body: dict[str, Any]) -> tuple[httpx2.Response, list[dict[str, Any]]]:
                before = len(log.read_bytes())
                answer = httpx2.post(f"{gorush.url}/api/push", json=body, trust_env=False, timeout=60)
                upstream = [json.loads(line) for line in log.read_bytes()[before:].splitlines()]
                return answer, sorted(upstream, key=lambda push: push["path"])

            yield post
    finally:
        stand_ins.kill()
        stand_ins.wait()
