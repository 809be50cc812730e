"""Processes of a server that is not there."""

import pytest
from redis import Redis

from support.logs import logging_as_before
from wakupush.redis.presence import Presence


@pytest.fixture(autouse=True)
def _logging():
    with logging_as_before():
        yield


@pytest.fixture
def announce(redis_server):
    """Write to an empty Redis that processes run, with these checks of their readiness."""

    def announce(*roles, **checks):
        for role in roles:
            Presence(Redis.from_url(redis_server.url), role, lambda: checks).write()

    with Redis.from_url(redis_server.url) as redis:
        redis.flushall()
        yield announce
        redis.flushall()
