"""``wakupush ingest reconcile --once``: what it says, on a terminal and elsewhere, and how it ends."""

import os
import subprocess
import sys

import pytest
from psycopg.conninfo import make_conninfo

from support.reconciling import NOWHERE, SHARD
from wakupush.model.roles import Role


def run_once(bench, *arguments, stderr=subprocess.PIPE, **environment):
    """Run it as a process: it configures the logs."""
    return subprocess.run(
        [sys.executable, "-m", "wakupush", "ingest", "reconcile", *arguments],
        env={
            **os.environ,
            "WAKUPUSH_PUBLIC_KEY": str(bench.server),
            "WAKUPUSH_WAKU__URL": bench.node_url,
            "WAKUPUSH_WAKU__SHARDS": f'["{SHARD}"]',
            "WAKUPUSH_REDIS__URL": bench.redis_url,
            "WAKUPUSH_POSTGRES__DSN": make_conninfo(bench.dsn, user=Role.RECONCILE),
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        check=False,
    )


def test_once_says_what_it_found(bench):
    bench.send(ago=7000, count=3)
    bench.send(ago=100, count=2)
    name = bench.node_url.removeprefix("http://")
    result = run_once(bench, "--once", "--since", "10m")
    assert result.returncode == 0
    assert f"{name} {SHARD} registration: 2 examined, 2 missing, 2 enqueued" in result.stdout
    assert bench.connection.execute("SELECT count(*) FROM watermarks").fetchone() == (0,)
    result = run_once(bench, "--once")
    assert f"{name} {SHARD} registration: 5 examined, 5 missing, 3 enqueued" in result.stdout
    assert bench.connection.execute("SELECT count(*) FROM watermarks").fetchone() == (3,)


def test_once_fails_if_a_walk_was_incomplete(bench):
    bench.send()
    stores = f'["{NOWHERE}", "{bench.node_url}"]'
    result = run_once(bench, "--once", WAKUPUSH_RECONCILE__STORES=stores)
    assert result.returncode == 1
    assert f"127.0.0.1:1 {SHARD} registration: not walked to the end" in result.stdout
    assert "registration: 1 examined, 1 missing, 1 enqueued" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (["--since", "2h"], {}, "--since needs --once"),
        (["--once", "--since", "soon"], {}, "--since is a duration"),
        (["--once", "--since", "90d"], {}, "WAKUPUSH_RETENTION__LEDGER"),
        (["--once"], {"WAKUPUSH_PUBLIC_KEY": ""}, "WAKUPUSH_PUBLIC_KEY"),
        (["--once"], {"WAKUPUSH_RECONCILE__STORES": '["nowhere"]'}, "WAKUPUSH_RECONCILE__STORES"),
    ],
)
def test_what_is_wrong_with_the_command_is_said(bench, arguments, environment, text):
    result = run_once(bench, *arguments, **environment)
    assert result.returncode == 2
    assert text in result.stderr
