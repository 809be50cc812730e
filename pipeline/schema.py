"""The schema of the lake: its versions, and how what an old one wrote is read today.

A file's version is in the lake's log. Under one version no column is renamed or given another meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

from pipeline.pseudonyms import blurred

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

#: What is written now.
VERSION: Final = 4
#: The schema version of the events in Postgres that `pipeline.export` understands.
EVENT_VERSION: Final = 3

#: Columns that are folders, outermost first.
PARTITIONS: Final = StructType(
    [StructField("batch", StringType()), StructField("day", DateType()), StructField("kind", StringType())]
)

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

#: The columns of each version. Version 1 had seconds as floats, whose sums depend on the order of the rows. Up to
#: version 2 every event had its second, its latency and its message; up to version 3 each stood for one message or
#: notification.
COLUMNS: Final[dict[int, StructType]] = {
    1: StructType([*_PLAIN, StructField("queue_wait", FloatType()), StructField("latency", FloatType())]),
    2: StructType([*_PLAIN, StructField("queue_wait_ms", LongType()), StructField("latency_ms", LongType())]),
}
COLUMNS[3] = COLUMNS[2]
COLUMNS[4] = StructType([*COLUMNS[3].fields, StructField("count", IntegerType())])

#: What each column of the present version means, for docs/pipeline.md.
MEANINGS: Final = {
    "batch": "Which step of which run wrote the row; a folder.",
    "day": "The day of `time`, UTC; a folder.",
    "kind": "The event's kind; a folder.",
    "time": "When it happened: received and foreign to the second, all else to the hour.",
    "queue": "The queue that the message came through.",
    "platform": "ios or android.",
    "failure": "The label of a failure.",
    "reason": "Why a notification was filtered.",
    "attempt": "Which attempt of a delivery, from 1.",
    "batch_size": "Messages in the task; only where no user is named.",
    "worker": "Which worker process; only where no user is named.",
    "trace": "Pseudonym of the message, 16 bytes, of this period; only where no user is named, and of no foreign one.",
    "user": "Pseudonym of the user, 16 bytes, of this period.",
    "installation": "Pseudonym of the installation, 16 bytes, of this period.",
    "queue_wait_ms": "Milliseconds between ingest seeing the message and a worker taking it.",
    "latency_ms": "Milliseconds between ingest seeing the message and this event: answered, delivered and foreign.",
    "count": "How many messages, or notifications of a message, it stands for; of several, waits are the longest.",
}


def milliseconds(seconds: str) -> str:
    """Return the SQL that makes whole milliseconds of a column of seconds."""
    return f"CAST(round(CAST({seconds} AS DOUBLE) * 1000) AS BIGINT)"


def _from_1(frame: DataFrame) -> DataFrame:
    return (
        frame.withColumn("queue_wait_ms", F.expr(milliseconds("queue_wait")))
        .withColumn("latency_ms", F.expr(milliseconds("latency")))
        .drop("queue_wait", "latency")
    )


def _from_3(frame: DataFrame) -> DataFrame:
    return frame.withColumn("count", F.lit(1))


#: What turns a version into the next one.
UPGRADES: Final[dict[int, Callable[[DataFrame], DataFrame]]] = {1: _from_1, 2: blurred, 3: _from_3}


def written(version: int) -> StructType:
    """Return the schema to read files of a version with, folders included."""
    return StructType([*COLUMNS[version].fields, *PARTITIONS.fields])


def upgrade(frame: DataFrame, version: int) -> DataFrame:
    """Return what a version wrote, in the columns of the present one."""
    for step in range(version, VERSION):
        frame = UPGRADES[step](frame)
    return frame.select(*written(VERSION).fieldNames())
