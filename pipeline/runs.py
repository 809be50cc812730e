"""When jobs ended well: the exporter tells Prometheus."""

from wakupush.pipeline.lake.catalog import is_in_postgres
from wakupush.pipeline.postgres import connect
from wakupush.postgres import exporting
from wakupush.runtime.settings import Settings


def note_run(settings: Settings, job: str, seconds: float) -> None:
    """Store that a job has ended well and how long it took, if the catalog of the lake is in Postgres.

    Raises:
        PipelineError: Postgres does not answer, or refuses.
    """
    if is_in_postgres(settings.pipeline):
        with connect(settings.postgres) as connection:
            exporting.note_run(connection, job, seconds)
