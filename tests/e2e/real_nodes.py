"""Real go-waku nodes, whose binary WAKUPUSH_TEST_WAKU names."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from wakupush.devnet.processes import Process, answers_http, free_port
from wakupush.devnet.stack import SHARDS

WAKU = os.environ.get("WAKUPUSH_TEST_WAKU", "")
SERVES = ("--filter", "--lightpush")


class GoWaku(Process):
    """A node; `url` is that of its REST API."""

    def __init__(self, name, directory, *flags):
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        directory.mkdir(parents=True, exist_ok=True)
        where = ("--address=127.0.0.1", "--ext-ip=127.0.0.1", f"--tcp-port={free_port()}", "--nat=none")
        rest = ("--rest", "--rest-address=127.0.0.1", f"--rest-port={port}")
        command = [WAKU, *where, *rest, "--cluster-id=16", "--ip-colocation-limit=0", *flags]
        ready = f"{self.url}/debug/v1/info"
        super().__init__(
            name, command, log=directory / "log", cwd=directory, ready=lambda: answers_http(ready), grace=2
        )

    @property
    def address(self):
        """Where other nodes reach it."""
        return httpx2.get(f"{self.url}/debug/v1/info").json()["listenAddresses"][0]


@contextmanager
def go_waku(name, folder, *flags) -> Iterator[GoWaku]:
    with GoWaku(name, folder / name, *flags) as node:
        yield node


def server_flags():
    """Flags of a server's node, which serves filter and light push to others, too."""
    topics = [f"--pubsub-topic={shard}" for shard in SHARDS]
    store = "--store-message-db-url=sqlite3://store.db"
    return ["--relay", *topics, *SERVES, "--store", store, "--min-relay-peers-to-publish=0"]


def relay_flags(peer):
    """Flags of a relay node that is a peer of another one."""
    return ["--relay", f"--pubsub-topic={SHARDS[0]}", f"--staticnode={peer.address}"]


def light_flags(service):
    """Flags of a light node of a service node."""
    served = [f"--{what}node={service.address}" for what in ("filter", "lightpush", "store")]
    return ["--relay=false", f"--pubsub-topic={SHARDS[0]}", *served]
