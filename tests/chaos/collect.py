"""Reading the evidence of a run: the node's log and archive, gorush's log, Postgres, Redis, and the memory in use."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path

import httpx2
import psutil
from psycopg import Connection
from redis import Redis

from chaos.case import MACHINE
from chaos.evidence import Answered, DeviceId, Happened, Kept, Pushed, Sample, Stored, Window
from chaos.faults import server_processes
from chaos.plan import SUCCESS, Sent
from chaos.stack import ChaosStack
from support.stored import contents
from wakupush.devnet.conversation import OpenedReply, open_reply
from wakupush.devnet.stack import Stack
from wakupush.model.events import period_of
from wakupush.model.queues import POOLS
from wakupush.model.registrations import Installation
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import (
    PushNotificationQueryResponse,
    PushNotificationRegistration,
    PushNotificationRegistrationResponse,
    PushNotificationReport,
    PushNotificationResponse,
)
from wakupush.protocol import topics
from wakupush.protocol.application import Type
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import PipelineSettings, RedisSettings
from wakupush.waku.codec import decode_message

#: The share of its time that a process has to wait for a processor where the machine is at fault.
BUSY = 0.5
#: Seconds between two such times that are one.
APART = 5.0
#: Messages that the node hands out of its archive at once.
PAGE = 100


def relayed(url: str) -> list[tuple[str, WakuMessage, float]]:
    """Return all messages that a node has relayed, each with its hash, and when it arrived."""
    archive = list(_archive(url))
    arrived = {entry["hash"]: entry["arrivedAt"] for entry in _log(url)}
    return [(hash_, message, arrived[hash_]) for hash_, message in archive]


def answers(
    stack: Stack, relayed: Iterable[tuple[str, WakuMessage, float]], messages: tuple[Sent, ...]
) -> tuple[Answered, ...]:
    """Return the server's answers to these messages, opened with the keys of those who asked."""
    keys: dict[str, list[PrivateKey]] = defaultdict(list)
    for secret in {each.client for each in messages}:
        key = PrivateKey(bytes.fromhex(secret))
        keys[topics.content_topic(topics.partitioned_topic(key.public_key))].append(key)
    opened = []
    for _, message, arrived in relayed:
        reply = open_reply(message, tuple(keys.get(message.content_topic, ())))
        if reply is not None and (answer := read_answer(stack, reply, arrived)):
            opened.append(answer)
    return tuple(opened)


def read_answer(stack: Stack, reply: OpenedReply, at: float) -> Answered | None:
    """Return what the server answered; None if it is not the server's answer."""
    if reply.signer != stack.key.public_key or reply.type not in _READERS:
        return None
    return _READERS[reply.type](reply, at)


def _read_registration(reply: OpenedReply, at: float) -> Answered:
    response = PushNotificationRegistrationResponse.FromString(reply.inner)
    result = SUCCESS if response.success else response.ErrorType.Name(response.error)
    return Answered(id=response.request_id.hex(), results=(result,), at=at)


def _read_query(reply: OpenedReply, at: float) -> Answered:
    response = PushNotificationQueryResponse.FromString(reply.inner)
    results = tuple(sorted(f"{info.installation_id} {info.access_token}" for info in response.info))
    return Answered(id=response.message_id.hex(), results=results, at=at)


def _read_request(reply: OpenedReply, at: float) -> Answered:
    response = PushNotificationResponse.FromString(reply.inner)
    results = tuple(
        SUCCESS if report.success else PushNotificationReport.ErrorType.Name(report.error)
        for report in response.reports
    )
    about = tuple(report.installation_id for report in response.reports)
    return Answered(id=response.message_id.hex(), results=results, about=about, at=at)


_READERS = {
    Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE: _read_registration,
    Type.PUSH_NOTIFICATION_QUERY_RESPONSE: _read_query,
    Type.PUSH_NOTIFICATION_RESPONSE: _read_request,
}


def pushes(stack: Stack) -> tuple[Pushed, ...]:
    """Return the attempts in gorush's log."""
    return tuple(
        Pushed(
            delivery_key=entry["notification"].get("notif_id", "").partition("-")[0],
            outcome=entry["outcome"],
            at=entry["at"],
        )
        for entry in _log(stack.gorush_url)
    )


