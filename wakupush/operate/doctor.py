"""Checks of the parts that the server depends on: settings, nodes, gorush, Redis and Postgres."""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from ipaddress import ip_address
from typing import cast

import httpx2
import psycopg
from redis import AuthenticationError, ConnectionError, Redis, RedisError, ResponseError, TimeoutError  # noqa: A004 - Redis' own

from wakupush.model.queues import REST_WORKER
from wakupush.model.roles import Role
from wakupush.operate.finding import Finding, Level
from wakupush.operate.status import read
from wakupush.postgres import apps, limits, roles
from wakupush.postgres.migrations import runner
from wakupush.protocol.sealing import UnsealableError
from wakupush.redis import left_out
from wakupush.redis.left_out import NodeFault
from wakupush.runtime import keyfile
from wakupush.runtime.connections.postgres import check_dsn, is_pooled, reason
from wakupush.runtime.connections.redis import open_redis, open_sentinel, primary_name
from wakupush.runtime.settings import CANARY, Settings, SettingsError
from wakupush.server.delivery.apps import app_of
from wakupush.server.engine.identity import KEYS_DIFFER, NoIdentityError, is_published, load_identity, load_public_keys
from wakupush.waku.errors import NodeError
from wakupush.waku.node import WakuNode
from wakupush.waku.store import Store
from wakupush.waku.store_codec import Query

#: Seconds to wait for each part.
PATIENCE = 5.0
#: Seconds to wait for a Store that a node asks: a nwaku gives its peer five.
PEER_PATIENCE = 10.0
_ANY_TOPIC = "/waku/1/0x00000000/rfc26"
#: Seconds by which two clocks may differ. Nodes archive messages whose time is at most 20 s off.
MOST_SKEW = 5.0
#: Devices without an app whose topics are read.
MOST_DEVICES = 100
#: Seconds without a message after which a shard counts as silent.
SILENT_SECONDS = 3600
#: Processes with a pool of connections to Postgres: one worker of each pool, reconcile, beat and feedback. The exporter
#: opens one connection.
ONE_EACH = 7
#: Share of Redis' memory from which on it is nearly full.
FULL_SHARE = 0.8
#: The oldest release of Postgres that has all that our SQL uses: `max` of a transaction's number came with it.
OLDEST_POSTGRES = 15
#: How many rights of a login are listed at most.
MOST_RIGHTS = 5


def examine(settings: Settings, connections: int | None = None) -> Iterator[Finding]:
    """Look at everything the server depends on, one after another; nothing is changed.

    Args:
        connections: that all processes open to Postgres at most; by default those of one process each.
    """
    for check in (_identity, _nodes, _store, _store_peers, _gorush, _redis):
        yield from check(settings)
    yield from _postgres(settings, connections or ONE_EACH * settings.postgres.pool_size + 1)
    yield from _server(settings)


def _server(settings: Settings) -> Iterator[Finding]:
    """Look at our own processes, and what waits for them; Redis and Postgres have been checked before."""
    part = "server"
    try:
        status = read(settings)
    except SettingsError:
        return
    if status.errors:
        return
    if not status.processes:
        text = "no process ran within the last hour: the checks of a running server are left out"
        yield Finding(Level.WARNING, part, text)
        return
    problems = status.server_problems()
    yield from (Finding(Level.FAULT, part, problem) for problem in problems)
    if not problems:
        yield Finding(Level.OK, part, "its processes run, and nothing waits for long")
    if all(process.is_gone or process.role != REST_WORKER for process in status.processes):
        text = "no `wakupush worker rest` runs: if a stranger floods the server, everybody's messages wait behind his"
        yield Finding(Level.WARNING, part, text)


