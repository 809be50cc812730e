"""Redis behind TLS: who is not whom it should be gets no password, by Celery no more than by redis-py."""

import contextlib
import os
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import httpx2
import pytest
from redis import Redis, RedisError

from wakupush.devnet.processes import Process, answers_http, free_port, wait_until
from wakupush.model.queues import QUERY
from wakupush.redis.celery_app import celery_app
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import RedisSettings, Settings

FLOWER = Path(__file__).parents[3] / "docker" / "config" / "flower.py"
PASSWORD = "planted"


@dataclass
class Listener:
    """TLS in front of Redis, which the tests' own cannot do; it notes what it was sent and who hung up."""

    port: int
    refused: int = 0
    received: bytes = b""
    threads: list[threading.Thread] = field(default_factory=list)

    def url(self, options=""):
        return f"rediss://:{PASSWORD}@127.0.0.1:{self.port}/0{options}"


@pytest.fixture
def listener(certificate, redis_server) -> Iterator[Listener]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as server, Redis.from_url(redis_server.url) as redis:
        redis.config_set("requirepass", PASSWORD)
        listener = Listener(server.getsockname()[1])

        def pump(source, target, note):
            with contextlib.suppress(OSError, ValueError):
                while data := source.recv(65536):
                    note(data)
                    target.sendall(data)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)

        def received(data):
            listener.received += data

        def serve(raw):
            with raw:
                try:
                    outer = context.wrap_socket(raw, server_side=True)
                except (ssl.SSLError, OSError):
                    listener.refused += 1
                    return
                with outer, socket.create_connection(("127.0.0.1", redis_server.port)) as inner:
                    back = threading.Thread(target=pump, args=(inner, outer, len))
                    back.start()
                    pump(outer, inner, received)
                    back.join()

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    raw, _ = server.accept()
                    thread = threading.Thread(target=serve, args=(raw,))
                    listener.threads.append(thread)
                    thread.start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener
        finally:
            redis.config_set("requirepass", "")
            server.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in listener.threads:
                thread.join(timeout=20)


def settings(url):
    return Settings(redis=RedisSettings(url=url, timeout=3))


def test_a_stranger_gets_no_password_from_redis_py(listener):
    with open_redis(settings(listener.url()).redis) as redis, pytest.raises(RedisError):
        redis.ping()
    wait_until(lambda: listener.refused > 0, timeout=60, what="it hung up")
    assert listener.received == b""


def test_a_stranger_gets_no_password_from_celery(listener):
    with (
        celery_app(settings(listener.url())) as app,
        app.connection() as connection,
        pytest.raises(RedisError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        connection.channel()
    wait_until(lambda: listener.refused > 0, timeout=60, what="it hung up")
    assert listener.received == b""


def test_who_is_vouched_for_is_spoken_to(listener, certificate):
    ours = settings(listener.url(f"?ssl_ca_certs={certificate}"))
    with open_redis(ours.redis) as redis, celery_app(ours) as app:
        assert redis.ping()
        app.send_task(QUERY.task, queue=QUERY.name, retry=False)
        assert redis.llen(QUERY.name) == 1
        redis.delete(QUERY.name)
        app.pool.force_close_all()
    assert listener.refused == 0
    assert listener.received.count(PASSWORD.encode()) > 1


@pytest.fixture
def flower(listener, tmp_path):
    """Flower with the configuration of its image, or another one, and with an URL."""
    if find_spec("flower") is None and os.environ.get("CI") != "true":
        pytest.skip("Flower is not installed: pip install wakupush[flower]")

    @contextlib.contextmanager
    def run(options, conf):
        port = free_port()
        command = ["-m", "celery", "--broker", listener.url(options), "flower", f"--conf={conf}", f"--port={port}"]
        log = tmp_path / "flower.log"
        url = f"http://127.0.0.1:{port}"
        with Process(
            "flower",
            [sys.executable, *command, "--address=127.0.0.1"],
            log=log,
            env=os.environ | {"FLOWER_BASIC_AUTH": "operator:flowers"},
            cwd=tmp_path,
            ready=lambda: answers_http(f"{url}/healthcheck"),
        ):
            yield url
        assert PASSWORD not in log.read_text()

    return run


def broker(url):
    return httpx2.get(f"{url}/broker", auth=("operator", "flowers"), trust_env=False, timeout=120)


def test_a_stranger_gets_no_password_from_flower(flower, listener):
    with flower("", FLOWER) as url:
        wait_until(lambda: listener.refused > 1, timeout=120, what="it hung up")
        broker(url)
    assert listener.received == b""


def test_flower_shows_strangers_no_password(flower, listener, tmp_path):
    (tmp_path / "own.py").write_text("")
    with flower("?ssl_cert_reqs=required", tmp_path / "own.py") as url:
        wait_until(lambda: listener.refused > 1, timeout=120, what="it hung up")
        broker(url)
    assert listener.received == b""


def test_flower_speaks_to_who_is_vouched_for(flower, listener, certificate):
    with flower(f"?ssl_ca_certs={certificate}", FLOWER) as url:
        wait_until(lambda: b"SUBSCRIBE" in listener.received, timeout=120, what="Flower listens to events")
        assert broker(url).status_code == 200
    assert listener.refused == 0
