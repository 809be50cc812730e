"""An answer that turned out wrong before it left: what leaves is what was committed, on a real Postgres that fails."""

from concurrent.futures import Future

import httpx2
import psycopg
import pytest
from structlog.testing import capture_logs
from tenacity import stop_after_attempt

from support.rows import ANDROID
from support.served import request, rewrapped, trip
from wakupush.devnet import messages
from wakupush.model.failures import Failure
from wakupush.model.queues import DISPATCH
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.postgres import answers, requests
from wakupush.protocol.keys import PrivateKey
from wakupush.server.beat.answers import publish_overdue
from wakupush.server.delivery.attempt import wait_for
from wakupush.server.engine import follow_up
from wakupush.waku.errors import NodeUnreachable
from wakupush.waku.publisher import Publisher


def fail_elsewhere(server, monkeypatch, failure):
    """Have another process learn that deliveries failed, after they are committed and before their answers leave."""
    do = server.context.answers.do

    def learn(*args):
        do(*args)
        set_failed(server, failure)

    monkeypatch.setattr(server.context.answers, "do", learn)


def set_failed(server, failure):
    server.rows(
        "UPDATE deliveries SET state = 'failed', failure = %s, finished_at = now(), lease = NULL,"
        " lease_until = NULL RETURNING 1",
        failure.label,
    )


def spoil_corrections(server, spoiled):
    """Make Postgres fail when the transaction of a correction is committed; `spoiled` says of which try, from 1."""
    statements = (
        "CREATE SEQUENCE tries",
        f"""CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('tries') {spoiled} THEN RAISE EXCEPTION 'spoiled' USING ERRCODE = 'query_canceled'; END IF;
            RETURN NULL;
        END $$""",
        (
            "CREATE CONSTRAINT TRIGGER spoil AFTER UPDATE ON admitted_requests DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION spoil()"
        ),
    )
    with server.context.pool.connection() as connection:
        for statement in statements:
            connection.execute(statement)


def two_platforms(server, client):
    """Register a device with iOS and one with Android; return the message that asks for a push to each."""
    android = PushNotificationRegistration.FIREBASE_TOKEN
    devices = [server.register(client, device_token="dead"), server.register(client, token_type=android)]
    items = [messages.notification(client.public_key.key_hash, device) for device in devices]
    return messages.request(client, server.key, items)


def test_a_platform_that_is_not_put_back_hides_no_failure(server, client):
    message = two_platforms(server, client)
    trip(server.context.posts.breaker, ANDROID)
    spoil = "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE query_canceled; END $$"
    with server.context.pool.connection() as connection:
        connection.execute(spoil)
        connection.execute(
            "CREATE TRIGGER spoil BEFORE UPDATE ON deliveries FOR EACH ROW WHEN (NEW.state = 'pending')"
            " EXECUTE FUNCTION spoil()"
        )
    server.handle(DISPATCH, message)
    assert server.outcomes(client) == [["NOT_REGISTERED", "success"]]


def test_an_error_of_one_post_hides_no_failure_of_others():
    well, broken, failed = Future(), Future(), Future()
    well.set_result({})
    broken.set_exception(psycopg.OperationalError())
    failed.set_result({b"key": Failure.TOKEN_UNREGISTERED})
    with capture_logs() as logs:
        assert wait_for([well, broken, failed, Future()], 0.1) == {b"key": Failure.TOKEN_UNREGISTERED}
    assert [line["event"] for line in logs] == ["post_failed"]


def test_a_claimed_answer_is_not_corrected(server, dead_and_well, monkeypatch):
    """The schedule publishes from its memory, while the row is still there."""
    push_requests, client, other = dead_and_well
    correct, claimed = follow_up.correct, []

    def late(connection, *args):
        if not claimed:
            server.rows("UPDATE answers SET publish_at = now() WHERE publish_at > now() RETURNING 1")
            with server.context.pool.connection() as own:
                claimed.extend(answers.claim(own, {}, 10, most_bytes=10**6, hold=60))
        return correct(connection, *args)

    monkeypatch.setattr(follow_up, "correct", late)
    server.handle(DISPATCH, *push_requests)
    assert len(claimed) == 1
    server.context.outbox.publish([(answer_id, answer) for answer_id, answer, _ in claimed])
    assert server.outcomes(client, other) == [["success"]] * 2, "one answer to each envelope"
    assert server.rows("SELECT succeeded FROM admitted_requests") == [("1",)] * 2
    assert server.rows("SELECT FROM answers") == []


@pytest.fixture(params=["before", "after"])
def in_two_workers(server, client, monkeypatch, request):
    """The same request in two envelopes, of which another worker took on the first, and posts it; the second one.

    The second worker looks before the first one committed, or after.
    """
    device = server.register(client)
    message = messages.request(client, server.key, [messages.notification(client.public_key.key_hash, device)])
    with monkeypatch.context() as patch:
        patch.setattr(follow_up, "_follow_up", lambda *_: None)
        patch.setattr(server.context.answers, "do", lambda *_: None)
        server.handle(DISPATCH, message)
    assert server.rows("SELECT state FROM deliveries") == [("posting",)]
    if request.param == "before":
        monkeypatch.setattr(requests, "admitted", lambda *_: ({}, set()))
    return rewrapped(message, server)