def _identity(settings: Settings) -> Iterator[Finding]:
    part = "identity"
    try:
        identity = load_identity(settings)
    except NoIdentityError as error:
        is_set = settings.identity_key is not None or settings.identity_key_file is not None
        level = Level.FAULT if is_set else Level.WARNING
        yield Finding(level, part, f"{error}; workers do not start without it")
        identity = None
    file = settings.identity_key_file
    if identity is not None and settings.identity_key is None and file is not None and keyfile.is_open(file):
        yield Finding(Level.WARNING, part, f"every user of this machine may read {file}: chmod 600, or 640 for a group")
    if settings.public_key is None:
        yield Finding(Level.WARNING, part, "WAKUPUSH_PUBLIC_KEY is missing: ingest does not start without it")
        return
    try:
        load_public_keys(settings)
    except SettingsError as error:
        yield Finding(Level.FAULT, part, f"{error}; ingest does not start")
        return
    if identity is not None and not is_published(identity, settings):
        yield Finding(Level.FAULT, part, KEYS_DIFFER)
    elif identity is not None:
        previous = "".join(f"; before: {key.public_key}" for key in identity.previous)
        yield Finding(Level.OK, part, f"the public key is {identity.public_key}{previous}")


def _nodes(settings: Settings) -> Iterator[Finding]:
    for name, url in settings.waku.nodes.items():
        yield from _node(f"Waku node {name}", url, settings.waku.shards)
    if len(settings.waku.nodes) > 1:
        yield from _left_out(settings)


def _node(part: str, url: str, shards: tuple[str, ...]) -> Iterator[Finding]:
    try:
        with WakuNode(url, timeout=PATIENCE) as node:
            health = node.health()
            yield from _relay_peers(part, node, shards)
    except NodeError as error:
        yield Finding(Level.FAULT, part, f"no Waku node answers there ({type(error).__name__}): is --rest on?")
        return
    if health.ready:
        yield Finding(Level.OK, part, f"it says {health.state}")
    else:
        yield Finding(Level.WARNING, part, f"it says {health.state}: wait, or look at its peers")
    answer = _get(f"{url}/health")
    if answer is not None and "date" in answer.headers:
        try:
            yield _clock(part, parsedate_to_datetime(answer.headers["date"]).timestamp())
        except ValueError:
            yield Finding(Level.WARNING, part, "it answers with a date that is none: see that its clock is right")


def _relay_peers(part: str, node: WakuNode, shards: tuple[str, ...]) -> Iterator[Finding]:
    try:
        counts = node.relay_peers(shards)
    except NodeError:
        counts = {}
    if not counts:
        yield Finding(Level.OK, part, "it does not say which relay peers it has; a nwaku needs --rest-admin for that")
    for shard, count in counts.items():
        if count:
            yield Finding(Level.OK, part, f"it has relay peers on the shard {shard}: {count}")
        else:
            text = f"it has no relay peer on the shard {shard}: do its peers serve that shard?"
            yield Finding(Level.WARNING, part, text)


#: Advice about a node that ingest has left out.
_NODE_ADVICE = {
    NodeFault.UNREACHABLE: "ingest cannot read it: look at its log, and at the network between",
    NodeFault.DEAF: "it misses messages that other nodes have: look at its peers and shards, or start it anew",
    NodeFault.MUTE: "what is published on it arrives nowhere: look at its peers, or start it anew",
}


def _left_out(settings: Settings) -> Iterator[Finding]:
    """Report the nodes that ingest leaves out. A Redis that fails is reported by its own check."""
    with suppress(SettingsError, RedisError), open_redis(settings.redis) as redis:
        for (name, shard), fault in sorted(left_out.read(redis).items()):
            where = f" on the shard {shard}" if shard else ""
            text = f"left out for sending{where} ({fault}): {_NODE_ADVICE[fault]}"
            yield Finding(Level.WARNING, f"Waku node {name}", text)


def _store(settings: Settings) -> Iterator[Finding]:
    part = "Store"
    for name, url in settings.stores.items():
        try:
            with Store(url, timeout=PATIENCE) as store:
                silent = [shard for shard in settings.waku.shards if _is_silent(store, shard)]
        except NodeError as error:
            yield Finding(
                Level.WARNING,
                part,
                f"{name} has no Store that answers ({type(error).__name__}): what ingest misses will not heal from it;"
                " switch --store on",
            )
        else:
            yield Finding(Level.OK, part, f"{name} can be walked by ingest reconcile")
            for shard in silent:
                text = f"{name} got no message on the shard {shard} for an hour: does anybody use it, and do its peers?"
                yield Finding(Level.WARNING, part, text)


