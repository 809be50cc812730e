"""Commands log to the stderr that they find: no test is to leave that to the next one."""

import pytest

from support.logs import logging_as_before


@pytest.fixture(autouse=True)
def _logging():
    with logging_as_before():
        yield
