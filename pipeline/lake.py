"""The event lake: Parquet files in a folder, and a log that says which of them count.

``events/batch=…/day=…/kind=…/*.parquet`` are the files, ``log/NNNNNNNNNN.json`` the snapshots. A snapshot names all
files that count and the watermark of the export, so data and watermark are committed by one thing: the link that gives
the snapshot its name, which fails if the name is taken. A file that no snapshot names is not there, whoever left it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from pipeline import schema
from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

T = TypeVar("T")

#: How a job of Spark fails, depending on where.
SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
#: Seconds for which files that no longer count are left to those who still read them.
GRACE_SECONDS: Final = 86_400
#: Old snapshots that are kept.
SNAPSHOTS_KEPT: Final = 50
#: Files of a day and kind above which they become one before the day is over.
MOST_FILES: Final = 24
#: Events that compaction writes anew in one commit, unless a day and kind alone has more.
MOST_ROWS: Final = 2_000_000
_MAGIC: Final = b"PAR1"
_DAMAGED: Final = re.compile(r"events/batch=[^\s:?*]+?\.parquet")


@dataclass(frozen=True, slots=True)
class File:
    """A file that counts."""

    #: Below the lake's folder.
    path: str
    day: date
    kind: str
    rows: int
    bytes: int
    #: Of the schema.
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of the lake at one time."""

    number: int
    #: The Postgres cluster that the events come from; None before the first export.
    source: str | None
    #: Every event of a transaction below is in the lake.
    watermark: int
    #: When the last event of the transaction below happened, seconds since the epoch: the transaction is known by it.
    last_event: float | None = None
    files: tuple[File, ...]

    @property
    def rows(self) -> int:
        """How many events the lake has."""
        return sum(file.rows for file in self.files)

    def of(self, first: date, last: date) -> tuple[File, ...]:
        """Return the files of the days from the first to the last, both included."""
        return tuple(file for file in self.files if first <= file.day <= last)


