"""Two Stores are compared, and what one keeps to itself shows."""

import os
import time
from contextlib import ExitStack
from threading import Event

import pytest

from support.devnet import serving
from wakupush.ingest.reconcile.audit import Audit
from wakupush.model.waku_message import WakuMessage
from wakupush.runtime import metrics
from wakupush.waku.node import WakuNode
from wakupush.waku.store import Store

SHARD = "/waku/2/rs/16/32"
OURS = ("/waku/1/0x00000001/rfc26", "/waku/1/0x00000002/rfc26")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory, forkserver):
    """A nwaku and a go-waku."""
    urls = {}
    with ExitStack() as stack:
        for manners in ("nwaku", "go-waku"):
            options = ("--manners", manners, "--shard", SHARD, "--archive-window", "any")
            log = tmp_path_factory.mktemp(manners) / "log"
            urls[manners], _ = stack.enter_context(serving("waku", log, *options, forkserver=forkserver))
        yield urls


def send(urls, *, ago, **fields):
    message = WakuMessage(
        payload=os.urandom(400), timestamp=time.time_ns() - int(ago * 10**9), **{"content_topic": OURS[0], **fields}
    )
    for url in urls:
        with WakuNode(url) as node:
            node.subscribe([SHARD])
            node.publish(SHARD, message)
            node.read(SHARD)


def test_audit_counts_differences_of_stores(nodes):
    with Store(nodes["nwaku"]) as one, Store(nodes["go-waku"]) as two:
        audit = Audit(stores={"one": one, "two": two}, shards=(SHARD,), content_topics=OURS, window=60.0, stop=Event())
        both = list(nodes.values())
        send(both, ago=700)
        send(both, ago=690, meta=b"left out by a Store v1")
        send(both[:1], ago=680)  # hidden by the second
        send(both[:1], ago=670, content_topic=OURS[1])
        send(both[1:], ago=660)  # hidden by the first, or made up by the second
        send(both[:1], ago=650, content_topic="/waku/1/0x12345678/rfc26")  # somebody else's
        send(both[:1], ago=1)  # may still come
        lacks = metrics.STORE_LACKS.labels("two")._value.get()
        assert audit.compare(SHARD, time.time() - 600) == {"one": 1, "two": 2}
        assert metrics.STORE_LACKS.labels("two")._value.get() == lacks + 2
        assert audit.compare(SHARD, time.time() - 600) == {"one": 0, "two": 0}  # each stretch once
        audit.measure(SHARD)
        assert metrics.STORE_OLDEST.labels("one", SHARD)._value.get() == pytest.approx(700, abs=60)


def test_a_stretch_that_failed_is_compared_next_time(nodes):
    with Store(nodes["nwaku"]) as one, Store("http://127.0.0.1:1") as two:
        audit = Audit(stores={"one": one, "two": two}, shards=(SHARD,), content_topics=OURS, window=60.0, stop=Event())
        assert audit.compare(SHARD, time.time()) == {}
        audit.measure(SHARD)
        assert audit._compared_until == {}
