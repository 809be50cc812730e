"""`python -m benchmarks.floor`: measures the least possible cost of a message of each kind.

The operations that a message needs are called directly: those of libsecp256k1, Keccak-256 and AES, its rows by one
multi-row statement a table, and an HTTP exchange by the fastest client of a maintained library. There is no Celery, no
Redis, and no Python between them. The bench prints its rows as multiples of this cost.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pycurl
from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT
from Crypto.Hash.keccak import _raw_keccak_lib
from Crypto.Util._raw_api import create_string_buffer
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from rich.console import Console
from rich.table import Table

from wakupush.devnet.postgres import PostgresServer
from wakupush.devnet.processes import Process
from wakupush.devnet.stack import Stack
from wakupush.postgres.migrations import runner

#: Bytes of a push request's payload: encoded, and of its application message.
ENCODED, METADATA = 593, 420
#: Messages of a statement.
BATCH = 64
#: Requests that are open at the same time.
HANDLES = 16
#: Seconds for which an operation is repeated, and how often: the least counts.
SECONDS, TIMES = 0.1, 5

CTX = GLOBAL_CONTEXT.ctx
KECCAK_CAPACITY, KECCAK_ROUNDS, KECCAK_PADDING = 64, 24, 1


def cryptography() -> dict[str, Callable[[], object]]:
    """Return the operations of cryptography, each on values that are made before."""
    secret, digest = os.urandom(32), os.urandom(32)
    point, parsed = ffi.new("secp256k1_pubkey *"), ffi.new("secp256k1_pubkey *")
    lib.secp256k1_ec_pubkey_create(CTX, point, secret)
    serialised, length = ffi.new("unsigned char[65]"), ffi.new("size_t *", 65)
    lib.secp256k1_ec_pubkey_serialize(CTX, serialised, length, point, 2)
    shared, signature = ffi.new("unsigned char[32]"), ffi.new("secp256k1_ecdsa_recoverable_signature *")
    lib.secp256k1_ecdsa_sign_recoverable(CTX, signature, digest, secret, ffi.NULL, ffi.NULL)
    signed, recovered = signature[0], ffi.new("secp256k1_pubkey *")
    parsed_signature = ffi.new("secp256k1_ecdsa_recoverable_signature *", signed)
    encoded, metadata = os.urandom(ENCODED), os.urandom(METADATA)
    key, nonce = os.urandom(16), os.urandom(12)
    sealed = AESGCM(key).encrypt(nonce, encoded, None)
    out = create_string_buffer(32)
    hashed = _raw_keccak_lib.keccak_oneshot

    def keccak256() -> None:
        hashed(metadata, METADATA, out, 32, KECCAK_CAPACITY, KECCAK_ROUNDS, KECCAK_PADDING)

    return {
        "a key": lambda: lib.secp256k1_ec_pubkey_create(CTX, point, secret),
        "a point": lambda: lib.secp256k1_ec_pubkey_parse(CTX, parsed, serialised, 65),
        "ECDH": lambda: lib.secp256k1_ecdh(CTX, shared, point, secret, ffi.NULL, ffi.NULL),
        "a signature": lambda: lib.secp256k1_ecdsa_sign_recoverable(CTX, signature, digest, secret, ffi.NULL, ffi.NULL),
        "a signer": lambda: lib.secp256k1_ecdsa_recover(CTX, recovered, parsed_signature, digest),
        "Keccak-256": keccak256,
        "SHA-256": lambda: hashlib.sha256(key).digest(),
        "HMAC": lambda: hmac.digest(key, encoded, "sha256"),
        "AES-CTR": lambda: Cipher(AES(key), CTR(key)).encryptor().update(encoded),
        "AES-GCM": lambda: AESGCM(key).decrypt(nonce, sealed, None),
    }


def seconds_of(work: Callable[[], object]) -> float:
    """Return the CPU seconds of a call, at the best of several times."""
    best = float("inf")
    for _ in range(TIMES):
        count, start_time = 0, time.thread_time()
        while (used := time.thread_time() - start_time) < SECONDS:
            for _ in range(20):
                work()
            count += 20
        best = min(best, used / count)
    return best


#: Rows that a message leaves, by table: one statement adds those of a batch. What is changed is written again.
ROWS = {
    "a ledger row": (
        "INSERT INTO ledger (message_hash, message_timestamp) SELECT decode(md5(i::text || %(seed)s), 'hex'), i"
        " FROM generate_series(1, %(count)s) AS i"
    ),
    "an answer": (
        "INSERT INTO answers (pubsub_topic, content_topic, payload, trace_id, publish_at)"
        " SELECT '/waku/2/rs/16/32', '/waku/1/0x12345678/rfc26', decode(repeat('5a', 625), 'hex'), 'trace', now()"
        " FROM generate_series(1, %(count)s)"
    ),
    "an answer that is gone": "DELETE FROM answers WHERE id IN (SELECT id FROM answers ORDER BY id LIMIT %(count)s)",
    "a request's id": (
        "INSERT INTO admitted_requests (message_id, succeeded)"
        " SELECT decode(md5(i::text || %(seed)s), 'hex'), '1' FROM generate_series(1, %(count)s) AS i"
    ),
    "a delivery": (
        "INSERT INTO deliveries (delivery_key, key_hash, installation_hash, platform, notification_type,"
        " sealed_content, state, attempt, seen_at, expires_at, task_id, trace_id, lease, lease_until)"
        " SELECT decode(md5(i::text || %(seed)s) || md5(%(seed)s), 'hex'), decode(repeat('5a', 64), 'hex'),"
        " decode(repeat('5a', 16), 'hex'), 1, 1, decode(repeat('5a', 200), 'hex'), 'posting', 1, now(), now(), 'task',"
        " 'trace', gen_random_uuid(), now() FROM generate_series(1, %(count)s) AS i"
    ),
    "a delivery that is done": (
        "UPDATE deliveries SET state = 'delivered', lease = NULL, lease_until = NULL, sealed_content = NULL,"
        " finished_at = now() WHERE delivery_key IN"
        " (SELECT delivery_key FROM deliveries WHERE state = 'posting' LIMIT %(count)s)"
    ),
    "an event": (
        "INSERT INTO delivery_events (schema_version, kind, time, worker, trace_id, queue, queue_wait, latency,"
        " platform, attempt, batch_size, key_pseudonym, installation_pseudonym, count)"
        " SELECT 2, 'delivered', now(), 'worker', 'trace', 'dispatch', 0.1, 0.2, 'ios', 1, 64,"
        " decode(repeat('5a', 16), 'hex'), decode(repeat('5a', 16), 'hex'), 1 FROM generate_series(1, %(count)s)"
    ),
    "a registration": (
        "INSERT INTO registrations (key_hash, installation_hash, version, registered, request_digest,"
        " sealed_device, access_token_digest, token_type, enabled, allow_from_contacts_only, block_mentions)"
        " SELECT decode(repeat(md5(i::text || %(seed)s), 4), 'hex'), decode(repeat('5a', 16), 'hex'), 1, true,"
        " decode(repeat('5a', 16), 'hex'), decode(repeat('5a', 250), 'hex'), decode(repeat('5a', 16), 'hex'), 1,"
        " true, false, false FROM generate_series(1, %(count)s) AS i"
    ),
    "a query topic": (
        "INSERT INTO query_topics (key_hash, prefixed, topic)"
        " SELECT decode(repeat(md5(i::text || %(seed)s), 4), 'hex'), false, '\\x12345678'"
        " FROM generate_series(1, %(count)s) AS i"
    ),
}


def rows(directory: Path) -> dict[str, float]:
    """Return the CPU seconds of a row of each kind, in Postgres, its log and its checkpoint included."""
    with PostgresServer(directory / "postgres") as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        runner.migrate(connection)
        costs = {}
        for name, statement in ROWS.items():
            before = _cpu(server)
            for _ in range(TIMES * 10):
                connection.execute(statement, {"count": BATCH, "seed": os.urandom(8).hex()})
            connection.execute("CHECKPOINT")
            costs[name] = (_cpu(server) - before) / (TIMES * 10 * BATCH)
        return costs


def _cpu(server: Process) -> float:
    parent = psutil.Process(server.pid)
    return sum(sum(each.cpu_times()[:2]) for each in (parent, *parent.children(recursive=True)))


def exchange(directory: Path) -> float:
    """Return the CPU seconds of our side of publishing an answer: many small posts to one node."""
    stack = Stack(directory)
    body = b'{"payload":"' + b"Wlpa" * 208 + b'","contentTopic":"/waku/1/0x12345678/rfc26","version":1}'
    with stack.node:
        url = f"{stack.node_url}/dev/none"
        with _handles(url, body) as post:
            post(BATCH)
            return min(_used(lambda: post(10 * BATCH)) / (10 * BATCH) for _ in range(TIMES))


def _used(work: Callable[[], None]) -> float:
    start_time = time.process_time()
    work()
    return time.process_time() - start_time


@contextmanager
def _handles(url: str, body: bytes) -> Iterator[Callable[[int], None]]:
    multi = pycurl.CurlMulti()
    free = []
    for _ in range(HANDLES):
        handle = pycurl.Curl()
        handle.setopt(pycurl.URL, url)
        handle.setopt(pycurl.POSTFIELDS, body)
        handle.setopt(pycurl.WRITEFUNCTION, len)
        free.append(handle)

    def post(count: int) -> None:
        remaining = under_way = count
        while under_way:
            while free and remaining:
                multi.add_handle(free.pop())
                remaining -= 1
            multi.perform()
            _, handles, failed = multi.info_read()
            if failed:
                raise RuntimeError(failed[0][2])
            for handle in handles:
                multi.remove_handle(handle)
                free.append(handle)
            under_way -= len(handles)
            if under_way and not handles:
                multi.select(1.0)

    yield post
    for handle in free:
        handle.close()
    multi.close()


OPENED = {"a point": 1, "ECDH": 1, "SHA-256": 2, "HMAC": 1}
READ = {"AES-CTR": 1, "Keccak-256": 2, "a signer": 1}
SEALED = {"a key": 1, "ECDH": 1, "SHA-256": 2, "HMAC": 1, "AES-CTR": 1, "a signature": 2, "Keccak-256": 3}
ANSWERED = {**SEALED, "an answer": 1, "an answer that is gone": 1, "an exchange": 1}
HANDLED = {"a ledger row": 1, "an event": 1}


def together(*parts: dict[str, int]) -> dict[str, int]:
    return {name: sum(part.get(name, 0) for part in parts) for part in parts for name in part}


#: What messages need, by kind.
KINDS = {
    "first registrations": together(
        *(OPENED, READ, {"ECDH": 1, "AES-GCM": 3, "a signer": 1, "Keccak-256": 1}, HANDLED),
        *({"a registration": 1, "a query topic": 2}, ANSWERED),
    ),
    "queries of one key": together(
        *({"AES-GCM": 2, "a signer": 1, "Keccak-256": 2}, HANDLED, {"an event": 1}, ANSWERED)
    ),
    "push requests": together(
        *(OPENED, READ, HANDLED, {"AES-GCM": 2, "a request's id": 1, "an event": 1}),
        *({"a delivery": 1, "a delivery that is done": 1}, ANSWERED),
    ),
    # Those of a task are one event.
    "foreign messages": together(OPENED, {"a ledger row": 1}),
}


def floors() -> tuple[dict[str, float], dict[str, float]]:
    """Return the CPU seconds that a message of each kind costs at least, and those of each operation."""
    with tempfile.TemporaryDirectory(prefix="wakupush-floor-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        costs = {operation: seconds_of(work) for operation, work in cryptography().items()}
        costs |= rows(directory) | {"an exchange": exchange(directory)}
    return {
        kind: sum(count * costs[operation] for operation, count in needed.items()) for kind, needed in KINDS.items()
    }, costs


def main() -> None:
    console = Console(highlight=False, soft_wrap=True)
    kinds, costs = floors()
    table = Table("µs", "each", *KINDS, box=None)
    for operation, seconds in costs.items():
        each = [1e6 * seconds * needed.get(operation, 0) for needed in KINDS.values()]
        table.add_row(operation, f"{1e6 * seconds:.1f}", *(f"{cost:.1f}" if cost else "" for cost in each))
    table.add_row("at least", "", *(f"{1e6 * seconds:.0f}" for seconds in kinds.values()))
    console.print(table)


if __name__ == "__main__":
    main()