def _store_peers(settings: Settings) -> Iterator[Finding]:
    part = "Store peer"
    at = time.time_ns()
    # A go-waku demands a content topic; any will do.
    query = Query(pubsub_topic=settings.waku.shards[0], content_topics=(_ANY_TOPIC,), start=at, end=at)
    for name, peer in settings.reconcile.peers.items():
        for node, url in settings.waku.nodes.items():
            try:
                with Store(url, timeout=PEER_PATIENCE, peer=peer) as store:
                    list(store.walk(query, with_messages=False))
            except NodeError as error:
                text = (
                    f"{name} does not answer through {node} ({type(error).__name__}: {error}): see address and peer id"
                )
                yield Finding(Level.WARNING, part, text)
            else:
                yield Finding(Level.OK, part, f"{name} answers through {node}")


def _is_silent(store: Store, shard: str) -> bool:
    """Return whether a Store has no message of the last hour on a shard.

    Raises:
        NodeError: the Store failed.
    """
    now = time.time_ns()
    query = Query(pubsub_topic=shard, start=now - SILENT_SECONDS * 10**9, end=now)
    page = next(store.walk(query, with_messages=False), None)
    return page is None or not page.messages


#: Lines that gorush's configuration must contain, and why.
_GORUSH_WANTS = {
    r"^\s*sync: true": "core.sync must be true: outcomes are known only then",
    r"^\s*engine: \"?local": "queue.engine must be local: others switch sync off",
}


def _gorush(settings: Settings) -> Iterator[Finding]:
    # `wakupush canary` takes its own pushes, and is no gorush.
    apps = [app for app in settings.app_names if app != CANARY]
    instances = {name: url for app in apps for name, url in settings.gorush_of(app).instances.items()}
    for name, url in instances.items():
        yield from _instance(f"gorush {name}", url, settings)


def _instance(part: str, url: str, settings: Settings) -> Iterator[Finding]:
    health = _get(f"{url}/healthz")
    if health is None or health.status_code != HTTPStatus.OK:
        yield Finding(Level.FAULT, part, "no gorush answers there: deliveries wait as rows meanwhile, or go to another")
        return
    config = _get(f"{url}/api/config")
    if config is None or config.status_code != HTTPStatus.OK:
        yield Finding(
            Level.WARNING, part, "it answers, and does not show its configuration: see that core.sync is true"
        )
        return
    wrong = [advice for pattern, advice in _GORUSH_WANTS.items() if not re.search(pattern, config.text, re.MULTILINE)]
    retries = [int(number) for number in re.findall(r"^\s*max_retry: (\d+)", config.text, re.MULTILINE)]
    if any(retries):
        wrong.append(
            "max_retry must be 0: it retries at once, and its log then shows pushes that got through as failed"
        )
    largest = re.search(r"^\s*max_notification: (\d+)", config.text, re.MULTILINE)
    if largest and int(largest[1]) < settings.gorush.batch_size:
        wrong.append(f"max_notification is {largest[1]}: set WAKUPUSH_GORUSH__BATCH_SIZE to that")
    room = re.search(r"^\s*queue_num: (\d+)", config.text, re.MULTILINE)
    most = settings.gorush.concurrency * settings.gorush.batch_size
    if room and int(room[1]) < most:
        wrong.append(f"queue_num is {room[1]}: one worker process may post {most} notifications at once; raise it")
    for advice in wrong:
        yield Finding(Level.FAULT, part, advice)
    if re.search(r'^\s*feedback_hook_url: ""', config.text, re.MULTILINE):
        text = "it calls no webhook: total failures of Firebase read as delivered; set core.feedback_hook_url"
        yield Finding(Level.WARNING, part, text)
    if not wrong:
        yield Finding(Level.OK, part, "sync mode, local queue, no retries of its own")


