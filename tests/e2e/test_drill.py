"""The drill of docs/operating/restore.md: a working server's database is dropped, and rebuilt by its commands."""

import asyncio
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import psycopg
import pytest

from e2e.clients import device, eventually, key, notify, people
from support.stored import contents
from wakupush.client.drivers.transport import LightTransport
from wakupush.client.events import Enrolled
from wakupush.client.rules.registering import Status
from wakupush.client.rules.sending import Result
from wakupush.devnet.postgres import temporary_postgres
from wakupush.devnet.stack import SHARDS, External
from wakupush.pipeline.session import missing_parts
from wakupush.protocol.identity import Identity

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "operating" / "restore.md"
MISSING = missing_parts()

pytestmark = pytest.mark.skipif(
    bool(MISSING) and os.environ.get("CI") != "true", reason=f"tests/pipeline says it too: {MISSING}"
)


def commands():
    section = DOCUMENT.read_text().split("## When the database is gone")[1]
    block = re.search(r"```console\n(.*?)```", section, re.DOTALL)[1]
    return [line.removeprefix("$ ") for line in block.splitlines()]


@pytest.fixture(scope="module")
def postgres():
    with temporary_postgres() as server:
        yield server


# Started after Postgres, and so stopped before it: without it every process would be waited for.
@pytest.fixture(scope="module")
def stack(postgres, start_stack):
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute("CREATE DATABASE wakupush")
    return start_stack(external=External(postgres_dsn=postgres.dsn.rpartition("/")[0] + "/wakupush"))


def recover(stack, postgres, tmp_path):
    """Do what an operator does, by the document; return what the commands told."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "wakupush").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m wakupush "$@"\n')
    (programs / "wakupush").chmod(0o755)
    environment = stack.environment | {
        "PATH": os.pathsep.join([str(programs), str(postgres._programs), os.environ["PATH"]]),
        "JAVA_HOME": os.environ.get("JAVA_HOME", ""),
        "ADMIN": postgres.dsn,
        "REBUILT": postgres.dsn.rpartition("/")[0] + "/wakupush_rebuilt",
        "WAKUPUSH_PIPELINE__ARCHIVE": str(tmp_path / "archive"),
        "WAKUPUSH_PIPELINE__MASTER": "local[1]",
        "WAKUPUSH_PIPELINE__MEMORY": "1g",
        "WAKUPUSH_PIPELINE__SHUFFLE_PARTITIONS": "1",
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    process = subprocess.run(
        ["/bin/bash", "-euxc", "\n".join(commands())],
        env={name: value for name, value in environment.items() if value},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def rows(dsn, key):
    with psycopg.connect(dsn) as connection:
        return contents(connection, Identity.of(key))


async def register(client, stack, token, seconds=120.0):
    client.enable_receiving(device(token), [stack.key.public_key])
    assert await client.wait_until_settled(seconds)


async def push(sender, receiver):
    """Return what came of it for each device that the sender finds."""
    await sender.query([key(receiver)], force=True)
    return await notify(sender, receiver)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_clients_notice_nothing(stack, postgres, pushes, tmp_path):
    events, tokens = [], set()

    def pushed_to():
        """Return the device tokens that gorush was asked to push to."""
        tokens.update(token for push in pushes() for token in push.notification["tokens"])
        return tokens

    async def run():
        light = partial(LightTransport, stack.node_url, [SHARDS[0]])
        async with people(light, "alice", "bob", "dora", "eve", on_event=events.append) as (alice, bob, dora, eve):
            await register(alice, stack, "alice-old")
            await register(alice, stack, "alice")
            await register(dora, stack, "dora")
            dora.disable_receiving()
            assert await dora.wait_until_settled(120)
            bob.enable_sending()
            assert await push(bob, alice) == [Result.ACCEPTED]
            before = rows(stack.postgres_dsn, stack.key)
            events.clear()

            with psycopg.connect(postgres.dsn, autocommit=True) as admin:
                admin.execute("DROP DATABASE wakupush WITH (FORCE)")
            # While there is no database, somebody registers.
            registering = asyncio.create_task(register(eve, stack, "eve", 1100.0))
            output = await asyncio.to_thread(recover, stack, postgres, tmp_path)
            # Her registration is in the archive, too.
            assert "2 registered, 1 unregistered" in output
            assert "4 keys derived" in output
            await registering

            after = rows(stack.postgres_dsn, stack.key)
            assert {where: row for where, row in after.items() if where in before} == before
            assert len(after) == len(before) + 1
            assert await push(bob, alice) == [Result.ACCEPTED]
            assert await push(bob, eve) == [Result.ACCEPTED]
            assert await push(bob, dora) == []
            await eventually(lambda: "eve" in pushed_to(), 300)
            assert pushed_to() == {"alice", "eve"}

    asyncio.run(run())
    # Nobody was told of anything but that eve is registered.
    answered = [event.enrolment for event in events if isinstance(event, Enrolled)]
    assert [each.status for each in answered] == [Status.REGISTERED]