def events(
    stack: Stack, connection: Connection, messages: tuple[Sent, ...], since: float = 0.0
) -> tuple[Happened, ...]:
    """Return the delivery events from a time on (seconds since the epoch), in the order of their commits.

    What was sent is named by its own trace ids. The times are those of the commits where Postgres keeps them; else the
    workers' clocks count.
    """
    tracks = connection.execute("SHOW track_commit_timestamp").fetchone() == ("on",)
    time_ = "coalesce(pg_xact_commit_timestamp(transaction_id::xid), time)" if tracks else "time"
    rows = connection.execute(
        f"SELECT kind, trace_id, extract(epoch FROM {time_})::float8 AS at, failure, attempt,"
        " encode(installation_pseudonym, 'hex'), count, split_part(worker, ':', 2)::integer"
        " FROM delivery_history WHERE time >= to_timestamp(%s) ORDER BY at, id, step",
        [since],
    )
    names = ("kind", "trace_id", "at", "failure", "attempt", "installation", "count", "pid")
    identity = Identity.of(stack.key)
    trace_ids = {identity.event_trace_id(each.trace_id): each.trace_id for each in messages}
    raw_events = (Happened(**dict(zip(names, row, strict=True))) for row in rows)
    return tuple(replace(each, trace_id=trace_ids.get(each.trace_id or "", each.trace_id)) for each in raw_events)


def pseudonyms(stack: Stack, messages: tuple[Sent, ...]) -> dict[DeviceId, str]:
    """Return the pseudonyms of the devices that were notified."""
    identity = Identity.of(stack.key)
    devices = {DeviceId(item.key_hash, item.installation_id) for each in messages for item in each.items}
    period = period_of(max((each.at for each in messages), default=0.0), PipelineSettings().pseudonym_days)
    installations = {
        device: identity.installation(bytes.fromhex(device.key_hash), device.installation_id) for device in devices
    }
    return {
        device: identity.pseudonyms(installation, period)[1].hex() for device, installation in installations.items()
    }


def registrations(stack: Stack, connection: Connection, messages: tuple[Sent, ...]) -> dict[DeviceId, Stored]:
    """Return what is stored; a device that is in no registration of the plan goes by the hash of its id."""
    identity = Identity.of(stack.key)
    installation_ids: dict[Installation, str] = {}
    blocked: dict[Installation, set[bytes]] = defaultdict(set)
    for each in messages:
        if each.kind == "registration":
            content = PushNotificationRegistration.FromString(bytes.fromhex(each.content))
            key_hash = PrivateKey(bytes.fromhex(each.client)).public_key.key_hash
            installation = identity.installation(key_hash, content.installation_id)
            installation_ids[installation] = content.installation_id
            blocked[installation].update(content.blocked_chat_list)
    return {
        DeviceId(
            where.key_hash.hex(), installation_ids.get(where, where.installation_hash.hex())
        ): _stored_registration(
            version, device, row, {identity.at_rest.item_digest(where, item): item for item in blocked[where]}
        )
        for where, (version, device, _, row) in contents(connection, identity).items()
    }


#: What is left of who unregistered, beside the version.
_STAYS = {"request_digest", "sealed_version"}


def _stored_registration(
    version: int, device: PushNotificationRegistration | None, row: dict, blocked: dict[bytes, bytes]
) -> Stored:
    """Return a row as it is compared; of a list the items that the device ever sent, by their digests."""
    if not row.pop("registered"):
        content = {name: value for name, value in row.items() if name not in _STAYS and value is not None}
        return Stored(version=version, registered=False, content=content)
    digests = row["blocked_chat_digests"] or b""
    items = [blocked.get(digests[at : at + 16], b"?") for at in range(0, len(digests), 16)]
    clear = {name: row[name] for name in ("token_type", "enabled", "allow_from_contacts_only", "block_mentions")}
    sealed = {name: getattr(device, name) for name in ("device_token", "access_token", "apn_topic")}
    lists = {"grant": device.grant.hex(), "blocked_chat_list": sorted(each.hex() for each in items)}
    return Stored(version=version, registered=True, content=clear | sealed | lists)


def deliveries(connection: Connection) -> dict[str, Kept]:
    """Return all deliveries."""
    rows = connection.execute("SELECT encode(delivery_key, 'hex'), state, failure, attempt FROM deliveries")
    return {key: Kept(state=state, failure=failure, attempt=attempt) for key, state, failure, attempt in rows}


def quarantined(connection: Connection) -> dict[str, str]:
    """Return the messages in quarantine and why they are there."""
    rows = connection.execute("SELECT encode(message_hash, 'hex'), reason || ' in ' || queue FROM quarantine")
    return dict(rows.fetchall())


def _redis(stack: Stack) -> Redis:
    group = "WAKUPUSH_REDIS__"
    values = {name.removeprefix(group).lower(): it for name, it in stack.environment.items() if name.startswith(group)}
    if isinstance(stack, ChaosStack):
        values["url"] = stack.redis_url
    return open_redis(RedisSettings(**values))


def handled(connection: Connection) -> set[str]:
    """Return the envelopes in the ledger."""
    return {row[0] for row in connection.execute("SELECT encode(message_hash, 'hex') FROM ledger")}