#: Advice about the exceptions of redis-py.
_REDIS_ADVICE: dict[type[RedisError], str] = {
    AuthenticationError: "it does not take this user and password, or wants some",
    TimeoutError: "it is silent; see host and port, and that no firewall is between",
    ConnectionError: "it cannot be connected to; see that it runs, its host and port, and rediss:// where it wants TLS",
}
#: The settings of Redis that are read.
_REDIS_TELLS = ("maxmemory-policy", "maxmemory", "appendonly")
#: Sentinels of which a majority is left when one is lost.
LEAST_SENTINELS = 3


def _redis(settings: Settings) -> Iterator[Finding]:
    part = "Redis"
    try:
        with open_redis(settings.redis) as redis:
            seconds, micros = redis.time()
            config = _redis_config(redis)
            memory = cast("dict[str, int]", redis.info("memory"))
    except SettingsError as error:
        yield Finding(Level.FAULT, part, str(error))
        return
    except RedisError as error:
        advice = next((text for kind, text in _REDIS_ADVICE.items() if isinstance(error, kind)), type(error).__name__)
        yield Finding(Level.FAULT, part, f"no Redis answers at WAKUPUSH_REDIS__URL: {advice}")
        return
    yield from _keeps_queues(part, config)
    if memory.get("maxmemory", 0) and memory["used_memory"] > FULL_SHARE * memory["maxmemory"]:
        share = 100 * memory["used_memory"] / memory["maxmemory"]
        yield Finding(
            Level.WARNING, part, f"its memory is {share:.0f} % full: raise maxmemory or see which queue grows"
        )
    yield _clock(part, seconds + micros / 1e6)
    if settings.redis.sentinels:
        yield from _sentinels(settings)


def _sentinels(settings: Settings) -> Iterator[Finding]:
    """Ask each Sentinel separately: the others would hide one that is down."""
    part = "Redis Sentinel"
    name = primary_name(settings.redis)
    wrong = []
    for address, sentinel in zip(settings.redis.sentinels, open_sentinel(settings.redis).sentinels, strict=True):
        try:
            with sentinel:
                sentinel.sentinel_ckquorum(name)
        except ResponseError as error:
            wrong.append(f"the Sentinel {address} says of {name}: {error}")
        except RedisError:
            wrong.append(f"the Sentinel {address} does not answer, or does not take this user and password")
    yield from (Finding(Level.WARNING, part, text) for text in wrong)
    if not wrong:
        yield Finding(Level.OK, part, f"all {len(settings.redis.sentinels)} Sentinels answer, and can elect a primary")
    if len(settings.redis.sentinels) < LEAST_SENTINELS:
        yield Finding(Level.WARNING, part, "there are fewer than three: the loss of one leaves no majority")


def _redis_config(redis: Redis) -> dict[str, str | None]:
    """Return settings of Redis; None for each if a managed Redis forbids the command or answers with nothing."""
    try:
        return {name: redis.config_get(name).get(name) for name in _REDIS_TELLS}
    except ResponseError:
        return dict.fromkeys(_REDIS_TELLS)


def _keeps_queues(part: str, config: dict[str, str | None]) -> Iterator[Finding]:
    if None in config.values():
        yield Finding(
            Level.WARNING,
            part,
            "it does not show its configuration: see that maxmemory-policy is noeviction and persistence on",
        )
        return
    if config["maxmemory"] != "0" and config["maxmemory-policy"] != "noeviction":
        text = f"maxmemory-policy is {config['maxmemory-policy']}: it throws away queued messages; set noeviction"
        yield Finding(Level.FAULT, part, text)
    if config["appendonly"] != "yes":
        yield Finding(
            Level.WARNING,
            part,
            "appendonly is off: a restart loses what is queued until it is reconciled; switch it on",
        )
    else:
        yield Finding(Level.OK, part, "it answers, and its queues survive a restart")


