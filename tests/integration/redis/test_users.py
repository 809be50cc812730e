"""Each process has a user in Redis, which may do what the process needs and nothing else."""

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

from support.rows import IOS
from wakupush.devnet.redis import RedisServer
from wakupush.model.entries import Entry
from wakupush.model.limits import MINUTE, TOPIC_MESSAGES, Limit
from wakupush.model.queues import QUERY
from wakupush.model.queues import QUEUES as ALL_QUEUES
from wakupush.model.waku_message import WakuMessage
from wakupush.redis import backlog, claims, left_out, presence, unopened, watched
from wakupush.redis.breaker import BreakerStore
from wakupush.redis.celery_app import celery_app
from wakupush.redis.left_out import NodeFault
from wakupush.redis.limits import Limiter
from wakupush.redis.sending import send_entries
from wakupush.redis.users import COMMANDS, RIGHTS, RedisUser
from wakupush.runtime.settings import RedisSettings, Settings

#: What ends, empties or reconfigures Redis, or tells everything about it.
ADMINISTRATION = [
    *(
        ["SHUTDOWN", "NOSAVE"],
        ["FLUSHALL"],
        ["FLUSHDB"],
        ["KEYS", "*"],
        ["SCAN", "0"],
        ["MONITOR"],
    ),
    *(
        ["CONFIG", "SET", "maxmemory", "1"],
        ["ACL", "LIST"],
        ["CLIENT", "KILL", "TYPE", "normal"],
        ["REPLICAOF", "NO", "ONE"],
    ),
    *(["SAVE"], ["BGSAVE"], ["SWAPDB", "0", "1"], ["SCRIPT", "FLUSH"], ["PUBLISH", "/0.celery.pidbox", "shutdown"]),
]
QUEUES = [["LPUSH", "dispatch", "task"], ["RPUSH", "dispatch", "task"], ["BRPOP", "dispatch", "1"], ["DEL", "dispatch"]]
#: What others have in Redis.
STATE = [
    *(
        ["GET", "wakupush:watched:complete"],
        ["HGET", "wakupush:watched:topics", "ab"],
        ["SET", "wakupush:claim:x", "1"],
    ),
    *(["SET", "wakupush:breaker:ios:tripped", "1"], ["DEL", "wakupush:limit:device_pushes:x:1"]),
    *(["HGETALL", "wakupush:nodes:left_out"], ["EVAL", "return redis.call('DEL', 'dispatch')", "0"]),
]
READS = [["LINDEX", "dispatch", "0"], ["HGET", "unacked", "x"]]
THEFTS = {
    RedisUser.EXPORTER: [*QUEUES, *STATE],
    RedisUser.FLOWER: [*QUEUES, *STATE, *READS, ["PUBLISH", "/0.celeryev/task.failed", "x"]],
    RedisUser.KEDA: [*QUEUES, *STATE, *READS],
    RedisUser.INGEST: [["BRPOP", "dispatch", "1"], ["RPOP", "dispatch"], *STATE[3:4], *READS, ["HDEL", "unacked", "x"]],
    RedisUser.RECONCILE: [["BRPOP", "dispatch", "1"], *STATE[3:4], ["HDEL", "unacked", "x"]],
    RedisUser.BEAT: [*QUEUES[1:], ["SET", "wakupush:claim:x", "1"], *STATE[4:5], *READS],
    RedisUser.OPERATOR: [*QUEUES[1:3], *STATE[4:5], ["HDEL", "unacked", "x"]],
    RedisUser.WORKER: [["SET", "wakupush:claim:x", "1"]],
}


TOPIC = b"abcd"


def fill_watched(redis):
    watched.mark_complete(redis, watched.begin_filling(redis))
    watched.add(redis, [TOPIC, b"abce"])
    watched.note_seen(redis, 1.0)
    watched.lacks_since(redis)


def break_and_mend(redis):
    store = BreakerStore(redis)
    for probe in (False, True):
        store.fault(IOS, 1, pause=0.001, memory=1.0, probe=probe)
    store.probe(IOS, 1, most=3, seconds=1.0)
    store.over(IOS)
    store.works(IOS)
    store.full(IOS, seconds=1.0)
    store.read(IOS)


def open_and_close(redis):
    store = BreakerStore(redis)
    store.open_for(IOS, 1.0)
    store.open_seconds(IOS)
    store.close(IOS)


