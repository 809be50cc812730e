"""A cluster that loses half of itself while it rebuilds comes to the same registrations."""

import json
import os
import subprocess
import sys
import time

import psycopg
import pytest

from support.pipeline.histories import History, archive
from support.pipeline.standalone import cluster, processes
from support.stored import contents
from wakupush.pipeline.archive import rebuild
from wakupush.pipeline.archive.files import Archive
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime import keyfile

USERS = 120


def rows(dsn, key):
    with psycopg.connect(dsn) as connection:
        return contents(connection, Identity.of(key))


def kill_a_worker():
    """Kill a worker of our cluster, and its executor with everything that it runs."""
    worker = processes("org.apache.spark.deploy.worker.Worker")[0]
    executor = worker.children(recursive=True)
    assert executor, "the worker has an executor"
    for each in (worker, *executor):
        each.kill()


@pytest.mark.long
def test_a_worker_is_killed_in_the_middle(spark, make_settings, new_database, tmp_path):
    key_file = tmp_path / "identity.key"
    keyfile.write(key_file, (key := PrivateKey.generate()).secret)
    server = key.public_key
    alone, shared = (
        make_settings(dsn, archive=tmp_path / "archive").model_copy(update={"identity_key_file": key_file})
        for dsn in (new_database(), new_database())
    )
    history = History.of(server, seed=21)
    messages = [message for _ in range(USERS) for message in history.user_of_versions()]
    archive(Archive.of(alone.pipeline, server), messages)
    summary = rebuild.run(spark, alone)
    expected = rows(alone.postgres.dsn.get_secret_value(), key)
    assert len(expected) > USERS

    dsn = shared.postgres.dsn.get_secret_value()
    with cluster(tmp_path) as master:
        environment = os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "WAKUPUSH_IDENTITY_KEY_FILE": str(key_file),
            "WAKUPUSH_POSTGRES__DSN": dsn,
            "WAKUPUSH_PIPELINE__ARCHIVE": str(tmp_path / "archive"),
            "WAKUPUSH_PIPELINE__MASTER": master,
            "WAKUPUSH_PIPELINE__MEMORY": "1g",
            "WAKUPUSH_PIPELINE__SHUFFLE_PARTITIONS": "60",
        }
        command = [sys.executable, "-m", "wakupush", "pipeline", "rebuild", "--json"]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            with psycopg.connect(dsn, autocommit=True) as connection:
                while not (loaded := connection.execute("SELECT count(*) FROM registrations").fetchone()[0]):
                    assert process.poll() is None, process.communicate()
                    time.sleep(0.01)
            kill_a_worker()
            output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert loaded < len(expected)
    assert rows(dsn, key) == expected
    again = json.loads(output)
    assert again["outcomes"] == summary.outcomes
    assert (again["registered"], again["unregistered"]) == (summary.registered, summary.unregistered)