def _postgres(settings: Settings, connections: int) -> Iterator[Finding]:
    part = "Postgres"
    try:
        dsn = check_dsn(settings.postgres)
        with _connect(dsn) as connection:
            capacity = _pooler(settings, dsn, connection) if is_pooled(connection) else _room(connection, connections)
            pending, due = runner.pending(connection), runner.due(connection)
            version = connection.info.server_version // 10_000
            user, logins = connection.info.user, [] if due else roles.logins(connection)
            row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
            apps_gone = [] if due else _apps_gone(settings, connection)
            transport = _transport(connection)
    except SettingsError as error:
        yield Finding(Level.FAULT, part, str(error))
        return
    except psycopg.errors.InsufficientPrivilege:
        yield Finding(Level.FAULT, part, f"this login may not read it: connect as {Role.OPERATOR} or as the owner")
        return
    except psycopg.Error as error:
        why = reason(error) if isinstance(error, psycopg.OperationalError) else type(error).__name__
        yield Finding(Level.FAULT, part, f"no database answers at WAKUPUSH_POSTGRES__DSN: {why}")
        return
    except runner.MigrationError as error:
        yield Finding(Level.FAULT, part, str(error))
        return
    if version < OLDEST_POSTGRES:
        yield Finding(Level.FAULT, part, f"it is release {version}: the server needs {OLDEST_POSTGRES} or newer")
    if due:
        yield Finding(Level.FAULT, part, f"{len(due)} migrations are missing: run `wakupush migrate --pre`")
    else:
        note = f", but for {len(pending)} migrations that the next upgrade makes" if pending else ""
        yield Finding(Level.OK, part, f"it answers, and its schema is up to date{note}")
        yield from _roles(part, user, logins)
    yield from capacity
    yield from apps_gone
    yield from transport
    if row is not None:
        yield _clock(part, row[0])


def _transport(connection: psycopg.Connection) -> list[Finding]:
    """Report a way to Postgres on which others can read along, or pass for it; libpq's default allows both."""
    info = connection.info
    is_local = info.host.startswith(("/", "@")) or ip_address(info.hostaddr).is_loopback
    if is_local or info.get_parameters().get("sslmode") == "verify-full":
        return []
    what = "certificate and name are not checked" if connection.pgconn.ssl_in_use else "the connection is in the clear"
    return [Finding(Level.WARNING, "Postgres", f"{what}: add sslmode=verify-full to WAKUPUSH_POSTGRES__DSN")]


def _connect(dsn: str) -> psycopg.Connection:
    # A statement is prepared only where it is asked for.
    return psycopg.connect(dsn, connect_timeout=int(PATIENCE), autocommit=True, prepare_threshold=10**9)


def _room(connection: psycopg.Connection, connections: int) -> list[Finding]:
    """Compare the connections of the deployment with those that Postgres allows to logins that are no superusers."""
    allowed = limits.connections(connection)
    if connections <= allowed:
        return [Finding(Level.OK, "Postgres", f"it allows {allowed} connections; at most {connections} are opened")]
    return [
        Finding(
            Level.WARNING,
            "Postgres",
            f"it allows {allowed} connections, and {connections} may be opened: raise max_connections, or lower"
            " WAKUPUSH_POSTGRES__POOL_SIZE or the number of processes",
        )
    ]


def _pooler(settings: Settings, dsn: str, connection: psycopg.Connection) -> list[Finding]:
    """Look for what a pooler breaks."""
    part = "pooler"
    wrong = []
    with _connect(dsn) as other:
        processes = {one.execute("SELECT pg_backend_pid()").fetchone() for one in (connection, other)}
        pools_transactions = len(processes) == 1
        if pools_transactions and settings.postgres.prepared_statements and not _keeps_prepared(connection, other):
            wrong.append(
                "it hands sessions to others and loses their prepared statements: set"
                " WAKUPUSH_POSTGRES__PREPARED_STATEMENTS=false, or use PgBouncer 1.21 or newer with"
                " max_prepared_statements"
            )
    user = connection.info.user
    wrong += [
        f"{user} has no {name}: use the login of a role and run `wakupush migrate`, or ALTER ROLE {user} SET {name}"
        for name in limits.absent_timeouts(connection)
    ]
    try:
        with _connect(check_dsn(settings.postgres, direct=True)) as direct:
            has_way_past = not is_pooled(direct)
    except (SettingsError, psycopg.Error):
        has_way_past = False
    findings = [Finding(Level.FAULT, part, text) for text in wrong]
    if not has_way_past:
        text = (
            "WAKUPUSH_POSTGRES__DIRECT_DSN is no way past it: `wakupush migrate` and `pipeline` need one of their own"
        )
        findings.append(Finding(Level.WARNING, part, text))
    how = "each transaction" if pools_transactions else "each session"
    return findings or [Finding(Level.OK, part, f"it chooses a connection for {how}, and keeps what the server needs")]


