"""Flower with the configuration that its image has: nothing without a password, and little that it keeps."""

import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import httpx2
import psutil
import pytest
from celery import Celery
from redis import Redis

from wakupush.devnet.processes import Process, StartFailedError, answers_http, free_port, wait_until
from wakupush.devnet.redis import RedisServer
from wakupush.redis.users import RedisUser

CONFIG = Path(__file__).parents[2] / "docker" / "config" / "flower.py"
USER = ("operator", "a-password")

MISSING = None if find_spec("flower") else "Flower is not installed: pip install wakupush[flower]"
if MISSING and os.environ.get("CI") != "true":
    pytest.skip(MISSING, allow_module_level=True)


def flower(tmp_path, redis, port, **environment):
    command = [
        "-m",
        "celery",
        "--broker",
        redis.url_of(RedisUser.FLOWER),
        "flower",
        f"--conf={CONFIG}",
        f"--port={port}",
    ]
    return Process(
        "flower",
        [sys.executable, *command],
        log=tmp_path / "flower.log",
        env=os.environ | environment,
        cwd=tmp_path,
        ready=lambda: answers_http(f"http://127.0.0.1:{port}/healthcheck"),
    )


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis") / "data", appendonly=False) as running:
        yield running


@pytest.fixture(scope="module")
def port(redis, tmp_path_factory):
    port = free_port()
    directory = tmp_path_factory.mktemp("flower")
    with flower(directory, redis, port, FLOWER_BASIC_AUTH=":".join(USER), FLOWER_MAX_TASKS="1000000"):
        yield port


def test_it_sees_events_as_its_own_user(port, redis):
    """It asks for nothing else: not to control workers, and not for tasks."""
    app = Celery(broker=redis.url_of(RedisUser.WORKER))
    with app.connection_for_write() as connection, app.events.Dispatcher(connection, hostname="worker@here") as events:
        url = f"http://127.0.0.1:{port}/metrics"

        def is_seen():
            events.send("worker-heartbeat")
            return "worker@here" in httpx2.get(url, auth=USER, trust_env=False).text

        wait_until(is_seen, timeout=30, what="Flower shows the worker")
    with Redis.from_url(redis.url, decode_responses=True) as client:
        assert all(entry["object"].startswith("client") for entry in client.acl_log())  # as in `refused_by_redis`


@pytest.mark.parametrize("path", ["/", "/tasks", "/metrics", "/api/workers", "/api/tasks", "/broker"])
def test_a_password_is_asked_for(port, path):
    url = f"http://127.0.0.1:{port}{path}"
    assert httpx2.get(url, trust_env=False).status_code == 401
    assert httpx2.get(url, auth=(USER[0], "another"), trust_env=False).status_code == 401
    assert httpx2.get(url, auth=USER, trust_env=False).status_code == 200


def test_no_worker_is_controlled_by_it(port):
    url = f"http://127.0.0.1:{port}/api/worker/shutdown/anybody"
    # Otherwise it would say 404: there is no such worker.
    assert httpx2.post(url, auth=USER, trust_env=False).status_code == 403


def test_probes_ask_from_inside(port):
    assert httpx2.get(f"http://127.0.0.1:{port}/healthcheck", trust_env=False).text == "OK"
    outside = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]
    if not outside:
        pytest.skip("this machine has no address but loopback")
    url = f"http://{outside[0]}:{port}/healthcheck"
    assert httpx2.get(url, trust_env=False).status_code == 401
    assert httpx2.get(url, auth=USER, trust_env=False).text == "OK"


def test_it_does_not_start_without_a_password(tmp_path):
    with RedisServer(tmp_path / "redis", appendonly=False) as redis:
        process = flower(tmp_path, redis, free_port(), FLOWER_BASIC_AUTH="")
        with pytest.raises(StartFailedError, match="FLOWER_BASIC_AUTH is missing"):
            process.start()
