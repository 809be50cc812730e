"""The state of the whole server in one look: what runs, what waits, what is stopped, and what is wrong about it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from redis import RedisError

from wakupush.model.platforms import AppPlatform
from wakupush.model.quarantine import QuarantineSelection
from wakupush.model.queues import QUEUES
from wakupush.operate import breakers, tokens
from wakupush.operate.breakers import BreakerStatus
from wakupush.operate.tokens import TokenStatus
from wakupush.postgres import backlog as deliveries
from wakupush.postgres import dead_letters, quarantine, reconciliation
from wakupush.postgres.backlog import DeliveryBacklog, ExportBacklog
from wakupush.postgres.reconciliation import Watermark
from wakupush.redis import backlog as queues
from wakupush.redis import left_out, presence, watched
from wakupush.redis.backlog import QueueBacklog
from wakupush.redis.breaker import BreakerState
from wakupush.redis.left_out import NodeFault
from wakupush.redis.presence import RunningProcess
from wakupush.runtime.connections.postgres import check_dsn, parameters, reason, set_timeouts
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import Settings
from wakupush.server.delivery.apps import app_platforms
from wakupush.waku.errors import NodeError
from wakupush.waku.node import WakuNode

#: Seconds to wait for each part.
PATIENCE: Final = 3.0
#: Seconds for which the oldest message of a queue may wait, and a due delivery, before that is worth a word.
MOST_WAIT: Final = 60.0
#: Seconds by which a walk of a Store may be behind.
MOST_LAG: Final = 600.0
#: Seconds by which the export of events may be behind: it runs once a day at least.
MOST_EXPORT_LAG: Final = 2 * 86_400.0
#: Seconds by which a clock may be off that of Redis.
CLOCK_SECONDS: Final = 5.0
#: Processes without which messages are not handled.
NEEDED: Final = ("ingest live", "ingest reconcile", "beat", *(f"worker {name}" for name in QUEUES))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A Waku node, asked by this process."""

    name: str
    #: Its own word for how it is; empty if it does not answer.
    state: str = ""
    is_ready: bool = False
    #: Relay peers by shard; shards of which it says nothing are not there.
    peers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What was read. A part that did not answer is named in `errors`, and its fields are empty."""

    at: float
    nodes: Sequence[NodeStatus] = ()
    faults: Mapping[tuple[str, str], NodeFault] = field(default_factory=dict)
    processes: Sequence[RunningProcess] = ()
    queues: Mapping[str, QueueBacklog] = field(default_factory=dict)
    topics_complete: bool | None = None
    breakers: Sequence[BreakerStatus] = ()
    deliveries: Sequence[DeliveryBacklog] = ()
    dead_letters: Mapping[tuple[AppPlatform, str], int] = field(default_factory=dict)
    quarantined: int | None = None
    tokens: Sequence[TokenStatus] = ()
    watermarks: Sequence[Watermark] = ()
    #: None if nothing exports events.
    export: ExportBacklog | None = None
    errors: Mapping[str, str] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """Return what is wrong, each with what to do; empty if all is well."""
        return [*_of_parts(self), *_of_nodes(self), *self.server_problems()]

    def server_problems(self) -> list[str]:
        """Return what is wrong with our own processes and what waits for them, each with what to do."""
        finders = (_of_processes, _of_queues, _of_deliveries, _of_messages, _of_events)
        return [problem for find in finders for problem in find(self)]


def read(settings: Settings) -> Status:
    """Ask all parts at the same time; it takes `PATIENCE` seconds and some at most, and changes nothing."""
    fields: dict[str, Any] = {}
    errors = {}
    with ThreadPoolExecutor() as executor:
        nodes = [executor.submit(_node, name, url, settings.waku.shards) for name, url in settings.waku.nodes.items()]
        futures = {"Redis": executor.submit(_redis, settings), "Postgres": executor.submit(_postgres, settings)}
        for name, future in futures.items():
            try:
                fields |= future.result()
            except psycopg.OperationalError as error:
                errors[name] = reason(error)
            except psycopg.errors.InsufficientPrivilege:
                errors[name] = "this login may not read it: connect as wakupush_operator or as the owner"
            except (RedisError, psycopg.Error) as error:
                errors[name] = type(error).__name__
        return Status(at=time.time(), nodes=[node.result() for node in nodes], errors=errors, **fields)


def _node(name: str, url: str, shards: tuple[str, ...]) -> NodeStatus:
    try:
        with WakuNode(url, timeout=PATIENCE) as node:
            health = node.health()
            try:
                peers = node.relay_peers(shards)
            except NodeError:
                peers = {}
            return NodeStatus(name=name, state=health.state, is_ready=health.ready, peers=peers)
    except NodeError:
        return NodeStatus(name=name)


def _redis(settings: Settings) -> Mapping[str, Any]:
    with open_redis(settings.redis.model_copy(update={"timeout": PATIENCE})) as redis:
        return {
            "faults": left_out.read(redis),
            "processes": presence.read(redis),
            "queues": queues.look(redis),
            "topics_complete": watched.is_complete(redis),
            "breakers": breakers.statuses(redis, app_platforms(settings)),
        }


def _postgres(settings: Settings) -> Mapping[str, Any]:
    postgres = settings.postgres.model_copy(update={"timeout": PATIENCE, "statement_timeout": PATIENCE})
    with psycopg.connect(check_dsn(postgres), autocommit=True, **parameters(postgres)) as connection:
        set_timeouts(connection, postgres)
        return {
            "deliveries": deliveries.count_deliveries(connection, app_platforms(settings)),
            "dead_letters": dead_letters.counts(connection),
            "quarantined": quarantine.count(connection, QuarantineSelection()),
            "tokens": tokens.statuses(connection, settings.tokens),
            "export": deliveries.export_backlog(connection),
            # The walks over recent messages have the names of queues.
            "watermarks": [
                watermark
                for watermark in reconciliation.watermarks(connection, settings.stores)
                if watermark.track.walk in QUEUES
            ],
        }


def _of_parts(status: Status) -> Iterator[str]:
    for part, error in status.errors.items():
        yield f"{part} does not answer ({error}): see `wakupush doctor`"


def _of_nodes(status: Status) -> Iterator[str]:
    for node in status.nodes:
        if not node.state:
            yield f"the node {node.name} does not answer: is it running, and is its REST API on?"
        elif not node.is_ready:
            yield f"the node {node.name} says {node.state}: look at its peers"
        for shard, count in node.peers.items():
            if not count:
                yield f"the node {node.name} has no relay peer on {shard}: it hears nothing there, and nobody hears it"
    for (name, shard), fault in status.faults.items():
        yield f"the node {name} is {fault.value}{f' on {shard}' if shard else ''}: answers go to other nodes"


def _of_processes(status: Status) -> Iterator[str]:
    if "Redis" in status.errors:
        return
    running = {process.role for process in status.processes if not process.is_gone}
    for role in NEEDED:
        if role not in running:
            yield f"no `wakupush {role}` runs: start it"
    for process in status.processes:
        where = f"`wakupush {process.role}` on {process.host} ({process.pid})"
        if process.is_gone and process.role not in running:
            yield f"{where} was last heard of {process.silence:.0f} s ago: see its log"
        elif process.failing and not process.is_gone:
            yield f"{where} is not ready: {', '.join(process.failing)}"
        if abs(process.clock_offset) > CLOCK_SECONDS and not process.is_gone:
            yield f"the clock of {where} is {process.clock_offset:+.0f} s off Redis': use NTP"
    versions = sorted({process.version for process in status.processes if not process.is_gone})
    if len(versions) > 1:
        yield f"processes of several releases run ({', '.join(versions)}): finish the upgrade"


def _of_queues(status: Status) -> Iterator[str]:
    for name, queue in status.queues.items():
        if queue.oldest is not None and status.at - queue.oldest > MOST_WAIT:
            age = status.at - queue.oldest
            yield f"the queue {name} is behind: its oldest message waits for {age:.0f} s; add workers or see their logs"
    if status.topics_complete is False:
        yield "the watched query topics are not complete: beat fills them; until then some queries are not heard"


def _of_deliveries(status: Status) -> Iterator[str]:
    for breaker in status.breakers:
        view, name = breaker.view, breaker.app_platform.title
        if view.state is not BreakerState.CLOSED:
            state = view.state.name.lower()
            yield f"the breaker of {name} is {state}: its notifications wait; why: `wakupush why --last-hour`"
        elif view.faults:
            many = "post" if view.faults == 1 else f"{view.faults} posts"
            yield f"the last {many} for {name} failed or hung: is gorush well? After some more the breaker opens"
    for waiting in status.deliveries:
        if waiting.due_age > MOST_WAIT:
            name = waiting.app_platform.title
            yield f"{waiting.due} deliveries for {name} are due, the longest for {waiting.due_age:.0f} s"
    for token in status.tokens:
        if token.is_stopped:
            name = token.app_platform.title
            yield f"too many device tokens of {name} are bad: none is marked dead; `wakupush tokens list`"


def _of_messages(status: Status) -> Iterator[str]:
    if status.quarantined:
        yield f"{status.quarantined} messages are in quarantine: `wakupush quarantine list`"
    for watermark in status.watermarks:
        lag = status.at - watermark.walked_to
        if lag > MOST_LAG:
            track = watermark.track
            yield (
                f"reconcile is {lag:.0f} s behind in the Store {track.store} on {track.pubsub_topic} ({track.walk}):"
                " messages that live ingest missed wait there"
            )


def _of_events(status: Status) -> Iterator[str]:
    if status.export is not None and status.export.seconds > MOST_EXPORT_LAG:
        days = status.export.seconds / 86_400
        yield f"`wakupush pipeline export` is {days:.1f} days behind: see its log; what it does not take is dropped"
