"""The catalog and the store of the lake's tables, in Iceberg's own properties."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.folders import writing
from wakupush.pipeline.postgres import connect, jdbc_options
from wakupush.pipeline.session import CATALOG
from wakupush.postgres import exporting
from wakupush.runtime.settings import PipelineSettings, Settings, is_remote

#: The namespace of the events' table in the catalog.
NAMESPACE: Final = f"{CATALOG}.wakupush"
#: The schema of the catalog in Postgres.
SCHEMA: Final = "wakupush_lake"
_OF_SPARK: Final = f"spark.sql.catalog.{CATALOG}"


def warehouse(settings: PipelineSettings) -> str:
    """Return where the tables are: the absolute path of a folder, or another place as the setting names it."""
    is_folder = not is_remote(settings.warehouse) and is_ours(settings)
    return str(Path(settings.warehouse).resolve()) if is_folder else settings.warehouse


def catalog_settings(settings: PipelineSettings) -> dict[str, str]:
    """Return the catalog's properties from the settings."""
    return {name: value.get_secret_value() for name, value in settings.catalog.items()}


def is_ours(settings: PipelineSettings) -> bool:
    """Return whether the catalog is our own, in Postgres or in a folder, and not an external one."""
    return "catalog-impl" not in settings.catalog and catalog_settings(settings).get("type", "jdbc") in {
        "jdbc",
        "hadoop",
    }


def is_in_postgres(settings: PipelineSettings) -> bool:
    """Return whether the catalog is in the server's Postgres."""
    return not settings.catalog.keys() & {"type", "catalog-impl"}


def is_folder_alone(settings: PipelineSettings) -> bool:
    """Return whether the folder itself is the catalog, in which two commits may both succeed."""
    return catalog_settings(settings).get("type") == "hadoop"


def properties(settings: Settings) -> dict[str, str]:
    """Return the catalog's properties; among them may be secrets.

    Raises:
        PipelineError: Postgres, in which the catalog is, does not answer, has no schema for it, or refuses.
    """
    own = {"warehouse": warehouse(settings.pipeline), "cache-enabled": "false"}
    if is_remote(settings.pipeline.warehouse):
        own["io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
    theirs = catalog_settings(settings.pipeline)
    if not is_in_postgres(settings.pipeline):
        return own | theirs
    with connect(settings.postgres) as connection:
        connection.execute(f"SELECT FROM {SCHEMA}.iceberg_tables LIMIT 0")
        login = jdbc_options(connection, currentSchema=SCHEMA)
    own |= {"type": "jdbc", "uri": login["url"], "jdbc.schema-version": "V1", "clients": "1"}
    return own | {f"jdbc.{name}": login[name] for name in ("user", "password") if name in login} | theirs


def session(spark: SparkSession, settings: Settings) -> SparkSession:
    """Return a session of Spark's that knows the catalog as `CATALOG`.

    The properties are set in a running session: given at its start, they would be on Java's command line.

    Raises:
        PipelineError: the settings name no catalog that can be used.
    """
    of_lake = spark.newSession()
    for name, value in properties(settings).items():
        of_lake.conf.set(f"{_OF_SPARK}.{name}", value)
    of_lake.conf.set(_OF_SPARK, "org.apache.iceberg.spark.SparkCatalog")
    # The catalog is loaded at first use, with the properties of the active session: a statement makes this one active.
    of_lake.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    return of_lake


def note_run(settings: Settings, job: str, seconds: float) -> None:
    """Store for the exporter that a job has ended well and how long it took, if the catalog is in Postgres.

    Raises:
        PipelineError: Postgres does not answer, or refuses.
    """
    if is_in_postgres(settings.pipeline):
        with connect(settings.postgres) as connection:
            exporting.note_run(connection, job, seconds)


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Keep other runs that write to the lake out until the end of the block.

    The lock only saves them work in vain, as `lake` prevents that anything is committed twice. A folder without a
    catalog has only this lock, on one machine.

    Raises:
        PipelineError: another run is writing, or Postgres does not answer.
    """
    if is_folder_alone(settings.pipeline):
        with writing(Path(warehouse(settings.pipeline))):
            yield
    else:
        with connect(settings.postgres) as connection:
            if not exporting.lock(connection):
                raise PipelineError("another run is writing to the lake")
            yield
