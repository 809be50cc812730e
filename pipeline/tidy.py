"""``wakupush pipeline tidy``: the maintenance of the lake's tables, by Iceberg's own procedures.

Files of a day that is over are merged, and days past the retention are deleted. Then everything
goes that no reader of the last day can need: snapshots that were replaced before, and files that are in no snapshot.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final

from pyspark.sql import Row, SparkSession

from wakupush.pipeline.lake.catalog import NAMESPACE, alone
from wakupush.pipeline.lake.lake import BRANCH, EVENTS, Lake
from wakupush.pipeline.lake.pseudonyms import keep_from, today
from wakupush.pipeline.report import state
from wakupush.pipeline.report.report import SCHEMA
from wakupush.pipeline.session import CATALOG
from wakupush.runtime.settings import Settings

#: Seconds for which a replaced snapshot is kept for jobs that still read it.
GRACE_SECONDS: Final = 86_400
#: Seconds after which a file in no snapshot cannot belong to a run any more: many times the duration of a step.
ORPHAN_SECONDS: Final = 3 * 86_400
#: Condition in SQL for the files that Iceberg may merge or split: a partition's only file is left alone unless it is
#: larger than Iceberg writes them, or of the former partitions by day and kind.
_MERGED: Final = (
    f"partition IN (SELECT partition FROM {EVENTS}.partitions"
    f" WHERE file_count > 1 OR total_data_file_size_in_bytes > {512 * 1024 * 1024})"
    f" OR partition.day IN (SELECT partition.day FROM {EVENTS}.partitions GROUP BY 1 HAVING count(*) > 1)"
)
#: Bytes of files that are merged at the same time: this bounds the memory.
GROUP_BYTES: Final = 256 * 1024 * 1024
#: More files than this of a day that is not over are merged.
MOST_FILES: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class TidyTotals:
    """The counts of a run."""

    #: Files that were merged.
    compacted: int
    #: Files that were deleted.
    deleted: int
    #: Events that were past the retention.
    forgotten: int
    #: Events of damaged files that were taken out.
    without: int


def run(spark: SparkSession, settings: Settings, without: list[str]) -> TidyTotals:
    """Tidy the lake up.

    Args:
        spark: with Iceberg's jars.
        without: damaged files to take out of the lake.

    Raises:
        PipelineError: another run writes to the lake, or files are damaged.
    """
    lake = Lake.of(spark, settings)
    with alone(settings):
        if not lake.exists():
            return TidyTotals(compacted=0, deleted=0, forgotten=0, without=0)
        # A run that writes to a branch holds the lock, which is ours now: these branches were left behind.
        for (name,) in lake.spark.sql(f"SELECT name FROM {EVENTS}.refs WHERE name LIKE '{BRANCH}%'").collect():
            lake.spark.sql(f"ALTER TABLE {EVENTS} DROP BRANCH IF EXISTS `{name}`")
        taken_out = _remove(lake, without) if without else 0
        forgotten = _forget(lake, keep_from(settings.retention.lake))
        with lake.naming_damage(_MERGED):
            compacted_files = _compact(lake, today())
        deleted_files = sum(_expire(lake, table) + _sweep(lake, table) for table in _tables(lake))
    return TidyTotals(compacted=compacted_files, deleted=deleted_files, forgotten=forgotten, without=taken_out)


def _remove(lake: Lake, paths: list[str]) -> int:
    before = lake.sizes()
    rows = lake.remove(paths)
    after = lake.sizes()
    state.discard(lake, [day for day, size in before.items() if after.get(day) != size])
    return rows


def _forget(lake: Lake, before: date) -> int:
    state.forget(lake, before)
    row = lake.spark.sql(
        f"SELECT sum(record_count) AS rows FROM {EVENTS}.partitions WHERE partition.day < DATE '{before}'"
    ).first()
    rows = (row and row["rows"]) or 0
    if rows:
        lake.spark.sql(f"DELETE FROM {EVENTS} WHERE day < DATE '{before}'")
    return int(rows)


def _compact(lake: Lake, now: date) -> int:
    """Merge the files of each day, in the table's order; return the number of merged files."""
    over = _call(lake, "rewrite_data_files", EVENTS, _rewritten(f"day < DATE '{now}'", 2))
    present = _call(lake, "rewrite_data_files", EVENTS, _rewritten(f"day >= DATE '{now}'", MOST_FILES + 1))
    return int(over["rewritten_data_files_count"] + present["rewritten_data_files_count"])


def _rewritten(where: str, least: int) -> str:
    options = {
        "min-input-files": least,
        "max-file-group-size-bytes": GROUP_BYTES,
        "max-concurrent-file-group-rewrites": 1,
    }
    pairs = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    return f"""strategy => 'sort', where => "{where}", options => map({pairs})"""


def _expire(lake: Lake, table: str) -> int:
    """Drop the snapshots that were replaced before the grace period; return the number of files deleted with them.

    The snapshot that was the table's state when the grace period began may still be read, however old it is.
    """
    there = lake.table(table)
    begin = 1000 * (time.time() - GRACE_SECONDS)
    before = [entry.snapshotId() for entry in there.history() if entry.timestampMillis() <= begin]
    if not before:
        return 0
    since = datetime.fromtimestamp(there.snapshot(before[-1]).timestampMillis() / 1000, UTC)
    counts = _call(lake, "expire_snapshots", table, f"older_than => {_timestamp(since)}, retain_last => 1")
    return sum(counts.asDict().values())


def _sweep(lake: Lake, table: str) -> int:
    """Delete the files that are in no snapshot and that no run can still commit; return their number."""
    before = datetime.fromtimestamp(time.time() - ORPHAN_SECONDS, UTC)
    arguments = f"table => '{table}', older_than => {_timestamp(before)}, prefix_listing => true"
    return int(lake.spark.sql(f"CALL {CATALOG}.system.remove_orphan_files({arguments})").count())


def _tables(lake: Lake) -> Iterator[str]:
    for namespace in (NAMESPACE, f"{CATALOG}.{SCHEMA}"):
        if lake.spark.catalog.databaseExists(namespace):
            for row in lake.spark.sql(f"SHOW TABLES IN {namespace}").collect():
                yield f"{namespace}.{row['tableName']}"


def _call(lake: Lake, procedure: str, table: str, arguments: str) -> Row:
    [row] = lake.spark.sql(f"CALL {CATALOG}.system.{procedure}(table => '{table}', {arguments})").collect()
    return row


def _timestamp(time: datetime) -> str:
    return f"TIMESTAMP '{time:%Y-%m-%d %H:%M:%S.%f}'"
