"""The event lake: Iceberg's table `wakupush.events`, and the fence around its appends.

Events are appended to a branch without readers, and read back. Then one transaction moves `main` to the branch, sets
how far the export got as a property of the table, and removes the branch. The catalog takes it only if nothing
was committed since the run looked: a run that slept, or was thought dead, commits nothing. A property of the table
exists as long as the table, whatever happens to snapshots.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.lake import catalog, schema
from wakupush.pipeline.session import SPARK_ERRORS
from wakupush.runtime.settings import Settings

EVENTS: Final = f"{catalog.NAMESPACE}.events"
#: Property of the table: how far the export got.
MARK: Final = "wakupush.mark"
#: A day is a file, often of less than a megabyte. Iceberg would count each as 4 MB, and make hundreds of tasks.
_FEW_TASKS: Final = {"file-open-cost": str(256 * 1024), "split-size": str(16 * 1024 * 1024)}
#: The size of the parts of a file, which is in the order of kinds: a reader of one kind skips the parts of others.
_ROW_GROUPS: Final = "write.parquet.row-group-size-bytes"
_ROW_GROUP_BYTES: Final = 1024 * 1024
#: Prefix of the names of these branches.
BRANCH: Final = "export_"


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeMark:
    """How far the export got."""

    #: The Postgres cluster that the events come from.
    source: str
    #: Its timeline, which a restore or a promotion changes.
    timeline: int
    #: Every event of a transaction below this one is in the lake.
    transaction: int
    #: When the last event of the transaction below happened, seconds since the epoch; it identifies that transaction.
    last_event: float | None

    @property
    def text(self) -> str:
        """The mark as a property of the table."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class LakeState:
    """The lake at one time."""

    #: None before the first commit.
    snapshot: int | None
    #: How far the export got; None before the first one.
    mark: LakeMark | None


