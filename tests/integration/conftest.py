"""A real Postgres and a real Redis for all integration tests; a fresh database for each test."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from wakupush.devnet.postgres import PostgresServer, temporary_postgres
from wakupush.devnet.processes import Process, answers_http, free_port
from wakupush.devnet.redis import RedisServer
from wakupush.state import maintenance
from wakupush.state.migrations import runner

TEMPLATE = "wakupush_template"
SHARD = "/waku/2/rs/16/32"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with temporary_postgres() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {TEMPLATE}")
        with psycopg.connect(_dsn(server, TEMPLATE), autocommit=True) as connection:
            runner.migrate(connection)
            with connection.transaction():
                maintenance.create_partitions(connection, datetime.now(UTC).date())
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis"), appendonly=False) as server:
        yield server


@pytest.fixture(scope="session")
def node(tmp_path_factory) -> Iterator[str]:
    """URL of a development Waku node."""
    yield from _serve(tmp_path_factory, "waku", "/health", "--shard", SHARD)


@pytest.fixture(scope="session")
def gorush(tmp_path_factory) -> Iterator[str]:
    """URL of a development gorush."""
    yield from _serve(tmp_path_factory, "gorush", "/healthz")


def _serve(tmp_path_factory, name: str, path: str, *options: str) -> Iterator[str]:
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "wakupush.devnet.serve", name, "--port", str(port), *options]
    log = tmp_path_factory.mktemp(name) / "log"
    with Process(name, command, log=log, ready=lambda: answers_http(url + path)):
        yield url


@pytest.fixture
def empty_dsn(postgres) -> str:
    """A database without a schema."""
    return _create(postgres, "template1")


@pytest.fixture
def dsn(postgres) -> str:
    """A database with the schema, and nothing in it."""
    return _create(postgres, TEMPLATE)


@pytest.fixture
def connection(dsn) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def _create(server: PostgresServer, template: str) -> str:
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    return _dsn(server, name)


def _dsn(server: PostgresServer, database: str) -> str:
    return server.dsn.rsplit("/", 1)[0] + f"/{database}"
