"""Posts to a gorush over real HTTP: how many at once, what one of them takes along, and for how long."""

import time

import pytest
from structlog.testing import capture_logs

from support.rows import IOS
from support.served import as_beat, fault, is_due, request, trip
from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.model.notifications import NotificationType
from wakupush.model.queues import DISPATCH
from wakupush.protocol.keys import PrivateKey
from wakupush.server.beat.deliveries import claim_due
from wakupush.server.delivery import next_attempts, posts


def test_more_items_than_gorush_takes_go_out_in_several_posts(open_server, client):
    server = open_server(limits={"pushes_per_device_per_minute": 130})
    content = server.register(client)
    items = [messages.notification(client.public_key.key_hash, content) for _ in range(130)]
    server.handle(DISPATCH, messages.request(client, server.key, items))
    assert server.outcomes(client) == [["success"] * 130]
    wait_until(
        lambda: server.rows("SELECT DISTINCT state FROM deliveries") == [("delivered",)], timeout=60, what="posts end"
    )
    assert len(server.pushes()) == 130


def test_what_finds_no_free_slot_waits_for_the_schedule(server, client):
    content = server.register(client)
    assert server.context.posts.slots.reserve(IOS, 9) == 1
    server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["success"]]
    assert server.rows("SELECT state, attempt FROM deliveries") == [("pending", 0)]
    server.context.posts.slots.submit(IOS, lambda: None)
    [(key,)] = server.rows("UPDATE deliveries SET next_attempt_at = now() RETURNING delivery_key")
    assert claim_due(as_beat(server.context)) == 1
    next_attempts.attempt_due(server.context, {key: 0}, "")
    assert server.rows("SELECT state, attempt FROM deliveries") == [("delivered", 1)]


def test_posts_after_a_fault_of_ours_are_put_back(open_server, client, gorush):
    server = open_server(gorush={"url": gorush, "concurrency": 2, "batch_size": 1})
    content = server.register(client)

    def fail(_):
        raise LookupError("ours")

    server.context.gorush[""].post = fail
    with capture_logs() as logs:
        server.handle(DISPATCH, *(request(client, server, content) for _ in range(3)))
    assert [(line["deliveries"], line["put_back"]) for line in logs if line["event"] == "post_failed"] == [(1, 2)]
    assert sorted(server.rows("SELECT state, attempt FROM deliveries")) == [
        ("pending", 0),
        ("pending", 0),
        ("posting", 1),
    ]
    assert server.outcomes(client) == [["success"]] * 3
    assert server.context.posts.slots.reserve(IOS, 9) == 1


def test_a_probe_that_meets_a_fault_of_ours_is_over(server, client):
    content = server.register(client)

    def fail(_):
        raise LookupError("ours")

    server.context.gorush[""].post = fail
    trip(server.context.posts.breaker)
    server.context.redis.delete("wakupush:breaker:ios:open")
    server.handle(DISPATCH, request(client, server, content))
    assert server.rows("SELECT state, attempt FROM deliveries") == [("posting", 1)]
    assert server.context.posts.breaker.claimable(IOS, 3) == 3, "no probe is under way"


def test_a_backlog_leaves_slots_to_new_requests(open_server, client, gorush, monkeypatch):
    monkeypatch.setattr(next_attempts, "WAIT_SECONDS", 0.0)
    server = open_server(gorush={"url": gorush, "concurrency": 8, "batch_size": 1})
    slow, quick = (server.register(client, device_token=token) for token in ("slow-3000", "phone"))
    assert server.context.posts.slots.reserve(IOS, 9) == 4
    server.handle(DISPATCH, *(request(client, server, slow) for _ in range(8)))
    server.context.posts.slots.release(IOS, 4)
    attempts = is_due(server)
    assert len(attempts) == 8
    for part in (dict(list(attempts.items())[:4]), dict(list(attempts.items())[4:])):  # the second task finds no slot
        next_attempts.attempt_due(server.context, part, "")
    assert server.rows("SELECT state, count(*) FROM deliveries GROUP BY 1 ORDER BY 1") == [
        ("pending", 4),
        ("posting", 4),
    ]
    server.handle(DISPATCH, request(client, server, quick))
    assert [push.notification["tokens"] for push in server.pushes()] == [["phone"]]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_one_bad_notification_never_takes_its_neighbours_along(server, gorush, status):
    contents = {client: server.register(client) for client in (PrivateKey.generate() for _ in range(4))}
    fault(
        gorush, kind="status", status=status, times=3
    )  # the post of all, its first half, and of that the first by itself
    server.handle(DISPATCH, *(request(client, server, content) for client, content in contents.items()))
    assert sorted(server.outcomes(*contents)) == [["INTERNAL_ERROR"]] + [["success"]] * 3
    assert sorted(server.rows("SELECT state, failure, attempt FROM deliveries")) == [
        *[("delivered", None, 1)] * 3,
        ("failed", "gorush_refused", 1),
    ]
    assert len(server.pushes()) == 3, "nothing of the post of all was taken"


def test_a_device_whose_notification_spoils_a_post_does_so_once(server):
    tokens = ("malformed-1", "works-2", "works-3", "works-4")
    clients = {PrivateKey.generate(): device_token for device_token in tokens}
    contents = {client: server.register(client, device_token=token) for client, token in clients.items()}
    for _ in range(2):
        server.handle(DISPATCH, *(request(client, server, content) for client, content in contents.items()))
    sizes = dict(server.rows("SELECT batch_size, count(*) FROM delivery_history WHERE kind = 'attempt' GROUP BY 1"))
    # First the half without it, and those of the other half; then it alone beside the others.
    assert sizes == {2: 2, 1: 2 + 1, 3: 3}


