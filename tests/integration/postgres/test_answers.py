"""Answers keep their order, and are claimed once."""

from concurrent.futures import ThreadPoolExecutor

import psycopg

from wakupush.model.entries import SealedAnswer
from wakupush.postgres import (
    answers,
)


def test_answers_keep_their_order_and_are_claimed_once(dsn, connection):
    outbox = [
        SealedAnswer(pubsub_topic="shard", content_topic=str(number), payload=bytes([number]), trace_id="t")
        for number in range(50)
    ]
    ids = answers.add(connection, outbox, hold=0)
    assert connection.execute("SELECT content_topic FROM answers ORDER BY id").fetchall() == [
        (answer.content_topic,) for answer in outbox
    ]

    def claim(_):
        with psycopg.connect(dsn) as own:
            return [answer_id for answer_id, _ in answers.claim(own, limit=10, hold=60)]

    with ThreadPoolExecutor(8) as threads:
        claimed = [answer_id for part in threads.map(claim, range(8)) for answer_id in part]
    assert sorted(claimed) == ids
    answers.remove(connection, ids[:49])
    assert answers.expire(connection, keep=60) == 0
    assert answers.expire(connection, keep=0) == 1
