"""Time and memory of taking over: ``python -m benchmarks.takeover REGISTRATIONS`` measures a tenth, then all.

A server's database is filled with devices of which nine of ten have ten contacts and chats in their lists, and one has
two hundred. It is exported as the reference's database, imported into an empty one, imported again, and compared.
Commands run as an operator runs them, start of Python included; Postgres runs beside them on the same cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

from benchmarks.commands import measured
from wakupush.devnet.parts.postgres import temporary_postgres
from wakupush.devnet.parts.redis import RedisServer
from wakupush.model.platforms import TokenType
from wakupush.model.registrations import Change, Registration
from wakupush.postgres.migrations import runner
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime import keyfile
from wakupush.server import loading

AT_ONCE = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registrations", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wakupush-takeover-") as name:
        for size in (options.registrations // 10, options.registrations):
            folder = Path(name) / str(size)
            folder.mkdir()
            measure(folder, size, options.seed)


def measure(folder: Path, size: int, seed: int) -> None:
    """Export and import so many registrations."""
    key = PrivateKey.generate()
    keyfile.write(folder / "identity.key", key.secret)
    exported = folder / "export.db"
    with temporary_postgres() as first, temporary_postgres() as second, RedisServer(folder, appendonly=False) as redis:
        for server in (first, second):
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                runner.migrate(connection)
        with psycopg.connect(first.dsn, autocommit=True) as connection:
            for changes in devices(Identity.of(key), size, random.Random(seed)):
                loading.load(connection, changes, Identity.of(key).at_rest)
        common = os.environ | {
            "WAKUPUSH_IDENTITY_KEY_FILE": str(folder / "identity.key"),
            "WAKUPUSH_REDIS__URL": redis.url,
        }
        print(f"{size} registrations", flush=True)
        environment = common | {"WAKUPUSH_POSTGRES__DSN": first.dsn}
        taken = measured("export", "wakupush", "export", "reference", str(exported), environment=environment)
        print(f"    {size / taken.seconds:.0f} a second, {exported.stat().st_size / 1e6:.0f} MB", flush=True)
        environment = common | {"WAKUPUSH_POSTGRES__DSN": second.dsn}
        words = ("wakupush", "import", "reference", str(exported), "--json")
        for name, more in (
            ("dry run", ["--dry-run"]),
            ("import", []),
            ("import again", []),
            ("compare", ["--compare"]),
        ):
            taken = measured(name, *words, *more, environment=environment)
            print(f"    {size / taken.seconds:.0f} a second", flush=True)
            if name == "import":
                assert json.loads(taken.printed.splitlines()[-1])["taken"] == size


def devices(identity: Identity, size: int, chance: random.Random) -> Iterator[list[Change]]:
    """Yield registrations, each of a different user."""
    for start in range(0, size, AT_ONCE):
        yield [device(identity, chance) for _ in range(min(AT_ONCE, size - start))]


def device(identity: Identity, chance: random.Random) -> Change:
    """Return the registration of a device."""
    key_hash, installation_id = chance.randbytes(64), _uuid(chance)
    items = 200 if chance.random() < 0.1 else 10
    registration = Registration(
        installation_id=installation_id,
        version=chance.randint(1, 50),
        token_type=TokenType.FIREBASE,
        device_token=chance.randbytes(80).hex(),
        access_token=_uuid(chance),
        grant=chance.randbytes(65),
        enabled=True,
        apn_topic="",
        allow_from_contacts_only=chance.random() < 0.3,
        block_mentions=False,
        allowed_key_list=tuple(chance.randbytes(64) for _ in range(items)),
        blocked_chat_list=(),
        muted_chat_list=tuple(chance.randbytes(64) for _ in range(items)),
        allowed_mentions_chat_list=(),
    )
    return Change(identity.installation(key_hash, installation_id), b"", registration)


def _uuid(chance: random.Random) -> str:
    text = chance.randbytes(16).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


if __name__ == "__main__":
    main()
