"""A real nwaku on loopback, whose binary WAKUPUSH_TEST_NWAKU names."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from wakupush.devnet.processes import Process, answers_http, free_port

NWAKU = os.environ.get("WAKUPUSH_TEST_NWAKU", "")
#: For all nodes. It announces the machine's address otherwise, and looks for strangers.
_ALONE = (
    *(
        "--cluster-id=16",
        "--listen-address=127.0.0.1",
        "--nat=extip:127.0.0.1",
        "--ext-multiaddr-only=true",
        "--log-level=ERROR",
    ),
    *("--discv5-discovery=false", "--dns-discovery=false", "--rendezvous=false", "--peer-exchange=false"),
)


class Nwaku(Process):
    """A node; `url` is that of its REST API, `address` is where other nodes reach it."""

    def __init__(self, name: str, directory: Path, *flags: str) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        directory.mkdir(parents=True)
        where = f"--ext-multiaddr=/ip4/127.0.0.1/tcp/{(tcp := free_port())}", f"--tcp-port={tcp}"
        rest = ("--rest=true", "--rest-address=127.0.0.1", f"--rest-port={port}", "--rest-admin=true")
        command = [NWAKU, *_ALONE, *where, *rest, *flags]
        ready = f"{self.url}/debug/v1/info"
        super().__init__(
            name, command, log=directory / "log", cwd=directory, ready=lambda: answers_http(ready), grace=2
        )

    @property
    def address(self) -> str:
        address: str = httpx2.get(f"{self.url}/debug/v1/info").json()["listenAddresses"][0]
        return address


@contextmanager
def real_nwaku(name: str, folder: Path, *flags: str) -> Iterator[Nwaku]:
    with Nwaku(name, folder / name, *flags) as node:
        yield node


def server_flags() -> list[str]:
    """Flags of a server's node, with a Store, which serves filter and light push to others, too."""
    store = ("--store=true", "--store-message-db-url=sqlite://store.sqlite3")
    shards = ("--shard=32", "--shard=64")
    return ["--relay=true", *shards, "--max-msg-size=1024KiB", *store, "--filter=true", "--lightpush=true"]


def relay_flags(peer: Nwaku) -> list[str]:
    """Flags of a node like that, which is a peer of another one."""
    return [*server_flags(), f"--staticnode={peer.address}"]


def light_flags(service: Nwaku) -> list[str]:
    """Flags of a light node of a service node."""
    services = [f"--{what}node={service.address}" for what in ("filter", "lightpush", "store")]
    return ["--relay=false", "--shard=32", "--shard=64", *services]
