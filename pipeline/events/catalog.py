"""The catalog and the store of the lake's tables, in Iceberg's own properties."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import PipelineError
from pipeline.folders import writing
from pipeline.postgres import connected, jdbc_options
from wakupush.postgres import exporting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from wakupush.runtime.settings import PipelineSettings, Settings

#: What Spark and other readers call the catalog: the one in Postgres keeps its tables under this name.
CATALOG: Final = "lake"
#: Where the table of events is, in the catalog.
NAMESPACE: Final = f"{CATALOG}.wakupush"
#: Where the catalog is in Postgres.
SCHEMA: Final = "wakupush_lake"
_OF_SPARK: Final = f"spark.sql.catalog.{CATALOG}"


def warehouse(settings: PipelineSettings) -> str:
    """Return where the tables lie: the whole path of a folder, or what else the setting names."""
    is_folder = not settings.warehouse_is_remote and is_ours(settings)
    return str(Path(settings.warehouse).resolve()) if is_folder else settings.warehouse


def given(settings: PipelineSettings) -> dict[str, str]:
    """Return the properties that an operator gave."""
    return {name: value.get_secret_value() for name, value in settings.catalog.items()}


def is_ours(settings: PipelineSettings) -> bool:
    """Say whether the catalog is the one in Postgres or in a folder, not that of somebody else."""
    return "catalog-impl" not in settings.catalog and given(settings).get("type", "jdbc") in {"jdbc", "hadoop"}


def is_folder_alone(settings: PipelineSettings) -> bool:
    """Say whether there is no catalog but the folder itself, in which two commits may both succeed."""
    return given(settings).get("type") == "hadoop"


def properties(settings: Settings) -> dict[str, str]:
    """Return the catalog's properties; among them may be secrets.

    Raises:
        PipelineError: the catalog is in a Postgres that does not answer, has no schema for it, or refuses.
    """
    own = {"warehouse": warehouse(settings.pipeline), "cache-enabled": "false"}
    if settings.pipeline.warehouse_is_remote:
        own["io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
    theirs = given(settings.pipeline)
    if theirs.keys() & {"type", "catalog-impl"}:
        return own | theirs
    with connected(settings.postgres) as connection:
        connection.execute(f"SELECT FROM {SCHEMA}.iceberg_tables LIMIT 0")
        reached = jdbc_options(connection, currentSchema=SCHEMA)
    own |= {"type": "jdbc", "uri": reached["url"], "jdbc.schema-version": "V1"}
    return own | {f"jdbc.{name}": reached[name] for name in ("user", "password") if name in reached} | theirs


def session(spark: SparkSession, settings: Settings) -> SparkSession:
    """Return a session of Spark's that knows the catalog as `CATALOG`.

    The properties are told to a session that runs: given when it starts, they would be on Java's command line.

    Raises:
        PipelineError: see `properties`.
    """
    of_lake = spark.newSession()
    for name, value in properties(settings).items():
        of_lake.conf.set(f"{_OF_SPARK}.{name}", value)
    of_lake.conf.set(_OF_SPARK, "org.apache.iceberg.spark.SparkCatalog")
    # Loaded at first use, by the properties of whichever session is active then: a statement makes it this one.
    of_lake.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    return of_lake


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Keep other runs that write to the lake out until the end of the block.

    It saves their work, which would be in vain: that nothing is committed twice is up to `lake`. A folder
    without a catalog has nothing but this lock, and one machine.

    Raises:
        PipelineError: another one is at it, or Postgres does not answer.
    """
    if is_folder_alone(settings.pipeline):
        with writing(Path(warehouse(settings.pipeline))):
            yield
    else:
        with connected(settings.postgres) as connection:
            if not exporting.lock(connection):
                raise PipelineError("another run is writing to the lake")
            yield