EMPTY: Final = Snapshot(number=0, source=None, watermark=0, files=())


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake in a folder that every Spark process reaches under the same path."""

    folder: Path

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    @property
    def _events(self) -> Path:
        return self.folder / "events"

    def latest(self) -> Snapshot:
        """Return the state of the lake.

        Raises:
            PipelineError: its log cannot be read.
        """
        names = sorted(self._log.glob("[0-9]*.json")) if self._log.is_dir() else []
        if not names:
            return EMPTY
        try:
            content = json.loads(names[-1].read_text())
            files = tuple(File(**each | {"day": date.fromisoformat(each["day"])}) for each in content.pop("files"))
            return Snapshot(**content, files=files)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise PipelineError(f"{names[-1]} cannot be read ({type(error).__name__}): see docs/pipeline.md") from error

    def need(self, first: date, last: date) -> Snapshot:
        """Return the state of a lake that has events of some days.

        Raises:
            PipelineError: it has none, or its log cannot be read.
        """
        snapshot = self.latest()
        if not snapshot.of(first, last):
            raise PipelineError(
                f"the lake {self.folder} has no event of {first} to {last}: run `wakupush pipeline export`"
            )
        return snapshot

    def commit(self, snapshot: Snapshot) -> None:
        """Make a snapshot the state of the lake.

        Raises:
            PipelineError: somebody else has committed one of this number.
        """
        self._log.mkdir(parents=True, exist_ok=True)
        name = self._log / f"{snapshot.number:010}.json"
        partial = self._log / f".{name.name}-{uuid.uuid4().hex}"
        with partial.open("w") as stream:
            json.dump(asdict(snapshot), stream, default=date.isoformat)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            name.hardlink_to(partial)
        except FileExistsError:
            raise PipelineError(f"another run has committed to {self.folder} meanwhile; start this one again") from None
        finally:
            partial.unlink()
        _sync(self._log)

    def write(self, frame: DataFrame, version: int = schema.VERSION) -> tuple[File, ...]:
        """Write events into files that count once they are committed.

        Args:
            frame: with the columns of the version, `day` and `kind`.
            version: of the schema.

        Returns:
            The files, with the rows that were read back from them.
        """
        batch = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
        folder = self._events / f"batch={batch}"
        columns = [*schema.COLUMNS[version].fieldNames(), "day", "kind"]
        # In the order of users: that of the rows would be that of their times.
        sorted_ = frame.select(*columns).repartition("day", "kind").sortWithinPartitions("day", "kind", "user")
        sorted_.write.partitionBy("day", "kind").parquet(str(folder))
        paths = sorted(folder.glob("day=*/kind=*/*.parquet"))
        if not paths:
            shutil.rmtree(folder, ignore_errors=True)
            return ()
        stored = frame.sparkSession.read.schema(schema.COLUMNS[version]).parquet(*map(str, paths))
        counted = stored.groupBy(F.col("_metadata.file_path").alias("path")).count().collect()
        rows = {unquote(row["path"]).split(f"/batch={batch}/")[1]: row["count"] for row in counted}
        for path in {folder, *(path.parent for path in paths), *(path.parent.parent for path in paths)}:
            _sync(path)
        return tuple(self._file(path, rows.get(unquote(str(path.relative_to(folder))), 0), version) for path in paths)

    def _file(self, path: Path, rows: int, version: int) -> File:
        folders = dict(part.split("=", 1) for part in path.parent.relative_to(self._events).parts)
        _sync(path)
        return File(
            path=str(path.relative_to(self.folder)),
            day=date.fromisoformat(folders["day"]),
            kind=unquote(folders["kind"]),
            rows=rows,
            bytes=path.stat().st_size,
            version=version,
        )

    def read(self, spark: SparkSession, files: Iterable[File]) -> DataFrame:
        """Return the events of files, in the columns of the present version.

        Raises:
            PipelineError: a newer wakupush wrote one of them.
        """
        by_version: dict[int, list[str]] = {}
        for file in files:
            if file.version not in schema.COLUMNS:
                raise PipelineError(f"{file.path} has schema version {file.version}: update wakupush")
            by_version.setdefault(file.version, []).append(str(self.folder / file.path))
        reader = spark.read.option("basePath", str(self._events))
        frames = [
            schema.upgrade(reader.schema(schema.written(version)).parquet(*paths), version)
            for version, paths in sorted(by_version.items())
        ]
        return reduce(DataFrame.unionByName, frames or [spark.createDataFrame([], schema.written(schema.VERSION))])

    def over(
        self, spark: SparkSession, files: Iterable[File], work: Callable[[DataFrame], T]
    ) -> tuple[T, tuple[File, ...]]:
        """Do some work on the events of files; leave out files that are damaged, and do it again without them.

        Returns:
            What the work came to, and the files that were left out.
        """
        every = tuple(files)
        damaged = {file.path for file in every if not self._is_whole(file)}
        while True:
            try:
                result = work(self.read(spark, [file for file in every if file.path not in damaged]))
            except SPARK_ERRORS as error:
                found = {unquote(path) for path in _DAMAGED.findall(str(error))} & {file.path for file in every}
                if not found - damaged:
                    raise
                damaged |= found
            else:
                return result, tuple(file for file in every if file.path in damaged)

    def _is_whole(self, file: File) -> bool:
        """Say whether a file has its size, and begins and ends as Parquet does."""
        path = self.folder / file.path
        try:
            with path.open("rb") as stream:
                begins = stream.read(len(_MAGIC))
                stream.seek(-len(_MAGIC), os.SEEK_END)
                return begins == stream.read() == _MAGIC and stream.tell() == file.bytes
        except OSError:
            return False

    def compact(self, spark: SparkSession, today: date) -> tuple[Snapshot, tuple[File, ...]]:
        """Make one file of the several of a day and kind, once the day is over or they are many.

        Files of an old version of the schema are written anew, too.

        Days are taken together as long as they have few events, and committed. Damaged files, and those beside them,
        are left as they are.

        Returns:
            The new state, and the damaged files.
        """
        snapshot = self.latest()
        broken = [file for file in snapshot.files if not self._is_whole(file)]
        many = [
            files
            for files in _by_day_and_kind(snapshot.files)
            if (len(files) > _most(files[0].day, today) or any(file.version < schema.VERSION for file in files))
            and not set(files) & set(broken)
        ]
        for old in _taken_together(many, MOST_ROWS):
            left = old
            while left:
                new, damaged = self.over(spark, left, self.write)
                if not damaged:
                    snapshot = self._replace(snapshot, left, new)
                    break
                broken += damaged
                beside = {(file.day, file.kind) for file in damaged}
                left = [file for file in left if (file.day, file.kind) not in beside]
        return snapshot, tuple(broken)

    def _replace(self, snapshot: Snapshot, old: list[File], new: tuple[File, ...]) -> Snapshot:
        """Commit new files in the place of old ones with the same events."""
        if sum(file.rows for file in new) != sum(file.rows for file in old):
            days = ", ".join(sorted({str(file.day) for file in old}))
            raise PipelineError(f"the files of {days} do not have the rows that the log says: see docs/pipeline.md")
        gone = {file.path for file in old}
        kept = tuple(file for file in snapshot.files if file.path not in gone)
        snapshot = replace(snapshot, number=snapshot.number + 1, files=kept + new)
        self.commit(snapshot)
        return snapshot

    def forget(self, before: date) -> int:
        """Drop the days before a day; return how many events that were."""
        snapshot = self.latest()
        kept = tuple(file for file in snapshot.files if file.day >= before)
        if len(kept) == len(snapshot.files):
            return 0
        self.commit(replace(snapshot, number=snapshot.number + 1, files=kept))
        return snapshot.rows - sum(file.rows for file in kept)

    def sweep(self, grace: float = GRACE_SECONDS) -> int:
        """Delete files that no longer count, or never did, and are older than the grace (seconds); return how many."""
        live = {self.folder / file.path for file in self.latest().files}
        oldest = time.time() - grace
        swept = 0
        for path in self._events.rglob("*"):
            if path.is_file() and path not in live and path.stat().st_mtime < oldest:
                path.unlink()
                swept += path.suffix == ".parquet"
        for path in sorted(self._events.rglob("*"), reverse=True):
            if path.is_dir() and path.stat().st_mtime < oldest and not any(path.iterdir()):
                path.rmdir()
        for path in sorted(self._log.glob("[0-9]*.json"))[:-SNAPSHOTS_KEPT]:
            path.unlink()
        return swept


def _by_day_and_kind(files: Iterable[File]) -> list[list[File]]:
    """Return the files of each day and kind, in the order of days."""
    groups: dict[tuple[date, str], list[File]] = {}
    for file in files:
        groups.setdefault((file.day, file.kind), []).append(file)
    return [groups[key] for key in sorted(groups)]


def _most(day: date, today: date) -> int:
    """Return how many files of a kind a day may have."""
    return 1 if day < today else MOST_FILES


def _taken_together(groups: Iterable[list[File]], rows: int) -> list[list[File]]:
    """Join groups of files, in their order, up to some rows; a group is never cut."""
    taken: list[list[File]] = []
    room = 0
    for group in groups:
        needed = sum(file.rows for file in group)
        if not taken or needed > room:
            taken.append([])
            room = rows
        taken[-1] += group
        room -= needed
    return taken


def days_between(first: date, last: date) -> list[date]:
    """Return the days from the first to the last, both included."""
    return [first + timedelta(days=offset) for offset in range((last - first).days + 1)]


def _sync(path: Path) -> None:
    """Make sure that a file or folder survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