def ask(redis):
    limit = Limit(TOPIC_MESSAGES, 10, MINUTE, b"", key="topic")
    Limiter(redis).ask([limit])


ENQUEUE = [
    lambda redis: watched.among(redis, [TOPIC]),
    watched.is_complete,
    lambda redis: unopened.marked(redis, ["topic"]),
    ask,
    lambda redis: backlog.queue_bytes(redis, ALL_QUEUES),
    backlog.default_limit,
    lambda redis: claims.release(redis, [b"x" for is_won in claims.claim(redis, [b"x"], 60) if is_won]),
]


def run_and_end(redis):
    presence.Presence(redis, "role", dict).write()


NODES = [left_out.read, lambda redis: left_out.read_without_peers(redis, ["node"])]
#: What the processes of a user do in Redis beside Celery's own.
WORK = {
    RedisUser.INGEST: [
        *ENQUEUE,
        run_and_end,
        lambda redis: left_out.write(redis, {("node", "shard"): NodeFault.DEAF}, ["shard"]),
        lambda redis: left_out.write_without_peers(redis, "node", ["shard"]),
    ],
    RedisUser.RECONCILE: [*ENQUEUE, run_and_end, backlog.look],
    RedisUser.WORKER: [
        *NODES,
        run_and_end,
        lambda redis: watched.add(redis, [TOPIC]),
        lambda redis: unopened.mark(redis, ["topic"]),
        ask,
        break_and_mend,
    ],
    RedisUser.BEAT: [
        *NODES,
        run_and_end,
        presence.forget,
        fill_watched,
        watched.is_complete,
        lambda redis: watched.remove(redis, [TOPIC, b"abce"]),
        lambda redis: BreakerStore(redis).read(IOS),
        lambda redis: redis.llen(QUERY.name),
    ],
    RedisUser.EXPORTER: [backlog.look],
    RedisUser.OPERATOR: [
        *NODES,
        run_and_end,
        presence.read,
        backlog.look,
        open_and_close,
        fill_watched,
        lambda redis: redis.time(),
        lambda redis: redis.config_get("appendonly"),
    ],
    RedisUser.FLOWER: [lambda redis: redis.pubsub().psubscribe("/0.celeryev/*")],
    # The script of KEDA's scaler.
    RedisUser.KEDA: [
        lambda redis: redis.eval(
            "return redis.call(({list = 'llen'})[redis.call('type', KEYS[1]).ok], KEYS[1])", 1, "query"
        )
    ],
}
SENDERS = {RedisUser.INGEST, RedisUser.RECONCILE, RedisUser.WORKER, RedisUser.BEAT, RedisUser.OPERATOR}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis") / "data", appendonly=False) as running:
        yield running


@pytest.fixture(params=RedisUser)
def user(request):
    return request.param


@pytest.fixture
def client(server, user):
    with Redis.from_url(server.url_of(user)) as redis:
        yield redis


def test_every_user_has_rights_and_a_thief():
    assert RIGHTS.keys() == COMMANDS.keys() == THEFTS.keys() == WORK.keys() == set(RedisUser)


def test_users_can_do_their_work(server, client, user):
    with Redis.from_url(server.url, decode_responses=True) as admin:
        admin.flushall()
        admin.lpush(QUERY.name, "a task", "another")
        admin.hset(backlog.UNACKED, "tag", "a task")
        admin.zadd(backlog.UNACKED_INDEX, {"tag": 0})
        admin.acl_log_reset()
        for work in WORK[user]:
            work(client)
        if user in SENDERS:
            app = celery_app(Settings(redis=RedisSettings(url=server.url_of(user))))
            message = WakuMessage(payload=b"", content_topic="", timestamp=0)
            send_entries(app, QUERY, [Entry("shard", bytes(32), 0.0, message)])
            app.close()
            assert admin.llen(QUERY.name) == 3
        assert all(entry["object"].startswith("client") for entry in admin.acl_log())  # as in `refused_by_redis`


def test_users_cannot_administer_redis(server, client):
    assert client.ping()
    for command in ADMINISTRATION:
        with pytest.raises(NoPermissionError):
            client.execute_command(*command)
    assert server.running


def test_users_cannot_do_the_work_of_others(client, user):
    for command in THEFTS[user]:
        # A script fails by the error of its first refused command.
        with pytest.raises((NoPermissionError, ResponseError), match=r"(?i)permission|user executing the script can't"):
            client.execute_command(*command)
