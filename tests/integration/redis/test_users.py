"""Each process has a user in Redis, which may do what the process needs and nothing else."""

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

from wakupush.devnet.parts.redis import RedisServer
from wakupush.redis.users import COMMANDS, RIGHTS, RedisUser

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
    RedisUser.OPERATOR: [*QUEUES[1:], *STATE[3:5], *READS],
    RedisUser.WORKER: [["SET", "wakupush:claim:x", "1"]],
}


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
    assert RIGHTS.keys() == COMMANDS.keys() == THEFTS.keys() == set(RedisUser)


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