def _keeps_prepared(*connections: psycopg.Connection) -> bool:
    """Return whether two clients of a pooler can prepare a statement by the same name."""
    try:
        for connection in connections:
            connection.execute("SELECT 1", prepare=True)
    except (psycopg.errors.DuplicatePreparedStatement, psycopg.errors.InvalidSqlStatementName):
        return False
    finally:
        connections[0].execute("DEALLOCATE ALL")
    return True


def _apps_gone(settings: Settings, connection: psycopg.Connection) -> list[Finding]:
    """Report unfinished deliveries to devices that no app of the settings takes."""
    names = [app for app in apps.unfinished(connection) if app not in settings.app_names] if settings.apps else []
    findings = []
    for name in names:
        topics = _topics_without_app(settings, connection, name)
        if topics != []:
            whose = f"with the topic {', '.join(topics)}" if topics else f"of the app {name!r}"
            findings.append(
                Finding(
                    Level.FAULT,
                    "apps",
                    f"deliveries wait for devices {whose}, which no app in the settings takes: list it in one,"
                    " then run `wakupush apps assign`",
                )
            )
    return findings


def _topics_without_app(settings: Settings, connection: psycopg.Connection, name: str) -> list[str] | None:
    """Return topics that no app takes, of devices for which deliveries of this app wait; None without key or right."""
    try:
        at_rest = load_identity(settings).at_rest
        devices = apps.unfinished_devices(connection, name, at_rest, most=MOST_DEVICES)
    except (NoIdentityError, UnsealableError, psycopg.errors.InsufficientPrivilege):
        return None
    targets = [device.target for device in devices]
    return sorted({repr(target.apn_topic) for target in targets if app_of(target, settings) is None})


def _roles(part: str, user: str, logins: list[roles.Login]) -> Iterator[Finding]:
    """Compare the rights of all logins of our roles with those that each role needs."""
    if user not in {login.name for login in logins}:
        yield Finding(
            Level.WARNING,
            part,
            f"{user} is in no role of {', '.join(Role)}: what connects so has more rights than it needs",
        )
    for login in logins:
        whose = login.name if login.name == login.role else f"{login.name}, of {login.role},"
        if login.is_unbounded:
            yield Finding(Level.WARNING, part, f"{whose} is a superuser or owns the tables: no grant bounds it")
        elif login.exceeds:
            yield Finding(Level.WARNING, part, f"{whose} has more rights than it needs: {_some(login.exceeds)}")
        if login.lacks:
            yield Finding(Level.FAULT, part, f"{whose} lacks {_some(login.lacks)}: run `wakupush migrate`")
        elif not (login.is_unbounded or login.exceeds):
            yield Finding(Level.OK, part, f"{whose} has the rights that it needs, and no more")


def _some(rights: tuple[str, ...]) -> str:
    more = len(rights) - MOST_RIGHTS
    return "; ".join(rights[:MOST_RIGHTS]) + (f"; and {more} more" if more > 0 else "")


def _clock(part: str, theirs: float) -> Finding:
    skew = theirs - time.time()
    if abs(skew) <= MOST_SKEW:
        return Finding(Level.OK, part, "its clock and ours agree")
    return Finding(
        Level.WARNING, part, f"its clock is {skew:+.0f} s off ours: nodes do not archive such messages; use NTP"
    )


def _get(url: str) -> httpx2.Response | None:
    try:
        return httpx2.get(url, timeout=PATIENCE, trust_env=False)
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return None
