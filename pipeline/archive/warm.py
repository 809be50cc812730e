"""``wakupush pipeline warm-topics``: derives the keys of query topics before the first query has to wait for them."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa
from psycopg import Connection
from pyspark.sql import SparkSession

from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.postgres import connect
from wakupush.pipeline.session import SPARK_ERRORS
from wakupush.postgres import query_topics
from wakupush.protocol.topics import query_topics as names_of
from wakupush.protocol.topics import symmetric_key
from wakupush.runtime.settings import Settings

#: Keys that each core derives between two commits, about six seconds of work.
KEYS_PER_CORE: Final = 500
#: Tasks of each core between two commits, so that no core waits long for a slower one.
TASKS_PER_CORE: Final = 4


def run(spark: SparkSession, settings: Settings, progress: Callable[[int, int], None]) -> int:
    """Derive the missing keys, and store them chunk by chunk; return how many were missing.

    The next run goes on where a killed one ended. The topics on which clients send queries come first.

    Args:
        progress: called with the keys derived so far, and their total.

    Raises:
        PipelineError: the text says what to do.
    """
    with connect(settings.postgres) as connection:
        total = query_topics.count_without_key(connection)
        count = stored_count = 0
        progress(count, total)
        for prefixed in (False, True):
            for users in _chunks(connection, KEYS_PER_CORE * spark.sparkContext.defaultParallelism, prefixed=prefixed):
                stored_count += query_topics.set_keys(connection, _derive(spark, users, prefixed), prefixed=prefixed)
                count += len(users)
                progress(count, max(count, total))
    return stored_count


def _chunks(connection: Connection, most: int, *, prefixed: bool) -> Iterator[list[bytes]]:
    after = b""
    while users := query_topics.without_key(connection, after, prefixed=prefixed, most=most):
        yield users
        after = users[-1]


def _derive(spark: SparkSession, users: list[bytes], prefixed: bool) -> dict[bytes, bytes]:
    tasks = TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    rows = spark.createDataFrame(pa.table({"user": users})).repartition(tasks)
    try:
        table = rows.mapInArrow(partial(_keys, prefixed), "user binary, symmetric_key binary").toArrow()
    except SPARK_ERRORS as error:
        raise PipelineError(f"Spark failed: {str(error).splitlines()[0]}") from error
    return dict(zip(table["user"].to_pylist(), table["symmetric_key"].to_pylist(), strict=True))


def _keys(prefixed: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keys = [symmetric_key(names_of(user)[prefixed]) for user in batch["user"].to_pylist()]
        yield pa.RecordBatch.from_arrays([batch["user"], pa.array(keys, pa.binary())], ["user", "symmetric_key"])
