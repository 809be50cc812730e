"""Processes of a server that is not there."""

import pytest

from support.logs import logging_as_before
from wakupush.redis.presence import Presence


@pytest.fixture(autouse=True)
def _logging():
    with logging_as_before():
        yield


@pytest.fixture
def announce(redis):
    """Write to an empty Redis that processes run, with these checks of their readiness."""

    def announce(*roles, **checks):
        for role in roles:
            Presence(redis, role, lambda: checks).write()

    yield announce
    redis.flushall()