def in_flight(stack: Stack, connection: Connection) -> dict[str, int]:
    """Return what is still to be done, by its name."""
    counts = {
        name: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for name, table in (
            ("deliveries pending", "deliveries WHERE state = 'pending'"),
            ("deliveries posting", "deliveries WHERE state = 'posting'"),
            ("answers in the outbox", "answers"),
            ("queries that wait", "waiting_queries"),
        )
    }
    with _redis(stack) as redis:
        for queue in POOLS:
            counts[f"tasks in {queue}"] = redis.llen(queue)
        counts["unacknowledged tasks"] = redis.hlen("unacked")
    return counts


#: Tables whose rows serve something when all is quiet: what is registered, what was handled, and for how long that is
#: remembered. Of every other table nothing may be left.
LASTING_TABLES = frozenset(
    {
        *("admitted_requests", "app_token_trials", "deliveries", "delivery_events", "ledger", "query_topics"),
        *("registrations", "schema_migrations", "token_trials", "watermarks"),
    }
)
#: What the keys in Redis begin with that have no end: the topics that are listened to, and Celery's own, of which
#: `in_flight` tells.
LASTING_KEYS = ("wakupush:watched:", "wakupush:processes", "_kombu.binding", "unacked", *POOLS)


def leftovers(stack: Stack, connection: Connection) -> dict[str, int]:
    """Return how much is stored that serves nothing when all is quiet: of each table, and in Redis without an end."""
    tables = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
        " AND NOT relispartition ORDER BY relname"
    )
    counts = {
        name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
        for (name,) in tables
        if name not in LASTING_TABLES
    }
    # Where Redis lost the task of a message alone, a copy was handled with others. Retention deletes the row.
    condition = "message_hash IN (SELECT message_hash FROM ledger)"
    undone = connection.execute(f"SELECT count(*) FROM message_attempts WHERE NOT {condition}").fetchone()
    counts["message_attempts"] = undone[0] if undone else 0
    with _redis(stack) as redis:
        endless = Counter(
            key.decode(errors="replace").split("-")[0]
            for key in redis.scan_iter(count=1000)
            if redis.ttl(key) == -1 and not key.decode(errors="replace").startswith(LASTING_KEYS)
        )
    return counts | {f"{name} in Redis": count for name, count in endless.items()}


def healed(stack: Stack) -> int:
    """Return how many messages reconcile enqueued, by its log."""
    lines = stack.reconcile.log.read_text(errors="replace").splitlines()
    return sum(json.loads(line)["enqueued"] for line in lines if '"event": "walk_finished"' in line)


def samples(stack: Stack) -> list[Sample]:
    """Return what the server's processes use, those of the pools included."""
    now = time.time()
    samples = []
    for name, process in server_processes(stack).items():
        try:
            if process.pid is None:
                continue
            main = psutil.Process(process.pid)
            family = [(name, main), *((f"child of {name}", child) for child in main.children())]
            samples += [
                Sample(
                    name=label,
                    pid=it.pid,
                    at=now,
                    age=now - it.create_time(),
                    rss=it.memory_info().rss,
                    wait_seconds=_wait_seconds(it.pid),
                )
                for label, it in family
            ]
        except psutil.NoSuchProcess:
            continue
    return samples


def _wait_seconds(pid: int) -> float:
    """Return the seconds that a process was ready to run and had no processor; 0 where Linux does not count that."""
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def busy(samples: Iterable[Sample]) -> list[Window]:
    """Return when the machine was so busy that a process of the server waited for most of the time to run at all."""
    times = []
    for _, each in groupby(sorted(samples, key=lambda it: (it.pid, it.at)), key=lambda it: it.pid):
        for one, other in pairwise(each):
            if other.wait_seconds - one.wait_seconds > BUSY * (other.at - one.at):
                times.append((one.at, other.at))
    windows: list[Window] = []
    for began, ended in sorted(times):
        if windows and began < windows[-1].ended + APART:
            windows[-1] = replace(windows[-1], ended=max(ended, windows[-1].ended))
        else:
            windows.append(Window(name="the machine is busy", began=began, ended=ended, part=MACHINE))
    return windows


def _log(url: str) -> list[dict]:
    answer = httpx2.get(f"{url}/dev/log", params={"after": 0}, timeout=120, trust_env=False).raise_for_status()
    log = json.loads(answer.content)
    if log["entries"] and log["entries"][0]["seq"] != 1:
        raise ValueError("the log does not reach back to the beginning")
    return log["entries"]


def _archive(url: str) -> Iterator[tuple[str, WakuMessage]]:
    """Yield everything in the node's archive with its hash."""
    parameters = {"includeData": "true", "pageSize": str(PAGE)}
    with httpx2.Client(base_url=url, trust_env=False, timeout=30) as client:
        while True:
            page = client.get("/store/v3/messages", params=parameters).raise_for_status().json()
            for each in page["messages"]:
                yield each["messageHash"], decode_message(each["message"])
            if "paginationCursor" not in page:
                return
            parameters["cursor"] = page["paginationCursor"]
