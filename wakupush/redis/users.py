"""The users of Redis, one for each process or pool, with the commands, keys and channels that each may use."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from wakupush.model.queues import POOLS, QUEUES
from wakupush.redis import backlog, left_out, presence, watched


class RedisUser(StrEnum):
    """A user, by its name in Redis."""

    INGEST = "ingest"
    RECONCILE = "reconcile"
    WORKER = "worker"
    BEAT = "beat"
    EXPORTER = "exporter"
    OPERATOR = "operator"
    FLOWER = "flower"
    KEDA = "keda"


@dataclass(frozen=True, slots=True)
class Rights:
    """What a user may do. Every command works on every key: Redis 6.2 has no finer rule."""

    #: Commands, as ACL SETUSER takes them after ``+``.
    commands: frozenset[str]
    #: Patterns.
    keys: frozenset[str]
    channels: frozenset[str] = frozenset()


#: The users' commands of ``wakupush``, by their first words. Flower and KEDA are other programs.
COMMANDS: Final[Mapping[RedisUser, tuple[str, ...]]] = {
    RedisUser.INGEST: ("ingest live",),
    RedisUser.RECONCILE: ("ingest reconcile",),
    RedisUser.WORKER: tuple(f"worker {name}" for name in POOLS),
    RedisUser.BEAT: ("beat",),
    RedisUser.EXPORTER: ("exporter",),
    RedisUser.OPERATOR: ("doctor", "status", "why", "breaker", "quarantine", "import reference", "pipeline rebuild"),
    RedisUser.FLOWER: (),
    RedisUser.KEDA: (),
}

_CONNECT: Final = frozenset({"ping", "select"})
_SCRIPT: Final = frozenset({"eval", "evalsha", "script|load", "script|exists"})
#: kombu also has a list for each priority of a queue, whose name begins like the queue's.
_QUEUES: Final = frozenset(f"{name}*" for name in POOLS)
_IN_FLIGHT: Final = frozenset({backlog.UNACKED, backlog.UNACKED_INDEX})
#: Celery's events of tasks in database 0. Who subscribes to a pattern needs the very pattern.
_EVENTS: Final = frozenset({"/0.celeryev/*"})
#: Where kombu remembers which queue belongs to which exchange.
_BINDINGS: Final = "_kombu.binding*"
_WATCHED: Final = frozenset({watched.KEY, watched.MARKER, watched.LIFE, watched.SEEN_AT})
_NODES: Final = frozenset({left_out.KEY, f"{left_out.WITHOUT_PEERS}*"})
_LIMITS: Final = "wakupush:limit:*"
_UNOPENED: Final = "wakupush:unopened:*"
_BREAKERS: Final = "wakupush:breaker:*"
#: Sending a task, and Celery's event about it; who does this also runs scripts.
_SEND: Final = _CONNECT | _SCRIPT | {"lpush", "llen", "sadd", "smembers", "multi", "exec", "publish"}
#: Enqueuing messages: their claims, limits on topics, the bytes of the queues, and the watched topics.
_ENQUEUE: Final = frozenset({"set", "get", "mget", "del", "hget", "hmget", "hincrby", "expire", "memory|usage", "info"})
_ENQUEUE_KEYS: Final = frozenset({"wakupush:claim:*", _LIMITS, _UNOPENED, _BINDINGS}) | _QUEUES | _WATCHED
#: Reading how much is queued and in flight; the scripts see the headers of tasks, not the caller.
_BACKLOG: Final = frozenset({"eval", "llen", "lindex", "memory|usage", "zcard", "zrange", "hget"})
#: Taking tasks: kombu's lists, hash and set of tasks in flight, its lock, and its tables of queues.
_TAKE: Final = frozenset(
    {"brpop", "rpush", "watch", "unwatch", "hset", "hget", "hdel", "zadd", "zrem", "zrange", "zrangebyscore"}
    | {"set", "get", "del", "exists", "time"}
)

#: Writing that a process runs. The exporter does not: it could write tasks in flight then.
_PRESENT: Final = frozenset({"time", "hset"})

RIGHTS: Final[Mapping[RedisUser, Rights]] = {
    RedisUser.INGEST: Rights(_SEND | _ENQUEUE | _PRESENT, _ENQUEUE_KEYS | _NODES | {presence.KEY}, _EVENTS),
    RedisUser.RECONCILE: Rights(
        _SEND | _ENQUEUE | _BACKLOG | _PRESENT | {"hgetall"},
        _ENQUEUE_KEYS | _IN_FLIGHT | {presence.KEY},
        _EVENTS,
    ),
    RedisUser.WORKER: Rights(
        _SEND
        | _TAKE
        # Breakers, limits, watched topics, the nodes that are left out, and the bytes of the queue `rest`.
        | {"mget", "expire", "pexpire", "incr", "incrby", "decr", "hgetall", "hmget", "hincrby", "memory|usage"},
        _QUEUES
        | _IN_FLIGHT
        | _WATCHED
        | _NODES
        | {"unacked_mutex", _LIMITS, _UNOPENED, _BREAKERS, _BINDINGS, presence.KEY},
        _EVENTS,
    ),
    RedisUser.BEAT: Rights(
        _SEND | _PRESENT | {"info", "set", "get", "mget", "hget", "hgetall", "hdel"},
        _QUEUES | _WATCHED | _NODES | {_BREAKERS, _BINDINGS, presence.KEY},
        _EVENTS,
    ),
    RedisUser.EXPORTER: Rights(
        _CONNECT | _BACKLOG | {"hgetall", "time", "info"}, _QUEUES | _IN_FLIGHT | {presence.KEY}
    ),
    RedisUser.OPERATOR: Rights(
        _SEND | _BACKLOG | _PRESENT | {"config|get", "info", "set", "get", "mget", "hget", "hgetall", "del", "pttl"},
        _QUEUES | _IN_FLIGHT | _WATCHED | _NODES | {_BREAKERS, _BINDINGS, presence.KEY},
        _EVENTS,
    ),
    # Celery's receiver of events has a queue that nobody fills, and marks it as its own for a while.
    RedisUser.FLOWER: Rights(
        _CONNECT
        | _SCRIPT
        | {"psubscribe", "punsubscribe", "multi", "exec", "llen", "sadd", "srem", "del"}
        | {"exists", "time", "zadd", "zrem", "zrangebyscore"},
        frozenset({_BINDINGS, "celeryev*"}),
        _EVENTS,
    ),
    RedisUser.KEDA: Rights(_CONNECT | {"eval", "evalsha", "type", "llen", "zcard", "scard", "hlen"}, frozenset(QUEUES)),
}


def rules(user: RedisUser) -> str:
    """Return the rules of a user without its password, as ACL SETUSER and a file of users take them after the name."""
    rights = RIGHTS[user]
    words = ["resetkeys", *(f"~{key}" for key in sorted(rights.keys))]
    words += ["resetchannels", *(f"&{channel}" for channel in sorted(rights.channels))]
    words += ["-@all", *(f"+{command}" for command in sorted(rights.commands))]
    return " ".join(words)
