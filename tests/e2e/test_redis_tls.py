"""Redis with Sentinels that speak TLS alone, and the server a user with few rights there: it runs, and fails over."""

import tempfile
from pathlib import Path

import pytest

from e2e.requests_load import Load, doctor
from support.certificates import self_signed
from support.sentinels import RIGHTS, USER, Sentinels, has_tls
from wakupush.devnet.processes import answers_http, wait_until
from wakupush.devnet.stack import External


@pytest.fixture(scope="module")
def redis():
    if not has_tls():
        pytest.skip("set WAKUPUSH_TEST_REDIS to a redis-server with TLS: Debian's, of the package redis-server")
    with tempfile.TemporaryDirectory(prefix="wakupush-sentinels-") as name:
        certificate = Path(name) / "certificate.pem"
        certificate.write_bytes(self_signed())
        with Sentinels(Path(name) / "redis", certificate) as running:
            yield running


@pytest.fixture(scope="module")
def stack(redis, start_stack):
    settings = {**redis.settings, "WAKUPUSH_LIMITS__PUSHES_PER_DEVICE_PER_MINUTE": "1000000"}
    return start_stack(external=External(redis_url=redis.url), settings=settings)


def refused(redis):
    """Return how often the user was refused a command or a key, on all servers, by what."""
    found = {}
    for server in (*redis.servers, *redis.sentinels):
        with server.client() as client:
            for entry in client.acl_log() if server.running else ():
                found[entry["object"]] = found.get(entry["object"], 0) + entry["count"]
    return found


def test_redis_over_tls_with_a_restricted_user(stack, redis):
    assert "all 3 Sentinels answer" in doctor(stack)
    primary = redis.primary()
    with primary.client() as client:
        connections = client.client_list()
    assert {each["user"] for each in connections if each["user"] != "default"} == {USER}
    with Load(stack, stack.node_url) as load:
        wait_until(lambda: len(load.sent) > 50, timeout=120, what="there is load")
        primary.kill()
        redis.wait_for_another(primary)
        wait_until(lambda: answers_http(f"{stack.ingest_url}/readyz"), timeout=120, what="ingest is ready again")
        primary.start()
        enough = len(load.sent) + 50
        wait_until(lambda: len(load.sent) > enough, timeout=120, what="there is load after it")
        load.end()
        wait_until(load.look, timeout=300, what="every request is answered and pushed")
    assert [name for name, worker in stack.workers.items() if not worker.running] == []
    assert all(load.answered.values())
    assert load.pushed == len(load.sent)
    assert refused(redis) == {}, RIGHTS
