"""``wakupush pipeline export``: delivery events from Postgres into the lake, each exactly once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from pipeline import schema
from pipeline.errors import PipelineError
from pipeline.folders import writing
from pipeline.lake import SPARK_ERRORS, Lake, Snapshot
from pipeline.postgres import connected, jdbc_options, read_slices
from pipeline.pseudonyms import Keys, blurred, keep_from, rehash, today
from wakupush.postgres import exporting

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import Connection
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.lake import File
    from wakupush.model.exports import Mark
    from wakupush.runtime.settings import Settings

#: The pseudonyms of the lake, and what they are made of.
PSEUDONYMS = {"trace_id": "trace", "key_pseudonym": "user", "installation_pseudonym": "installation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What a run did."""

    rows: int
    steps: int
    #: Of the lake, afterwards.
    files: int
    forgotten_rows: int
    forgotten_keys: int
    damaged: tuple[File, ...]


def run(spark: SparkSession, settings: Settings, progress: Callable[[int, int], None]) -> Exported:
    """Take over all events that are complete, make few files of many, and forget what is too old.

    The identity of an event is the transaction that wrote it: a step takes whole transactions, and one commit has both
    its files and the mark up to which they go. A run that is killed leaves files that nobody counts, and the next run
    begins at the mark.

    Args:
        spark: with the JDBC driver.
        settings: of everything.
        progress: is told the events taken over so far, and of how many.

    Raises:
        PipelineError: the text says what to do.
    """
    lake = Lake(settings.pipeline.lake.resolve())
    keys = keys_of(settings, lake)
    with writing(lake.folder):
        with connected(settings.postgres) as connection:
            rows, steps = _take_over(spark, settings, lake, connection, progress)
        _, damaged = lake.compact(spark, today())
        forgotten_rows = lake.forget(keep_from(settings.retention.lake))
        forgotten_keys = keys.forget(today())
        lake.sweep()
        return Exported(
            rows=rows,
            steps=steps,
            files=len(lake.latest().files),
            forgotten_rows=forgotten_rows,
            forgotten_keys=forgotten_keys,
            damaged=damaged,
        )


def keys_of(settings: Settings, lake: Lake) -> Keys:
    """Return the keys of the lake's pseudonyms.

    Raises:
        PipelineError: they would lie in the lake.
    """
    folder = settings.pipeline.keys.resolve()
    if folder.is_relative_to(lake.folder):
        raise PipelineError("WAKUPUSH_PIPELINE__KEYS must not lie in the lake, which is to be kept without them")
    return Keys(folder, settings.pipeline.pseudonym_days)


def _take_over(
    spark: SparkSession,
    settings: Settings,
    lake: Lake,
    connection: Connection,
    progress: Callable[[int, int], None],
) -> tuple[int, int]:
    """Take over step by step; return how many events and steps that were."""
    keys = keys_of(settings, lake)
    snapshot = lake.latest()
    known = keys.periods(snapshot.files)
    mark = exporting.mark(connection)
    _check_source(connection, snapshot, mark)
    options = jdbc_options(connection)
    total = exporting.count(connection, snapshot.watermark, mark.transaction)
    done = steps = 0
    progress(0, total)
    while slices := exporting.slices(
        connection,
        snapshot.watermark,
        mark.transaction,
        rows=settings.pipeline.step_rows,
        most=settings.pipeline.slices,
    ):
        end = slices[-1][1]
        extent = exporting.extent(connection, snapshot.watermark, end)
        if extent.version > schema.EVENT_VERSION:
            raise PipelineError(
                f"there are events of schema version {extent.version}, this pipeline knows {schema.EVENT_VERSION}:"
                " update it; nothing was taken over of this step"
            )
        events = for_lake(
            read_slices(spark, options, slices), keys.of(extent.days, today(), known), settings.pipeline.pseudonym_days
        )
        files = _write(lake, events)
        _check_rows(files, extent.rows)
        snapshot = replace(
            snapshot,
            number=snapshot.number + 1,
            source=mark.source,
            watermark=end,
            last_event=exporting.last_event(connection, end - 1),
            files=snapshot.files + files,
        )
        lake.commit(snapshot)
        done += sum(file.rows for file in files)
        steps += 1
        progress(done, total)
    return done, steps


def _check_source(connection: Connection, snapshot: Snapshot, mark: Mark) -> None:
    """Refuse a database whose transactions are not those that the lake's mark is of, else events would be left out."""
    if (
        snapshot.source not in {None, mark.source}
        or snapshot.watermark > mark.transaction
        or (snapshot.last_event is not None and _is_lost(connection, snapshot.watermark - 1, snapshot.last_event))
    ):
        raise PipelineError(
            "the events come from another Postgres cluster than those in the lake, or from one that lost transactions"
            " which are in it, and gives their numbers to others: see docs/pipeline.md"
        )


def _is_lost(connection: Connection, transaction: int, last_event: float) -> bool:
    """Say whether the database has lost a transaction, otherwise than by retention, which takes all older ones too.

    One that was restored to an earlier time, or a standby that was promoted without what came last, gives their numbers
    to other transactions.
    """
    found = exporting.last_event(connection, transaction)
    return exporting.count(connection, 0, transaction) > 0 if found is None else found != last_event


def _check_rows(files: tuple[File, ...], expected: int) -> None:
    """Refuse a step whose rows are not those that Postgres counted, which does not change what is complete."""
    written = sum(file.rows for file in files)
    if written != expected:
        raise PipelineError(
            f"Postgres has {expected} events of this step and {written} were written: retention may have taken some"
            " meanwhile; start again"
        )


def for_lake(events: DataFrame, keys: dict[int, bytes], days: int) -> DataFrame:
    """Return events as the lake has them."""
    shaped = (
        events.withColumn("day", F.to_date("time"))
        .withColumn("queue_wait_ms", F.expr(schema.milliseconds("queue_wait")))
        .withColumn("latency_ms", F.expr(schema.milliseconds("latency")))
        .withColumn("attempt", F.col("attempt").cast("int"))
        .withColumn("batch_size", F.col("batch_size").cast("int"))
    )
    return blurred(rehash(shaped, keys, days, PSEUDONYMS))


def _write(lake: Lake, events: DataFrame) -> tuple[File, ...]:
    try:
        return lake.write(events)
    except SPARK_ERRORS as error:
        text = str(error).lower()
        if "permission denied" in text:
            raise PipelineError("Spark may not read the events, or not write the lake: permission denied") from error
        raise
