"""Flower's configuration, which its image has: Python that `celery flower --conf=FILE` runs before it starts.

Flower asks for a password everywhere but at /metrics, which names every worker, and /healthcheck. Here both ask, too;
/healthcheck does not ask a caller in the same container, which is who probes it. Names below are Flower's options, and
win over FLOWER_… variables.
"""

import ipaddress
import json
import os
import ssl
import sys
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from celery import current_app
from celery.events.receiver import EventReceiver
from flower.inspector import Inspector
from flower.views.monitor import Healthcheck, Metrics
from kombu.utils.url import parse_url
from tornado.web import RequestHandler

if not os.environ.get("FLOWER_BASIC_AUTH"):
    sys.exit("FLOWER_BASIC_AUTH is missing: user:password, several with commas in between")

broker = os.environ.get("CELERY_BROKER_URL", "")
if sentinels := json.loads(os.environ.get("WAKUPUSH_REDIS__SENTINELS", "[]")):
    # As wakupush has it: the host of the URL is the name of the primary.
    parts = urlsplit(broker)
    *login, primary = parts.netloc.rpartition("@")
    user = "".join(login)
    current_app.conf.broker_url = ";".join(f"sentinel://{user}{each}{parts.path}" for each in sentinels)
    names = {"username": "WAKUPUSH_REDIS__SENTINEL_USER", "password": "WAKUPUSH_REDIS__SENTINEL_PASSWORD"}
    options = {option: os.environ[name] for option, name in names.items() if name in os.environ}
    current_app.conf.broker_transport_options = {
        "master_name": primary.partition(":")[0],
        "min_other_sentinels": len(sentinels) // 2,
        "sentinel_kwargs": options | ({"ssl": True} if parts.scheme == "rediss" else {}),
    }
if broker.startswith("rediss:"):
    # Celery trusts every certificate unless it is told otherwise, and Flower's own client does not read the URL.
    current_app.conf.broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED} | parse_url(broker).get("ssl", {})

#: It shows events. Our workers take no commands and send events anyway, and its user in Redis may not publish.
read_only = True
enable_events = False
Inspector.inspect_methods = ()
EventReceiver.wakeup_workers = lambda *_, **__: None
#: The shape of an outage: whom it hits and why, before anything about single tasks. A click on a column sorts by it.
tasks_columns = "args,exception,state,retries,received,worker,uuid"
#: What it keeps in memory, at most, and nothing on disk.
max_tasks = 10_000
max_workers = 200
persistent = False
#: Seconds after which a worker that is gone is forgotten.
purge_offline_workers = 300


def _asks(
    get: Callable[[RequestHandler], Awaitable[None]], *, trusts_loopback: bool
) -> Callable[[RequestHandler], Awaitable[None]]:
    async def asks(handler: RequestHandler) -> None:
        peer = ipaddress.ip_address(handler.request.connection.context.address[0])
        if not (trusts_loopback and peer.is_loopback):
            handler.get_current_user()  # raises 401
        await get(handler)

    return asks


Metrics.get = _asks(Metrics.get, trusts_loopback=False)
Healthcheck.get = _asks(Healthcheck.get, trusts_loopback=True)
