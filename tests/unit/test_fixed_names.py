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
