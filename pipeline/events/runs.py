"""When jobs ended well: the exporter tells Prometheus."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from wakupush.pipeline.events.catalog import is_in_postgres
from wakupush.pipeline.postgres import connect
from wakupush.postgres import exporting
from wakupush.runtime.settings import Settings


@contextmanager
def record_run(job: str, settings: Settings) -> Iterator[None]:
    """Store how long the block took, if it raises nothing and the catalog of the lake is in Postgres.

    Raises:
        PipelineError: Postgres does not answer, or refuses.
    """
    begin = time.monotonic()
    yield
    if is_in_postgres(settings.pipeline):
        with connect(settings.postgres) as connection:
            exporting.note_run(connection, job, time.monotonic() - begin)
