"""Two real nwakus for a run: the server's, which is killed, and the clients', which sees what leaves and when."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from chaos.faults import FAULTS
from support.real_nwaku import Nwaku, real_nwaku, relay_flags, server_flags
from wakupush.devnet.stack import SHARDS
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash
from wakupush.waku.errors import NodeError, NotSubscribed
from wakupush.waku.node import WakuNode

#: A real node cannot be told to misbehave.
FAULTS_OF_REAL_NODES = tuple(fault for fault in FAULTS if fault.part != "node" or fault.name == "the node is killed")
#: Messages between two reads of ours; nwaku's own default is 50.
_CACHE = "--rest-relay-cache-capacity=1000"


@dataclass
class RealNodes:
    """The nodes, and what the clients' one has relayed since `listening`."""

    server: Nwaku
    clients: Nwaku
    #: Hash, message, and when it arrived, in seconds since the epoch.
    relayed: list[tuple[str, WakuMessage, float]] = field(default_factory=list)

    @contextmanager
    def listening(self) -> Iterator[None]:
        over = Event()
        thread = Thread(target=self._listen, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _listen(self, over: Event) -> None:
        with WakuNode(self.clients.url, timeout=5) as node:
            while not over.wait(0.1):
                for shard in SHARDS:
                    with suppress(NodeError):
                        try:
                            messages = node.read(shard).messages
                        except NotSubscribed:
                            node.subscribe([shard])
                            continue
                        now = time.time()
                        self.relayed += [(message_hash(shard, each).hex(), each, now) for each in messages]


@contextmanager
def real_nodes(directory: Path) -> Iterator[RealNodes]:
    """Start both, each a peer of the other, with a Store each."""
    with (
        real_nwaku("clients", directory, *server_flags(), _CACHE) as clients,
        real_nwaku("server", directory, *relay_flags(clients)) as server,
    ):
        nodes = RealNodes(server, clients)
        with nodes.listening():
            yield nodes