@dataclass(frozen=True, slots=True)
class File:
    """A file of events."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class Lake:
    """The lake, in a session of Spark's that knows its catalog."""

    spark: SparkSession

    @classmethod
    def of(cls, spark: SparkSession, settings: Settings) -> Lake:
        """Return the lake of the settings.

        Raises:
            PipelineError: its catalog cannot be reached.
        """
        return cls(catalog.session(spark, settings))

    def prepare(self) -> None:
        """Create the table of events."""
        columns = {name: f"{kind} COMMENT '{schema.MEANINGS[name]}'" for name, kind in schema.EVENTS.items()}
        self.create(EVENTS, columns, "day", "Delivery events, with pseudonyms of a period")
        if self.table().sortOrder().isUnsorted():
            # In the order of users: the rows' own order would reveal their times.
            self.spark.sql(f"ALTER TABLE {EVENTS} WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY day, kind, user")
        if self.table().properties().get(_ROW_GROUPS) is None:
            self.spark.sql(f"ALTER TABLE {EVENTS} SET TBLPROPERTIES ('{_ROW_GROUPS}' = '{_ROW_GROUP_BYTES}')")
        if any(field.name() == "kind" for field in self.table().spec().fields()):
            # Of a version that had a partition for each day and kind; `tidy` writes its files anew.
            self.spark.sql(f"ALTER TABLE {EVENTS} DROP PARTITION FIELD kind")

    def create(self, table: str, columns: Mapping[str, str], partitions: str, comment: str) -> None:
        """Create a table unless it exists; add missing columns to one that does.

        Args:
            columns: with their types in Spark's SQL.
            partitions: the columns that the table is partitioned by, in SQL.
            comment: what the table is, without apostrophes.
        """
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {table} ({_definitions(columns)}) USING iceberg PARTITIONED BY ({partitions})"
            f" COMMENT '{comment}' TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true')"
        )
        there = self.spark.table(table).columns
        if missing := {name: kind for name, kind in columns.items() if name not in there}:
            self.spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({_definitions(missing)})")

    def exists(self) -> bool:
        """Return whether the table exists."""
        return bool(self.spark.catalog.tableExists(EVENTS))

    @property
    def java(self) -> Any:
        """The packages of Java."""
        return self.spark._jvm  # noqa: SLF001 - there is no other way to Java

    def table(self, name: str = EVENTS) -> Any:
        """Return a table as an object of Iceberg's Java API."""
        return self.java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, name)  # noqa: SLF001

    def state(self) -> LakeState:
        """Return the state of the lake; its table has to exist."""
        return _state(self.table())

    def sizes(self) -> dict[date, int]:
        """Return the number of events of each day that has some, in order; empty if there is no table."""
        if not self.exists():
            return {}
        query = (
            f"SELECT partition.day AS day, sum(record_count) AS events FROM {EVENTS}.partitions GROUP BY 1 ORDER BY 1"
        )
        return {row["day"]: row["events"] for row in self.spark.sql(query).collect()}

    def events(self) -> DataFrame:
        """Return the events as they are now; without later commits."""
        reader = self.spark.read.options(**_FEW_TASKS).option("versionAsOf", str(self.state().snapshot))
        return reader.table(EVENTS)

    def frame(self, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> DataFrame:
        """Return rows as a frame.

        Args:
            columns: with their types in Spark's SQL.
        """
        table = pa.table({name: [row[name] for row in rows] for name in columns})
        return self.spark.createDataFrame(table, _definitions(columns))

    def replace(self, table: str, rows: DataFrame, condition: Column) -> None:
        """Replace the rows of a table for which a condition on its partitions holds, in one commit."""
        writer = rows.coalesce(1).writeTo(table)
        writer.options(**{"distribution-mode": "none", "fanout-enabled": "true"}).overwrite(condition)

    def append(
        self, events: DataFrame, state: LakeState, mark: LakeMark, rows: int | None = None
    ) -> tuple[int, LakeState]:
        """Append events and store how far the export got with them, in one commit.

        Args:
            events: with the columns of the table.
            state: of the lake when the run looked; it must still be the same.
            mark: how far the export got.
            rows: the expected number of events, if it is known.

        Returns:
            How many events were read back, and the state of the lake with them. A run goes on from this state: one that
            is read again may include what another run has committed since.

        Raises:
            PipelineError: another run has committed since, or the written events are not as they have to be. Then
                nothing was appended; `tidy` removes the branch.
        """
        branch = f"{BRANCH}{uuid.uuid4().hex}"
        begin = "" if state.snapshot is None else f"AS OF VERSION {state.snapshot}"
        with _refusals("was not begun"):
            self.spark.sql(f"ALTER TABLE {EVENTS} CREATE BRANCH {branch} {begin}")
        events.select(*schema.EVENTS).writeTo(f"{EVENTS}.branch_{branch}").append()
        row_count = self._read_back(branch)
        if rows is not None and row_count != rows:
            raise PipelineError(
                f"Postgres has {rows} events of this step and {row_count} were written: retention may have taken some"
                " meanwhile; start again"
            )
        with _refusals("was not committed"):
            return row_count, self._publish(branch, state, mark)

    def _read_back(self, branch: str) -> int:
        """Return how many events were appended to a branch; refuse files that reveal the order in which users came."""
        head = self.table().snapshot(branch)
        between = {"start-snapshot-id": str(head.parentId()), "end-snapshot-id": str(head.snapshotId())}
        before = F.lag("user").over(Window.partitionBy("_file", "kind").orderBy("_pos"))
        rows = self.spark.read.options(**between, **_FEW_TASKS).table(EVENTS).select("user", before.alias("before"))
        row = rows.agg(
            F.count("*").alias("rows"), F.count_if(F.col("before") > F.col("user")).alias("unordered")
        ).first()
        assert row is not None  # noqa: S101 - an aggregate has one row
        if row["unordered"]:
            raise PipelineError("files are not in the order of users, which would reveal times: nothing was taken")
        return int(row["rows"])

    def _publish(self, branch: str, state: LakeState, mark: LakeMark) -> LakeState:
        transaction = self.table().newTransaction()
        if _state(transaction.table()) != state:
            raise PipelineError("another run has committed to the lake meanwhile: start this one again")
        transaction.manageSnapshots().fastForwardBranch("main", branch).commit()
        transaction.updateProperties().set(MARK, mark.text).commit()
        transaction.manageSnapshots().removeBranch(branch).commit()
        new_state = _state(transaction.table())
        # This fails if anything was committed since the transaction began.
        transaction.commitTransaction()
        return new_state

    @contextmanager
    def naming_damage(self, scanned: str) -> Iterator[None]:
        """Name the damaged files if the block fails because of them.

        Args:
            scanned: which files the block reads, a condition in SQL on Iceberg's table of the files. Only these are
                looked at: all files of a lake are too many to be read after every error of Spark.

        Raises:
            PipelineError: there are damaged files; the text says how to go on.
        """
        try:
            yield
        except SPARK_ERRORS:
            files = self.damaged_files(scanned)
            if not files:
                raise
            names = "; ".join(f"{file.path} ({file.rows} events)" for file in files)
            raise PipelineError(
                f"damaged: {names}. Restore them from a backup of the warehouse, or go on without their events:"
                " `wakupush pipeline tidy --without FILE`, once for each"
            ) from None

    def files(self, condition: str = "true") -> list[File]:
        """Return the files of events for which a condition in SQL holds."""
        query = f"SELECT file_path, record_count FROM {EVENTS}.files WHERE {condition} ORDER BY 1"
        rows = self.spark.sql(query).collect()
        return [File(row["file_path"], row["record_count"]) for row in rows]

    def damaged_files(self, condition: str) -> list[File]:
        """Return those of some files that are missing or cannot be read; each is read whole, one after the other."""
        store = self.table().io()
        return [file for file in self.files(condition) if not _is_whole(store, file.path)]

    def remove(self, paths: list[str]) -> int:
        """Take files out of the lake, with their events; return how many events that were.

        Raises:
            PipelineError: one is not a file of the lake; then none is taken out.
        """
        table = self.table()
        with closing(table.newScan().planFiles()) as tasks:
            files_by_path = {file.location(): file for task in items(tasks) for file in [task.file()]}
        if unknown := [path for path in paths if path not in files_by_path]:
            raise PipelineError(f"{unknown[0]} is no file of the lake")
        deletion = table.newDelete()
        for path in paths:
            # With a path, py4j would call the method that deletes the file itself.
            deletion.deleteFile(files_by_path[path])
        deletion.commit()
        return sum(int(files_by_path[path].recordCount()) for path in paths)


def of_days(first: date, last: date) -> str:
    """Return the condition in SQL for the files of some days, both ends included."""
    return f"partition.day BETWEEN DATE '{first}' AND DATE '{last}'"


def days_between(first: date, last: date) -> list[date]:
    """Return the days from the first to the last, both included."""
    return [first + timedelta(days=offset) for offset in range((last - first).days + 1)]


def _definitions(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def _state(table: Any) -> LakeState:
    current = table.currentSnapshot()
    mark = table.properties().get(MARK)
    return LakeState(
        snapshot=current.snapshotId() if current is not None else None,
        mark=LakeMark(**json.loads(mark)) if mark else None,
    )


def items(iterable: Any) -> Iterator[Any]:
    """Yield the items of an iterable of Java."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    """Raise PipelineError with the outcome of a step that Iceberg refuses."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        java = getattr(error, "java_exception", None)
        name = java.getClass().getSimpleName() if java is not None else type(error).__name__
        if name == "CommitStateUnknownException":
            what = "may be committed or not, which the next run will see"
        raise PipelineError(
            f"the step {what} ({name}): another run may have been faster, or the catalog does not answer; start again"
        ) from error


def _is_whole(store: Any, path: str) -> bool:
    try:
        stream = store.newInputFile(path).newStream()
        try:
            content = stream.readAllBytes()
        finally:
            stream.close()
        file = parquet.ParquetFile(io.BytesIO(content), page_checksum_verification=True)
        for _ in file.iter_batches():
            pass
    except (Py4JJavaError, pa.ArrowException, OSError):
        return False
    return True
