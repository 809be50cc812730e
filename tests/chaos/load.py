"""A steady load, as a process of its own: ``python -m chaos.load --help``."""

from __future__ import annotations

import argparse
import itertools
import signal
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from chaos.clients import Fleet, Post
from chaos.plan import dump
from wakupush.devnet.processes import wait_until
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.keys import PublicKey
from wakupush.waku.errors import NodeError
from wakupush.waku.node import WakuNode

#: Seconds for which a message is offered to a node that does not take it.
PATIENCE = 120.0
#: Messages that are offered at the same time.
PUBLISHERS = 16


def publish(node: WakuNode, pubsub_topic: str, message: WakuMessage) -> None:
    """Offer a message to the node until it is taken, as a client's other peers would.

    What the node took without saying so is offered again; nodes know what they have seen.
    """

    def is_taken() -> bool:
        try:
            node.publish(pubsub_topic, message)
        except NodeError:
            return False
        return True

    wait_until(is_taken, timeout=PATIENCE, interval=0.2, what="the node takes a message")


def publish_all(url: str, posts: Iterable[Post], plan: Path) -> None:
    """Write messages down and publish them, side by side."""
    with WakuNode(url, timeout=5) as node, ThreadPoolExecutor(PUBLISHERS) as threads:
        futures = []
        with plan.open("a") as lines:
            for post in posts:
                lines.writelines(map(dump, post.sent))
                lines.flush()
                futures += [threads.submit(publish, node, post.pubsub_topic, message) for message in post.messages]
        for future in futures:
            future.result()


def _steadily(posts: Iterator[Post], rate: float) -> Iterator[Post]:
    """Yield messages at a rate, until SIGTERM: what was written down is sent all the same."""
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    start_time = time.monotonic()
    for number in itertools.count():
        if stop.wait(max(0.0, start_time + number / rate - time.monotonic())):
            return
        post = next(posts, None)
        if post is None:
            return
        yield post


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", required=True, help="URL of the Waku node")
    parser.add_argument("--server", required=True, help="public key, 0x04…")
    parser.add_argument("--plan", type=Path, required=True, help="where to write down what is sent, as JSON lines")
    parser.add_argument("--seed", required=True)
    parser.add_argument("--users", type=int, required=True)
    parser.add_argument("--count", type=int, help="messages; without it all devices register, and that is all")
    parser.add_argument("--rate", type=float, default=10.0, help="messages a second")
    options = parser.parse_args()
    fleet = Fleet(options.seed, PublicKey.from_hex(options.server), options.users)
    if options.count is None:
        # The node's cache is small, and not every run has what would heal a loss.
        publish_all(options.node, _steadily(iter(fleet.register_all()), options.rate), options.plan)
    else:
        fleet.assume_registered()
        publish_all(options.node, _steadily((fleet.next() for _ in range(options.count)), options.rate), options.plan)


if __name__ == "__main__":
    main()
