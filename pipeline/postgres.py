"""Postgres for the pipeline: connections past any pooler, and reading events from Spark.

Spark gets a JDBC URL from libpq's connection string, and one reader for each slice.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Final
from urllib.parse import quote, urlencode

import psycopg
from psycopg import Connection
from pyspark.sql import DataFrame, SparkSession

from wakupush.pipeline.errors import PipelineError
from wakupush.runtime.connections.postgres import KEEPALIVES, check_dsn, refuse_pooler
from wakupush.runtime.settings import PostgresSettings, SettingsError

#: Rows of each slice that the driver holds in memory.
FETCH_ROWS: Final = 10_000
_TLS: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_COLUMNS: Final = (
    "time, kind, queue, queue_wait, shard, age, latency, app, platform, push_type, failure, reason, attempt,"
    " batch_size, worker, trace_id, key_pseudonym, installation_pseudonym, count"
)


@contextmanager
def connect(settings: PostgresSettings) -> Iterator[Connection]:
    """Open a connection past any pooler, in autocommit mode, and raise failures as PipelineError.

    Raises:
        PipelineError: a pooler answers; there is no database, no schema in it, or no permission.
    """
    try:
        timeout = max(2, int(settings.timeout))
        dsn = check_dsn(settings, direct=True)
        with psycopg.connect(dsn, autocommit=True, connect_timeout=timeout, **KEEPALIVES) as connection:
            refuse_pooler(connection)
            yield connection
    except SettingsError as error:
        raise PipelineError(str(error)) from None
    except psycopg.errors.UndefinedTable:
        raise PipelineError("the database has no schema yet, or an old one: run `wakupush migrate`") from None
    except psycopg.errors.InsufficientPrivilege as error:
        reason = error.diag.message_primary
        raise PipelineError(f"the database refuses: {reason}; see docs/operating/pipeline.md") from None
    except psycopg.OperationalError as error:
        raise PipelineError(
            f"the database at WAKUPUSH_POSTGRES__DSN does not answer ({type(error).__name__}); see `wakupush doctor`"
        ) from None


def jdbc_options(connection: Connection, **parameters: str) -> dict[str, str]:
    """Return the options for Spark's JDBC source to reach the database of a connection.

    Args:
        parameters: additional ones of the driver.

    Raises:
        PipelineError: it is reached through a Unix socket, which the driver does not know.
    """
    info = connection.info
    if not info.hostaddr and info.host.startswith("/"):
        raise PipelineError("WAKUPUSH_POSTGRES__DSN names a Unix socket; Spark needs a host and a port")
    values = info.get_parameters()
    parameters |= {name: values[name] for name in _TLS if name in values}
    parameters |= {"ApplicationName": "wakupush pipeline", "reWriteBatchedInserts": "true"}
    host = f"[{info.host}]" if ":" in info.host else info.host
    url = f"jdbc:postgresql://{host}:{info.port}/{quote(info.dbname, safe='')}?{urlencode(parameters)}"
    options = {"url": url, "user": info.user, "driver": "org.postgresql.Driver", "fetchsize": str(FETCH_ROWS)}
    return options | ({"password": info.password} if info.password else {})


def read_slices(spark: SparkSession, options: dict[str, str], slices: Sequence[tuple[int, int]]) -> DataFrame:
    """Return the events of ranges of transactions; each range is a partition that reads over its own connection."""
    readers = [
        spark.read.format("jdbc")
        .options(**options)
        .option(
            "query",
            f"SELECT {_COLUMNS} FROM delivery_history"  # noqa: S608 - numbers of our own
            f" WHERE transaction_id >= '{start:d}'::xid8 AND transaction_id < '{end:d}'::xid8",
        )
        .load()
        for start, end in slices
    ]
    return reduce(DataFrame.unionByName, readers)
