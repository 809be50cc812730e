"""An answer that turned out wrong before it left: what leaves is what was committed, on a real Postgres that fails."""

import psycopg
import pytest
from tenacity import stop_after_attempt

from support.served import request
from wakupush.model.queues import DISPATCH
from wakupush.protocol.keys import PrivateKey
from wakupush.server.beat.answers import publish_overdue
from wakupush.server.engine import follow_up


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
    sent, client, other = dead_and_well
    monkeypatch.setattr(follow_up._correct.retry, "stop", stop_after_attempt(2))
    spoil_corrections(server, "> 0")
    server.handle(DISPATCH, *sent)
    assert server.outcomes(client, other) == [["success"]], "of the device that is well; nothing of the other one"
    assert server.rows("SELECT succeeded FROM admitted_requests") == [("1",)] * 2
    assert overdue(server) == 1
    assert server.outcomes(client, other) == [["success"]], "what is in the outbox"
    assert (
        server.rows("SELECT failure FROM delivery_history WHERE kind = 'answered' AND queue = 'dispatch'")
        == [(None,)] * 2
    )


def test_a_correction_is_committed_when_postgres_is_well_again(server, dead_and_well):
    sent, client, other = dead_and_well
    spoil_corrections(server, "= 1")
    server.handle(DISPATCH, *sent)
    assert sorted(server.outcomes(client, other)) == [["NOT_REGISTERED"], ["success"]]
    assert sorted(server.rows("SELECT succeeded FROM admitted_requests")) == [("0",), ("1",)]
    assert overdue(server) == 0


def test_a_correction_whose_commit_was_not_heard_of_leaves_once(server, dead_and_well, monkeypatch):
    sent, client, other = dead_and_well
    correct = follow_up.correct

    def lost(connection, *args):
        answers, events = correct(connection, *args)
        if events:
            connection.commit()
            raise psycopg.OperationalError
        return answers, events

    monkeypatch.setattr(follow_up, "correct", lost)
    server.handle(DISPATCH, *sent)
    assert server.outcomes(client, other) == [["success"]]
    assert overdue(server) == 1
    assert server.outcomes(client, other) == [["NOT_REGISTERED"]]
    assert len(server.rows("SELECT FROM delivery_history WHERE kind = 'answered' AND failure IS NOT NULL")) == 1
