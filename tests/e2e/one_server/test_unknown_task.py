"""A task of an older release that this one does not have, as beat of the older one enqueues it during an upgrade."""

import time
from contextlib import closing

from redis import Redis

from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.model.queues import REGISTRATION
from wakupush.protocol.keys import PrivateKey
from wakupush.redis.celery_app import celery_app
from wakupush.runtime.settings import RedisSettings, Settings
from wakupush.waku.node import WakuNode

#: It packed ids of old push requests.
REMOVED = "wakupush.pack"


def test_a_task_without_code_is_dropped(stack):
    app = celery_app(Settings(redis=RedisSettings(url=stack.redis_url)))
    headers = {"messages": 1, "seen": time.time()}
    app.send_task(REMOVED, queue=REGISTRATION.name, headers=headers, expires=300.0)
    app.close()
    client, server, worker = PrivateKey.generate(), stack.key.public_key, stack.workers[REGISTRATION.name]
    with WakuNode(stack.node_url) as node:
        node.publish(SHARDS[0], messages.register(client, server, messages.registration(client, server)))
    key = [client.public_key.key_hash]
    with stack.connect() as connection, closing(Redis.from_url(stack.redis_url)) as redis:
        query = "SELECT 1 FROM registrations WHERE key_hash = %s"
        wait_until(lambda: connection.execute(query, key).fetchone(), timeout=120, what="the worker goes on")
        wait_until(lambda: not redis.llen(REGISTRATION.name), timeout=120, what="the queue is empty")
        wait_until(lambda: not redis.hlen("unacked"), timeout=120, what="all tasks are acknowledged")
    assert worker.running
    assert f"unregistered task of type '{REMOVED}'" in worker.log.read_text()
