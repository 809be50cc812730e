"""``wakupush pipeline migrate-lake``: takes over a lake of the old form, Parquet with its own log, once.

``log/NNNNNNNNNN.json`` is a snapshot: the current files, with their rows and the version of their schema, and the mark
of the export. The last snapshot is taken over, some days at a time. How far that got is a property of the new table,
which is set in the commit that has the days. The last of these commits sets the mark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it
from pyspark.sql.types import (
    BinaryType,
    DateType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.errors import PipelineError
from pipeline.events import schema
from pipeline.events.catalog import alone
from pipeline.events.lake import MARK, MIGRATED, Lake, LakeMark
from pipeline.events.pseudonyms import blurred
from pipeline.folders import writing
from pipeline.spark_errors import SPARK_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipeline.events.lake import LakeState
    from wakupush.runtime.settings import Settings

#: The version that is written now.
VERSION: Final = 4
#: Columns that are stored as folders, outermost first.
_FOLDERS: Final = [
    StructField("batch", StringType()),
    StructField("day", DateType()),
    StructField("kind", StringType()),
]
_PLAIN: Final = [
    StructField("time", TimestampType()),
    StructField("queue", StringType()),
    StructField("platform", StringType()),
    StructField("failure", StringType()),
    StructField("reason", StringType()),
    StructField("attempt", IntegerType()),
    StructField("batch_size", IntegerType()),
    StructField("worker", StringType()),
    StructField("trace", BinaryType()),
    StructField("user", BinaryType()),
    StructField("installation", BinaryType()),
]
_SECONDS: Final = [StructField("queue_wait", FloatType()), StructField("latency", FloatType())]
_MILLISECONDS: Final = [StructField("queue_wait_ms", LongType()), StructField("latency_ms", LongType())]
#: The columns of each version, folders included. Version 1 had seconds as floats. Up to version 2 every event had its
#: second, its latency and its message; up to version 3 each stood for one message or notification.
COLUMNS: Final[dict[int, StructType]] = {
    1: StructType([*_PLAIN, *_SECONDS, *_FOLDERS]),
    2: StructType([*_PLAIN, *_MILLISECONDS, *_FOLDERS]),
    3: StructType([*_PLAIN, *_MILLISECONDS, *_FOLDERS]),
    4: StructType([*_PLAIN, *_MILLISECONDS, StructField("count", IntegerType()), *_FOLDERS]),
}


def _from_1(frame: DataFrame) -> DataFrame:
    return (
        frame.withColumn("queue_wait_ms", F.expr(schema.milliseconds("queue_wait")))
        .withColumn("latency_ms", F.expr(schema.milliseconds("latency")))
        .drop("queue_wait", "latency")
    )


def _from_3(frame: DataFrame) -> DataFrame:
    return frame.withColumn("count", F.lit(1))


#: The function that turns a version into the next one.
UPGRADES: Final[dict[int, Callable[[DataFrame], DataFrame]]] = {1: _from_1, 2: blurred, 3: _from_3}


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file of a snapshot."""

    #: Path below the lake's folder.
    path: str
    day: date
    kind: str
    rows: int
    bytes: int
    #: Version of the schema.
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a lake of the old form."""

    number: int
    #: The Postgres cluster that the events come from.
    source: str
    #: Every event of a transaction below is in the lake.
    watermark: int
    #: When the last event of the transaction below happened, seconds since the epoch.
    last_event: float | None = None
    files: tuple[OldFile, ...]


def run(spark: SparkSession, settings: Settings, old: Path, progress: Callable[[int, int], None]) -> int:
    """Take over a lake of the old form, or go on with that; return the number of events.

    Args:
        spark: with Iceberg's jars.
        settings: of everything.
        old: folder, which every Spark process can read under this path, and no export writes to.
        progress: called with the events taken over so far, and their total.

    Raises:
        PipelineError: there is no old lake, the new one has other events, or a file is damaged.
    """
    old = old.resolve()
    snapshot = latest(old)
    lake = Lake.of(spark, settings)
    with alone(settings), writing(old):
        lake.prepare()
        state = lake.state()
        done = _done(state, snapshot)
        files = [file for file in snapshot.files if done is None or file.day > done]
        total = sum(file.rows for file in files)
        taken = 0
        progress(0, total)
        for chunk, is_last in _chunks(files, settings.pipeline.step_rows):
            remember = {MIGRATED: json.dumps({"snapshot": snapshot.number, "day": str(chunk[-1].day)})}
            if is_last:
                remember[MARK] = _mark(snapshot).text
            rows, state = _take_over(lake, old, chunk, state, remember)
            taken += rows
            progress(taken, total)
    return taken


def latest(folder: Path) -> Snapshot:
    """Return the last snapshot of a lake of the old form.

    Raises:
        PipelineError: there is no snapshot, or it cannot be read.
    """
    names = sorted((folder / "log").glob("[0-9]*.json"))
    if not names:
        raise PipelineError(f"{folder} is no lake of the old form: there is no log in it")
    try:
        content = json.loads(names[-1].read_text())
        files = sorted((_file(each) for each in content.pop("files")), key=lambda file: file.day)
        snapshot = Snapshot(**content, files=tuple(files))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise PipelineError(f"{names[-1]} cannot be read ({type(error).__name__})") from error
    if not files:
        raise PipelineError(f"{folder} has no events: there is nothing to take over")
    return snapshot


def _file(values: dict[str, Any]) -> OldFile:
    return OldFile(**values | {"day": date.fromisoformat(values["day"])})


def _mark(snapshot: Snapshot) -> LakeMark:
    # The old log has no timeline; the last event shows whether the database is the same.
    return LakeMark(source=snapshot.source, timeline=0, transaction=snapshot.watermark, last_event=snapshot.last_event)


def _done(state: LakeState, snapshot: Snapshot) -> date | None:
    """Return the last day that was taken over; None if nothing was."""
    if state.mark is not None:
        raise PipelineError("the lake has events of its own, or all of the old one already: nothing was taken over")
    if MIGRATED not in state.properties:
        return None
    before = json.loads(state.properties[MIGRATED])
    if before["snapshot"] != snapshot.number:
        raise PipelineError("the old lake is another one than that whose first days were taken over, or has changed")
    return date.fromisoformat(before["day"])


def _chunks(files: list[OldFile], most: int) -> Iterator[tuple[list[OldFile], bool]]:
    """Yield the files of whole days, enough to have `most` rows together, and whether they are the last."""
    chunk: list[OldFile] = []
    for index, file in enumerate(files):
        chunk.append(file)
        is_last = index + 1 == len(files)
        if is_last or (file.day != files[index + 1].day and sum(each.rows for each in chunk) >= most):
            yield chunk, is_last
            chunk = []


def _take_over(
    lake: Lake, old: Path, files: list[OldFile], state: LakeState, remember: dict[str, str]
) -> tuple[int, LakeState]:
    rows = sum(file.rows for file in files)
    try:
        return lake.append(_read(lake.spark, old, files), state, remember, rows)
    except SPARK_ERRORS as error:
        days = f"{files[0].day} to {files[-1].day}"
        raise PipelineError(f"a file of {days} cannot be read: {str(error).splitlines()[0]}") from error


def _read(spark: SparkSession, folder: Path, files: Iterable[OldFile]) -> DataFrame:
    by_version: dict[int, list[str]] = {}
    for file in files:
        if file.version not in COLUMNS:
            raise PipelineError(f"{file.path} has schema version {file.version}: update wakupush")
        by_version.setdefault(file.version, []).append(str(folder / file.path))
    reader = spark.read.option("basePath", str(folder / "events"))
    return reduce(
        DataFrame.unionByName,
        (
            _upgrade(reader.schema(COLUMNS[version]).parquet(*paths), version)
            for version, paths in sorted(by_version.items())
        ),
    )


def _upgrade(frame: DataFrame, version: int) -> DataFrame:
    for step in range(version, VERSION):
        frame = UPGRADES[step](frame)
    return frame.select(*schema.EVENTS.fieldNames())