def test_single_posts_after_a_refusal_keep_to_the_lease(server, gorush, monkeypatch):
    contents = {client: server.register(client) for client in (PrivateKey.generate() for _ in range(3))}
    fault(gorush, kind="status", status=413, times=1)
    with monkeypatch.context() as patch:
        clock = Suspended(patch)
        refuse = server.context.gorush[""].post
        patch.setattr(server.context.gorush[""], "post", lambda post: (refuse(post), clock.stand_still(100))[0])
        server.handle(DISPATCH, *(request(client, server, content) for client, content in contents.items()))
    assert server.outcomes(*contents) == [["success"]] * 3
    assert server.rows("SELECT state, attempt FROM deliveries") == [("pending", 0)] * 3, "without an attempt"
    fault(gorush, kind="status", status=413, times=1)
    next_attempts.attempt_due(
        server.context, {key: 0 for (key,) in server.rows("SELECT delivery_key FROM deliveries")}, ""
    )
    wait_until(lambda: not server.rows("SELECT FROM deliveries WHERE state = 'posting'"), timeout=60, what="posts end")
    assert server.rows("SELECT count(*) FROM deliveries WHERE state = 'failed'") == [(1,)], "then they go one by one"


class Suspended:
    """What a process that stood still sees of its clock when it is about to post."""

    def __init__(self, patch, seconds=0.0):
        self._seconds = seconds
        patch.setattr(posts, "time", self)

    def stand_still(self, seconds):
        self._seconds += seconds

    def monotonic(self):
        return time.monotonic() + self._seconds


@pytest.mark.parametrize("probe", [False, True])
def test_no_post_begins_late_in_its_lease(open_server, client, monkeypatch, probe):
    server = open_server(delivery={"lease": 40}, gorush={"timeout": 10})  # 35 s are for a post
    content = server.register(client)
    with monkeypatch.context() as patch:
        Suspended(patch, 6)
        server.handle(DISPATCH, request(client, server, content))
        assert server.rows("SELECT state, attempt FROM deliveries") == [("pending", 0)]
        if probe:
            trip(server.context.posts.breaker)
            server.context.redis.delete("wakupush:breaker:ios:open")
        attempts = is_due(server)
        next_attempts.attempt_due(server.context, attempts, "")
        pending = "SELECT FROM deliveries WHERE state = 'pending' AND attempt = 0"
        wait_until(lambda: server.rows(pending), timeout=60, what="it is put back")
    assert server.pushes() == []
    assert server.context.posts.breaker.claimable(IOS, 3) == 3, "no probe is under way"
    next_attempts.attempt_due(server.context, attempts, "")
    assert server.rows("SELECT state, attempt FROM deliveries") == [("delivered", 1)]


def test_slots_that_all_hang_open_the_breaker(open_server, client, monkeypatch):
    monkeypatch.setattr(posts, "HANG_SECONDS", 0.1)
    server = open_server(worker={"answer_within": 0.1}, breaker={"faults": 1})
    content = server.register(client, device_token="slow-1500")
    server.handle(DISPATCH, request(client, server, content))
    wait_until(lambda: server.context.posts.slots.hang(IOS, 0.1), timeout=60, what="the only slot hangs")
    server.handle(DISPATCH, request(client, server, content))
    assert not server.context.posts.breaker.is_closed(IOS)
    # The post that hung got through all the same.
    wait_until(lambda: server.context.posts.breaker.is_closed(IOS), timeout=60, what="the breaker is closed")


def test_the_answer_does_not_wait_for_a_clock_that_is_ahead(open_server, client):
    server = open_server(worker={"answer_within": 0.2}, gorush={"timeout": 12})
    content = server.register(client, device_token="slow-5000")
    server.handle(DISPATCH, request(client, server, content), seen=time.time() + 30)
    assert server.rows("SELECT state FROM deliveries") == [("posting",)]
    assert server.outcomes(client) == [["success"]]


def test_slots_that_are_busy_do_not_open_the_breaker(server, client):
    content = server.register(client)
    assert server.context.posts.slots.reserve(IOS, 9) == 1
    server.context.posts.slots.submit(IOS, lambda: server.context.posts.slots.begin(IOS)).result()
    assert server.context.posts.slots.reserve(IOS, 9) == 1
    server.handle(DISPATCH, request(client, server, content))
    assert server.context.posts.breaker.is_closed(IOS)
    server.context.posts.slots.release(IOS, 1)


def test_each_type_of_notification_has_its_time_to_live(open_server, client):
    server = open_server(
        delivery={"message_time_to_live": 100, "mention_time_to_live": 200, "join_request_time_to_live": 300}
    )
    chat_id = bytes(64)
    content = server.register(client, allowed_mentions_chat_list=[chat_id])
    for kind in NotificationType:
        server.handle(DISPATCH, request(client, server, content, type=kind, chat_id=chat_id))
    rows = server.rows(
        "SELECT notification_type, extract(epoch FROM expires_at - seen_at)::float8 FROM deliveries ORDER BY 1"
    )
    assert [(kind, round(seconds, -2)) for kind, seconds in rows] == [(1, 100), (2, 200), (3, 300), (4, 300)]