@pytest.mark.parametrize(
    "failed",
    [
        (Failure.TOKEN_UNREGISTERED, "NOT_REGISTERED"),
        (Failure.PAYLOAD_TOO_LARGE, "INTERNAL_ERROR"),
        (Failure.UNWANTED, "success"),
    ],
    ids=str,
)
def test_what_another_worker_learned_is_answered(server, client, in_two_workers, monkeypatch, failed):
    failure, outcome = failed
    fail_elsewhere(server, monkeypatch, failure)
    server.handle(DISPATCH, in_two_workers)
    assert server.outcomes(client) == [[outcome]]
    assert server.rows("SELECT succeeded FROM admitted_requests") == [("1" if outcome == "success" else "0",)]


def test_own_delivery_that_failed_elsewhere_is_answered(server, client, monkeypatch):
    """Another process posts what found no slot here, or what failed for the time being."""
    message = request(client, server, server.register(client))
    fail_elsewhere(server, monkeypatch, Failure.TOKEN_UNREGISTERED)
    server.handle(DISPATCH, message)
    assert server.outcomes(client) == [["NOT_REGISTERED"]]


@pytest.fixture
def without_node(server, client, node):
    """A request whose delivery failed after no node took its answer; the node is well again."""
    message = request(client, server, server.register(client))
    fault = {"kind": "status", "status": 503, "method": "POST"}
    httpx2.post(f"{node}/dev/faults", json=fault).raise_for_status()
    server.handle(DISPATCH, message)
    httpx2.delete(f"{node}/dev/faults").raise_for_status()
    set_failed(server, Failure.TOKEN_UNREGISTERED)
    assert server.outcomes(client) == []


@pytest.mark.usefixtures("without_node")
def test_an_answer_that_no_node_took_is_looked_at_again(server, client):
    [wait] = server.context.answers.end()
    assert wait == pytest.approx(0.5, abs=0.5)
    assert server.outcomes(client) == [["NOT_REGISTERED"]]
    assert server.rows("SELECT FROM answers") == []


@pytest.mark.usefixtures("without_node")
def test_nothing_leaves_again_without_a_look(server, client, monkeypatch):
    def fail(*_):
        raise psycopg.OperationalError

    with monkeypatch.context() as patch:
        patch.setattr(requests, "failed_within", fail)
        server.context.answers.end()
    assert server.outcomes(client) == []
    server.context.answers.end()
    assert server.outcomes(client) == [["NOT_REGISTERED"]]


@pytest.mark.usefixtures("without_node")
def test_answers_are_left_to_beat_after_a_while(server, client, monkeypatch):
    """It leaves them to the worker until then."""
    assert publish_overdue(server.context) == 0
    monkeypatch.setattr(follow_up, "TRY_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "publish", lambda _, messages: [NodeUnreachable("")] * len(messages))
        server.context.answers.end()
    assert server.context.answers.end() == []
    assert overdue(server) == 1
    assert server.outcomes(client) == [["NOT_REGISTERED"]], "as it was corrected"


def overdue(server):
    """Have the schedule publish what is in the outbox."""
    server.rows("UPDATE answers SET publish_at = now() RETURNING 1")
    return publish_overdue(server.context)


@pytest.fixture
def dead_and_well(server, client):
    """A device whose token is dead, and one that is well, with what asks for a push to each."""
    other = PrivateKey.generate()
    dead, well = server.register(client, device_token="dead"), server.register(other)
    return [request(client, server, dead), request(other, server, well)], client, other


def test_an_answer_that_leaves_is_what_was_committed(server, dead_and_well, monkeypatch):
    push_requests, client, other = dead_and_well
    monkeypatch.setattr(follow_up._correct.retry, "stop", stop_after_attempt(2))
    spoil_corrections(server, "> 0")
    server.handle(DISPATCH, *push_requests)
    assert server.outcomes(client, other) == [["success"]], "of the device that is well; nothing of the other one"
    assert server.rows("SELECT succeeded FROM admitted_requests") == [("1",)] * 2
    assert overdue(server) == 1
    assert server.outcomes(client, other) == [["success"]], "what is in the outbox"
    assert (
        server.rows("SELECT failure FROM delivery_history WHERE kind = 'answered' AND queue = 'dispatch'")
        == [(None,)] * 2
    )


def test_a_correction_is_committed_when_postgres_is_well_again(server, dead_and_well):
    push_requests, client, other = dead_and_well
    spoil_corrections(server, "= 1")
    server.handle(DISPATCH, *push_requests)
    assert sorted(server.outcomes(client, other)) == [["NOT_REGISTERED"], ["success"]]
    assert sorted(server.rows("SELECT succeeded FROM admitted_requests")) == [("0",), ("1",)]
    assert overdue(server) == 0


def test_a_correction_whose_commit_was_not_heard_of_leaves_once(server, dead_and_well, monkeypatch):
    push_requests, client, other = dead_and_well
    correct = follow_up.correct

    def lost(connection, *args):
        answers, events = correct(connection, *args)
        if events:
            connection.commit()
            raise psycopg.OperationalError
        return answers, events

    monkeypatch.setattr(follow_up, "correct", lost)
    server.handle(DISPATCH, *push_requests)
    assert server.outcomes(client, other) == [["success"]]
    assert overdue(server) == 1
    assert server.outcomes(client, other) == [["NOT_REGISTERED"]]
    assert len(server.rows("SELECT FROM delivery_history WHERE kind = 'answered' AND failure IS NOT NULL")) == 1
