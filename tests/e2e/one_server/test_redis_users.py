"""Each process of the running server connects to Redis as its own user, and a worker believes no entry of a queue.

`running_stack` looks into Redis' log of refusals: a right that is missing anywhere fails every test of this folder.
"""

import os
import time
from contextlib import closing
from dataclasses import replace

from redis import Redis

from e2e.stacks import refused_by_redis
from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.model.entries import Entry
from wakupush.model.queues import REGISTRATION
from wakupush.operate.status import NEEDED
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import presence
from wakupush.redis.celery_app import celery_app
from wakupush.redis.sending import send_entries
from wakupush.redis.users import RedisUser
from wakupush.runtime.settings import RedisSettings, Settings
from wakupush.waku.node import WakuNode

PROCESSES = {RedisUser.INGEST, RedisUser.RECONCILE, RedisUser.WORKER, RedisUser.BEAT}


def test_each_process_connects_as_its_own_user(stack):
    with closing(Redis.from_url(stack.redis_url)) as redis:

        def connected():
            return {client["user"] for client in redis.client_list()} - {"default"}

        def all_ready():
            processes = presence.read(redis)
            roles = {process.role for process in processes if not process.failing}
            return roles >= set(NEEDED)

        wait_until(lambda: connected() >= PROCESSES, timeout=60, what="every process is connected")
        wait_until(all_ready, timeout=60, what="every process says that it is ready")
    with stack.exporter:
        pass
    stack.run("doctor", timeout=120)
    assert refused_by_redis(stack) == []


def test_forged_entry_does_not_suppress_message(stack):
    """A thief of ingest's password enqueues junk with the hash and the time of a message that is yet to come."""
    app = celery_app(Settings(redis=RedisSettings(url=stack.redis.url_of(RedisUser.INGEST))))
    client, server = PrivateKey.generate(), stack.key.public_key
    message = messages.register(client, server, messages.registration(client, server))
    junk = replace(message, payload=os.urandom(len(message.payload)))
    forged = Entry(SHARDS[0], message_hash(SHARDS[0], message), time.time(), junk, live=True)
    send_entries(app, REGISTRATION, [forged])
    app.close()
    with stack.connect() as connection, closing(Redis.from_url(stack.redis_url)) as redis:
        wait_until(lambda: not redis.llen(REGISTRATION.name), timeout=120, what="the queue is empty")
        wait_until(lambda: not redis.hlen("unacked"), timeout=120, what="all tasks are acknowledged")
        with WakuNode(stack.node_url) as node:
            node.publish(SHARDS[0], message)
        query = "SELECT 1 FROM registrations WHERE key_hash = %s"
        wait_until(
            lambda: connection.execute(query, [client.public_key.key_hash]).fetchone(),
            timeout=30,
            what="the message is handled",
        )
    assert '"entries_forged"' in stack.workers[REGISTRATION.name].log.read_text()
