"""Without Spark and Java the tests of the pipeline are left out, but never in silence, and never on CI."""

import os

import pytest

from wakupush.pipeline.session import missing_parts

MISSING = missing_parts()


def test_spark_is_installed():
    if MISSING and os.environ.get("CI") != "true":
        pytest.skip(MISSING)
    assert not MISSING, MISSING
