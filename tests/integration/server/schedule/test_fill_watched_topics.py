"""The watched topics are filled out of Postgres when Redis lost them."""

from support.served import count_watched
from wakupush.redis import watched
from wakupush.server.schedule.queries import fill_watched_topics


def test_the_schedule_fills_the_watched_topics_after_redis_was_wiped(server, client):
    server.register(client)
    server.context.redis.flushall()
    assert fill_watched_topics(server.context)
    assert count_watched(server.context.redis) == 2
    assert not fill_watched_topics(server.context)


def test_redis_is_wiped_while_the_watched_topics_are_filled(server, client, monkeypatch):
    server.register(client)
    redis = server.context.redis
    redis.flushall()
    add = watched.add
    with monkeypatch.context() as patch:
        patch.setattr(watched, "add", lambda *args, **named: add(*args, **named) or redis.flushall())
        assert fill_watched_topics(server.context)
    assert fill_watched_topics(server.context)
    assert count_watched(redis) == 2
    assert not fill_watched_topics(server.context)
