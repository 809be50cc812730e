"""A real Postgres and a real Redis for all integration tests; a fresh database for each test."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import psycopg
import pytest
from redis import Redis

from support.answering import running
from support.certificates import self_signed
from support.cluster import TOKEN, Cluster
from support.devnet import serving
from support.served import SHARD, AtEnd, Server
from wakupush.devnet.observer import Observer
from wakupush.devnet.postgres import PostgresServer, temporary_postgres
from wakupush.devnet.redis import RedisServer
from wakupush.model.roles import Role
from wakupush.operate import autoscalers
from wakupush.postgres import maintenance
from wakupush.postgres.migrations import runner
from wakupush.protocol.keys import PrivateKey
from wakupush.redis.limits import Limiter
from wakupush.runtime.settings import Settings
from wakupush.server.worker import open_worker

TEMPLATE = "wakupush_template"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with temporary_postgres() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {TEMPLATE}")
        with psycopg.connect(_dsn(server, TEMPLATE), autocommit=True) as connection:
            runner.migrate(connection)
            maintenance.create_partitions(connection, datetime.now(UTC).date())
            for role in Role:
                connection.execute(f"ALTER ROLE {role} LOGIN")
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis"), appendonly=False) as server:
        yield server


@pytest.fixture
def redis(redis_server) -> Iterator[Redis]:
    """A client of the Redis, which is empty."""
    with Redis.from_url(redis_server.url) as client:
        client.flushall()
        yield client


@pytest.fixture(scope="session")
def node(tmp_path_factory, forkserver) -> Iterator[str]:
    """URL of a development Waku node."""
    with serving("waku", tmp_path_factory.mktemp("waku") / "log", "--shard", SHARD, forkserver=forkserver) as (url, _):
        yield url


@pytest.fixture(scope="session")
def gorush(tmp_path_factory, forkserver) -> Iterator[str]:
    """URL of a development gorush."""
    with serving("gorush", tmp_path_factory.mktemp("gorush") / "log", forkserver=forkserver) as (url, _):
        yield url


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> Path:
    """A certificate of 127.0.0.1 that nobody signed but itself, with its key, in one file."""
    file = tmp_path_factory.mktemp("tls") / "certificate.pem"
    file.write_bytes(self_signed())
    return file


@pytest.fixture
def cluster(certificate, tmp_path, monkeypatch) -> Iterator[Cluster]:
    """The Kubernetes API, as a pod of the cluster finds it."""
    account = tmp_path / "serviceaccount"
    account.mkdir()
    for name, content in (("token", TOKEN), ("namespace", "push"), ("ca.crt", certificate.read_text())):
        (account / name).write_text(content)
    with running(Cluster(certificate, account)) as cluster:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.server_port))
        monkeypatch.setattr(autoscalers, "SERVICE_ACCOUNT", account)
        monkeypatch.setattr(autoscalers, "SETTLING", 0.0)
        yield cluster


@pytest.fixture
def create(postgres) -> Iterator[Callable[[str], str]]:
    """Make a database of a template; it is dropped with the test: to delete them all in the end takes half a minute."""
    names = []

    def create(template: str) -> str:
        names.append(name := f"test_{uuid.uuid4().hex}")
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return _dsn(postgres, name)

    yield create
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_dsn(create) -> str:
    """A database without a schema."""
    return create("template1")


@pytest.fixture
def new_dsn(create) -> Callable[[], str]:
    """Make a database with the schema, and nothing in it."""
    return lambda: create(TEMPLATE)


@pytest.fixture
def dsn(new_dsn) -> str:
    return new_dsn()


@pytest.fixture
def connection(dsn) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def _dsn(server: PostgresServer, database: str) -> str:
    return server.dsn.rsplit("/", 1)[0] + f"/{database}"


@pytest.fixture
def open_server(dsn, redis_server, redis, node, gorush):  # noqa: ARG001 - Redis is empty
    context_pairs = []

    def open_it(**settings):
        base = {
            "worker": {"key_derivation_share": 1, "repeat_answers_after": 0},
            "identity_key": PrivateKey.generate().secret.hex(),
            "waku": {"url": node, "timeout": 2},
            "redis": {"url": redis_server.url, "timeout": 2},
            "postgres": {"dsn": dsn},
            "gorush": {"url": gorush, "timeout": 3, "concurrency": 2},
        }
        context = open_worker(
            Settings(
                **{
                    name: {**base.get(name, {}), **value} if isinstance(value, dict) else value
                    for name, value in settings.items()
                }
                | {name: value for name, value in base.items() if name not in settings}
            )
        )
        observer = Observer(node, gorush)
        # What chance decides, a test can foresee: only what fits is let through. Answers leave when a task has ended.
        context.answers.close()
        context.repeats.close()
        context = replace(
            context,
            limiter=Limiter(context.redis, draw=lambda: math.nextafter(1.0, 0.0)),
            answers=AtEnd(),
            repeats=AtEnd(),
        )
        context_pairs.append((context, observer))
        return Server(context, observer)

    httpx2.delete(f"{gorush}/dev/faults")
    yield open_it
    for context, observer in context_pairs:
        observer.close()
        context.close()
        context.app.close()


@pytest.fixture
def server(open_server):
    return open_server()


@pytest.fixture
def client():
    return PrivateKey.generate()
