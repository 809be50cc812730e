"""``wakupush pipeline export``: takes delivery events from Postgres into the lake, each exactly once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from psycopg import Connection
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.lake import schema
from wakupush.pipeline.lake.catalog import alone, is_folder_alone, warehouse
from wakupush.pipeline.lake.lake import Lake, LakeMark, LakeState
from wakupush.pipeline.lake.pseudonyms import Keys, blur, rehash, today
from wakupush.pipeline.postgres import connect, jdbc_options, read_slices
from wakupush.pipeline.session import SPARK_ERRORS
from wakupush.postgres import exporting
from wakupush.runtime.settings import Settings

#: The pseudonyms of the lake, by the columns from which they are made.
PSEUDONYMS = {"trace_id": "trace", "key_pseudonym": "user", "installation_pseudonym": "installation"}

#: Connections to Postgres over which a step is read at the same time.
SLICES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTotals:
    """The counts of a run."""

    rows: int
    steps: int
    forgotten_keys: int


def run(spark: SparkSession, settings: Settings, progress: Callable[[int, int], None]) -> ExportTotals:
    """Take over all events that are complete, and delete the keys of periods that are over.

    Events are identified by the transaction that wrote them. A step takes whole transactions, and one commit has both
    their events and the mark up to which they go. The next run begins at the mark, however this one ended.

    Args:
        spark: with the jars of the lake.
        progress: called with the events taken over so far, and their total.

    Raises:
        PipelineError: the text says what to do.
    """
    if is_folder_alone(settings.pipeline):
        raise PipelineError(
            "WAKUPUSH_PIPELINE__CATALOG: an export needs a catalog, in a folder alone two of them may both commit"
        )
    keys = keys_of(settings)
    lake = Lake.of(spark, settings)
    with alone(settings), connect(settings.postgres) as connection:
        lake.prepare()
        rows, steps = _take_over(lake, settings, keys, connection, progress)
    return ExportTotals(rows=rows, steps=steps, forgotten_keys=keys.forget(today()))


def keys_of(settings: Settings) -> Keys:
    """Return the keys of the lake's pseudonyms.

    Raises:
        PipelineError: the folder of the keys is in the lake.
    """
    folder = settings.pipeline.keys.resolve()
    if folder.is_relative_to(warehouse(settings.pipeline)):
        raise PipelineError("WAKUPUSH_PIPELINE__KEYS must not lie in the lake, which is to be kept without them")
    return Keys(folder, settings.pipeline.pseudonym_days)


def _take_over(
    lake: Lake,
    settings: Settings,
    keys: Keys,
    connection: Connection,
    progress: Callable[[int, int], None],
) -> tuple[int, int]:
    """Take events over step by step; return the numbers of events and of steps."""
    state = lake.state()
    lake_days = lake.sizes()
    mark = exporting.mark(connection)
    _check_source(connection, state, mark)
    begin = state.mark.transaction if state.mark else 0
    # Before the first event is taken over, too: retention waits. And a run may have ended before it could tell.
    exporting.note_exported(connection, max(0, begin - 1))
    options = jdbc_options(connection)
    total = exporting.count(connection, begin, mark.transaction)
    event_count = steps = 0
    progress(0, total)
    while slices := exporting.slices(
        connection, begin, mark.transaction, rows=settings.pipeline.step_rows, most=SLICES
    ):
        end = slices[-1][1]
        extent = exporting.extent(connection, begin, end)
        if extent.version > schema.EVENT_VERSION:
            raise PipelineError(
                f"there are events of schema version {extent.version}, this pipeline knows {schema.EVENT_VERSION}:"
                " update it; nothing was taken over of this step"
            )
        events = for_lake(
            read_slices(lake.spark, options, slices),
            keys.of(extent.days, today(), lake_days),
            settings.pipeline.pseudonym_days,
        )
        new_mark = LakeMark(
            source=mark.source,
            timeline=mark.timeline,
            transaction=end,
            last_event=exporting.last_event(connection, end - 1),
        )
        rows, state = _append(lake, events, state, new_mark, extent.rows)
        exporting.note_exported(connection, end - 1)
        begin = end
        event_count += rows
        steps += 1
        progress(event_count, total)
    return event_count, steps


def _check_source(connection: Connection, state: LakeState, now: exporting.Mark) -> None:
    """Refuse a database whose transactions are not those of the lake's mark: events would be left out."""
    mark = state.mark
    if mark is None:
        return
    if (
        mark.source != now.source
        or mark.timeline > now.timeline
        or mark.transaction > now.transaction
        or (mark.last_event is not None and _is_lost(connection, mark.transaction - 1, mark.last_event))
    ):
        raise PipelineError(
            "the events come from another Postgres cluster than those in the lake, or from one that lost transactions"
            " which are in it, and gives their numbers to others: see docs/operating/pipeline.md"
        )


def _is_lost(connection: Connection, transaction: int, last_event: float) -> bool:
    """Return whether the database has lost a transaction, except by retention, which deletes all older ones too.

    A database that was restored to an earlier time, or a standby that was promoted without the last transactions, gives
    their numbers to other transactions.
    """
    last = exporting.last_event(connection, transaction)
    return exporting.count(connection, 0, transaction) > 0 if last is None else last != last_event


def for_lake(events: DataFrame, keys: dict[int, bytes], days: int) -> DataFrame:
    """Return events in the form of the lake."""
    columns = (
        events.withColumn("day", F.to_date("time"))
        .withColumn("queue_wait_ms", F.expr(schema.milliseconds("queue_wait")))
        .withColumn("latency_ms", F.expr(schema.milliseconds("latency")))
        .withColumn("age_ms", F.expr(schema.milliseconds("age")))
        .withColumn("attempt", F.col("attempt").cast("int"))
        .withColumn("batch_size", F.col("batch_size").cast("int"))
    )
    return blur(rehash(columns, keys, days, PSEUDONYMS))


def _append(lake: Lake, events: DataFrame, state: LakeState, mark: LakeMark, rows: int) -> tuple[int, LakeState]:
    try:
        return lake.append(events, state, mark, rows)
    except SPARK_ERRORS as error:
        if "permission denied" in str(error).lower():
            raise PipelineError("Spark may not read the events, or not write the lake: permission denied") from error
        raise
