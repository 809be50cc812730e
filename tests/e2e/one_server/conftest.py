"""One server for all tests of this folder, which one worker of pytest runs: what they need, they make themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.stacks import running_node, running_stack
from wakupush.devnet.stack import Stack


@pytest.fixture(scope="package")
def stack() -> Iterator[Stack]:
    # One message a task, so that all processes of a pool get some.
    with running_stack(settings={"WAKUPUSH_INGEST__BATCH_SIZE": "1"}) as stack:
        yield stack


@pytest.fixture
def own_node_url(stack, tmp_path, forkserver) -> Iterator[str]:
    """A node that has had no requests: it takes few of a light client."""
    with running_node(stack, "nwaku", tmp_path / "node.log", forkserver) as (url, _):
        yield url
