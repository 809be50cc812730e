"""Names that data in queues, Redis and Postgres depends on: they do not change with modules and folders.

Old and new processes work side by side during an upgrade, and rows outlive many releases. A new name may be added; one
that stands here is never renamed or reused.
"""

from dataclasses import replace
from importlib.resources import files
from types import SimpleNamespace

from wakupush.model.entries import Entry
from wakupush.model.events import FIELDS, EventKind
from wakupush.model.limits import Limit
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.model.queues import DELIVER, FEEDBACK, QUEUES
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.application import Opened, unseal_opened
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import breaker, claims, left_out, presence, unopened, watched
from wakupush.redis.limits import Limiter
from wakupush.redis.sending import encode_entry


def test_celery_tasks_and_queues():
    assert {queue.name: queue.task for queue in QUEUES.values()} == {
        "registration": "wakupush.registration",
        "query": "wakupush.query",
        "dispatch": "wakupush.dispatch",
    }
    assert (DELIVER, FEEDBACK) == ("wakupush.deliver", "wakupush.feedback")


def test_fields_of_a_queue_entry():
    entry = Entry("shard", bytes(32), 1.0, WakuMessage(payload=b"", content_topic="topic"))
    assert set(encode_entry(entry)) == {
        "pubsub_topic", "hash", "seen", "payload", "content_topic", "timestamp", "meta", "live",
    }  # fmt: skip
    optional = set(encode_entry(replace(entry, deferred=True, opened=b"x"))) - set(encode_entry(entry))
    assert optional == {"deferred", "opened"}


#: A message of type 20 from the key 2…, opened by the server with the key 1…, sealed for the hash 0….
SEALED_OPENED = bytes.fromhex(
    "19d5159d8490a28f13e429bffc325c6334f663ec1ac7a78d3d57714021b35c8df2ce6020ab15d8aeacdeb5c48d809a43d56b"
    "2e14fb86ea61343e33ed696d3cbd11c3a0dd6fd8444ba5210e1a1b576f55a18fa99d668e7345bb524c06192bd529dac1685b"
    "128009382717ffcdd3ed34afa22b51bdd874c8f254a0d96f195debea66379c9ee64959552c2e47357a5dfafdb329aa8e1272"
    "90011a868feba3e4c9d3f649eda86f4f8862dc88c7f495229435c9775bb10c7af37060ef4ab8528065335cce3b6b85b10a86"
)


def test_the_form_of_opened_messages_in_queues():
    server, client = (PrivateKey(bytes([number]) * 32) for number in (1, 2))
    opened = unseal_opened(SEALED_OPENED, Identity.of(server).opened_key, bytes(32))
    assert opened == Opened(20, b"inner", client.public_key, bytes(range(32)), server.public_key)


def test_event_fields_and_kinds():
    assert FIELDS == (
        "kind", "time", "worker", "trace_id", "count", "queue", "queue_wait", "shard", "age",
        "latency", "app", "platform", "push_type", "failure", "reason", "attempt", "batch_size",
        "key_pseudonym", "installation_pseudonym",
    )  # fmt: skip
    assert {kind.value for kind in EventKind} >= {
        "received", "foreign", "segment", "opened", "refused", "answered", "admitted", "filtered", "attempt",
        "delivered", "unknown", "failed", "expired", "dead_letter", "token_died", "registered", "unregistered",
        "queried",
    }  # fmt: skip


def test_redis_keys():
    counted = []
    redis = SimpleNamespace(eval=lambda _, count, *arguments: counted.extend(arguments[:count]) or [1])
    Limiter(redis, now=lambda: 120.0).ask([Limit("name", 1, 60, bytes(32), key="key")])
    assert counted == ["wakupush:limit:name:key:2", "wakupush:limit:name:key:1"]
    assert (watched.KEY, watched.MARKER, watched.LIFE, watched.SEEN_AT) == (
        "wakupush:watched:topics",
        "wakupush:watched:complete",
        "wakupush:watched:life",
        "wakupush:watched:seen",
    )
    assert left_out.KEY == "wakupush:nodes:left_out"
    assert presence.KEY == "wakupush:processes"
    assert claims._key(b"hash") == b"wakupush:claim:hash"
    assert unopened._PREFIX == "wakupush:unopened:"
    names = ("tripped", "open", "probes", "faults", "full")
    assert breaker._keys(AppPlatform("nightly", Platform.IOS))[0] == "wakupush:breaker:nightly:ios:tripped"
    assert breaker._keys(AppPlatform("", Platform.IOS)) == [f"wakupush:breaker:ios:{name}" for name in names]


def test_migrations():
    names = sorted(file.name for file in files("wakupush.postgres.migrations").iterdir() if file.name.endswith(".sql"))
    assert names[:1] == ["0100_pre_initial.sql"]
