"""Redis with Sentinels: the primary dies, or falls silent, under load. Nothing is lost, and nothing is pushed twice.

That is so also where Redis and its Sentinels speak TLS alone, and the server is a user with few rights there.
"""

import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from e2e.requests_load import Load, doctor, metric
from support.certificates import self_signed
from support.sentinels import PASSWORD, RIGHTS, SENTINEL_PASSWORD, USER, Sentinels, has_tls
from wakupush.devnet.processes import answers_http, wait_until
from wakupush.devnet.stack import External


@pytest.fixture(scope="module", params=["plain", "TLS"])
def redis(request):
    if request.param == "TLS" and not has_tls():
        pytest.skip("set WAKUPUSH_TEST_REDIS to a redis-server with TLS: Debian's, of the package redis-server")
    with tempfile.TemporaryDirectory(prefix="wakupush-sentinels-") as directory:
        certificate = Path(directory) / "certificate.pem"
        certificate.write_bytes(self_signed())
        with Sentinels(Path(directory) / "redis", certificate if request.param == "TLS" else None) as running:
            yield running


@pytest.fixture(scope="module")
def stack(redis, start_stack):
    settings = {**redis.settings, "WAKUPUSH_LIMITS__PUSHES_PER_DEVICE_PER_MINUTE": "1000000"}
    return start_stack(external=External(redis_url=redis.url), settings=settings)


def pause(server):
    """Let it fall silent: its connections stay, and nothing answers."""
    os.kill(server.pid, signal.SIGSTOP)


def kill(server):
    server.kill()


@pytest.fixture
def old(redis):
    """The primary, which is up again after the test."""
    primary = redis.primary()
    yield primary
    if primary.running:
        os.kill(primary.pid, signal.SIGCONT)
    primary.start()
    wait_until(lambda: all(each.answers() for each in redis.servers), timeout=60, what="all are up")


def refused(redis):
    """Return how often the user was refused a command or a key, on all servers, by what."""
    counts = Counter()
    for server in (*redis.servers, *redis.sentinels):
        if server.answers():
            with server.client() as client:
                counts.update({entry["object"]: entry["count"] for entry in client.acl_log()})
    return counts


def is_done(stack, load):
    """Say whether every request is answered and pushed; fail if a worker has ended, which nobody starts again."""
    assert [name for name, worker in stack.workers.items() if not worker.running] == []
    return load.look()


@pytest.mark.parametrize(
    "fault", [pytest.param(kill, id="dies"), pytest.param(pause, id="falls silent", marks=pytest.mark.long)]
)
def test_a_failover_under_load_loses_nothing(stack, redis, old, fault):
    healed = metric(stack.reconcile_url, "wakupush_reconcile_messages_enqueued_total")
    with old.client() as client:
        users = {each["user"] for each in client.client_list() if each["user"] != "default"}
    assert users == ({USER} if old.certificate else set())
    with Load(stack, stack.node_url) as load:
        wait_until(lambda: len(load.send_times) > 100, timeout=60, what="there is load")
        fault(old)
        began, seconds = time.time(), redis.wait_for_another(old)
        wait_until(lambda: answers_http(f"{stack.ingest_url}/readyz"), timeout=120, what="ingest is ready again")
        ready = time.time() - began
        time.sleep(5)
        load.end()
        wait_until(lambda: is_done(stack, load), timeout=200, what="every request is answered and pushed")
        time.sleep(1)
        load.look()
    assert all(load.answered.values())
    assert load.pushed == len(load.send_times)  # none twice
    assert refused(redis) == {}, RIGHTS
    healed = metric(stack.reconcile_url, "wakupush_reconcile_messages_enqueued_total") - healed
    took = sorted(load.took.values())
    print(
        f"{len(took)} answers; another primary after {seconds:.1f} s, ingest ready after {ready:.1f} s,"
        f" the longest answer took {took[-1]:.1f} s, {sum(each > 3 for each in took)} more than 3 s;"
        f" {healed:.0f} enqueued by reconcile"
    )


def test_doctor_says_what_the_sentinels_know(stack, redis):
    assert "all 3 Sentinels answer" in doctor(stack)
    redis.sentinels[0].stop()
    try:
        assert f"the Sentinel 127.0.0.1:{redis.sentinels[0].port} does not answer" in doctor(stack)
    finally:
        redis.sentinels[0].start()


def test_a_password_never_shows(stack):
    text = "".join(path.read_text(errors="replace") for path in stack.directory.glob("*.log"))
    for secret in (PASSWORD, SENTINEL_PASSWORD, quote(PASSWORD)):
        assert secret not in text
    assert httpx2.get(f"{stack.ingest_url}/metrics").text.count("password") == 0
