"""``wakupush pipeline report``: writes the tables of some days beside the lake, in Postgres, and as a page."""

import csv
import io
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from operator import itemgetter
from typing import Final

import psycopg
from psycopg import sql
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.lake.lake import Lake, of_days
from wakupush.pipeline.lake.pseudonyms import keep_from, whole_periods
from wakupush.pipeline.report import files, state
from wakupush.pipeline.report.page import WrittenReport, render
from wakupush.pipeline.report.tables import TABLES, Row, Table, anonymous
from wakupush.pipeline.session import CATALOG
from wakupush.runtime.connections.postgres import KEEPALIVES
from wakupush.runtime.settings import Settings

#: The schema of the tables in Postgres, and their namespace in the catalog.
SCHEMA: Final = "wakupush_reports"
_SPARK_TYPES: Final = {"text": "string", "integer": "int", "double precision": "double"}
#: Tables that are written at the same time: most of a write is planning and commits.
_WRITERS: Final = 3
#: Beside the page: each table as CSV.
TABLES_FOLDER: Final = "tables"
PAGE: Final = "report.html"


def columns(table: Table) -> dict[str, str]:
    """Return the columns of a table with their types in Postgres."""
    return {**table.keys, "people": "bigint", **table.values, "suppressed": "boolean"}


def run(
    spark: SparkSession,
    settings: Settings,
    first: date,
    last: date,
    progress: Callable[[int, int], None],
    *,
    rebuild: bool = False,
) -> WrittenReport:
    """Make the report of some days and write it to all places in the settings; delete rows that are past the retention.

    The tables of the catalog, beside the lake, are for everybody who reads reports: the rows of an internal one are not
    among them.

    An earlier report of the same days is replaced, so late events are in the new one.

    Args:
        progress: called with the days made so far, and the number of those to make.
        rebuild: whether to make all days anew, and not only those whose events changed.

    Raises:
        PipelineError: the lake has nothing of these days, or the text says what to do.
    """
    place = files.place_of(settings.pipeline, first, last)
    lake = Lake.of(spark, settings)
    days = settings.pipeline.pseudonym_days
    with lake.naming_damage(of_days(*whole_periods(first, last, days))):
        all_rows = state.rows(lake, first, last, days, progress, rebuild=rebuild)
    rows = visible_rows(all_rows, settings.pipeline.smallest_cell)
    report = WrittenReport(
        first=first,
        last=last,
        rows=rows,
        page=f"{place}/{PAGE}",
        smallest_cell=settings.pipeline.smallest_cell,
    )
    kept_from = keep_from(settings.retention.lake)
    _write_tables(lake, report, kept_from)
    files.write(lake, place, _texts(report))
    if settings.pipeline.report_dsn is not None:
        _write_postgres(settings.pipeline.report_dsn.get_secret_value(), report, kept_from)
    files.forget(lake, settings.pipeline, kept_from)
    return report


def visible_rows(rows: Mapping[str, list[Row]], smallest_cell: int) -> dict[str, list[Row]]:
    """Return the rows of every table as they may be shown, in the order of their keys."""
    rows_of: dict[str, list[Row]] = {}
    for table in TABLES:
        of_table = anonymous(rows[table.name], table, smallest_cell, rows_of)
        rows_of[table.name] = sorted(of_table, key=itemgetter(*table.keys))
    return rows_of


def _write_tables(lake: Lake, report: WrittenReport, kept_from: date) -> None:
    """Replace the rows of the report's days in the catalog's tables, each in one commit; create the tables if missing.

    Rows before a day that are kept no longer go, too.
    """
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{SCHEMA}")
    with ThreadPoolExecutor(_WRITERS) as writers:
        for future in [writers.submit(_write_table, lake, table, report, kept_from) for table in TABLES]:
            future.result()


def _write_table(lake: Lake, table: Table, report: WrittenReport, kept_from: date) -> None:
    name = f"{CATALOG}.{SCHEMA}.{table.name}"
    types = {column: _SPARK_TYPES.get(kind, kind) for column, kind in columns(table).items()}
    lake.create(name, types, table.time, table.meaning.replace("'", r"\'"))
    time = F.col(table.time)
    rows, replaced = [], time < F.lit(kept_from)
    if not report.is_internal:
        rows = report.rows[table.name]
        replaced |= time.between(_begin(report, rows, table.time), report.last)
    lake.replace(name, lake.frame(rows, types), replaced)


def _begin(report: WrittenReport, rows: list[Row], time: str) -> date:
    """Return the first day of the rows that a report replaces: a period may begin before the report's days."""
    begins: list[date] = [report.first, *(row[time] for row in rows)]
    return min(begins)


def _texts(report: WrittenReport) -> dict[str, str]:
    """Return the page of a report, and each table as CSV, by the names of their files; the page comes last."""
    tables = {f"{TABLES_FOLDER}/{table.name}.csv": _csv(table, report.rows[table.name]) for table in TABLES}
    return tables | {PAGE: render(report)}


def _csv(table: Table, rows: list[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns(table)), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _write_postgres(dsn: str, report: WrittenReport, kept_from: date) -> None:
    """Replace the rows of the report's days in every table, in one transaction; create the tables if missing.

    Rows before a day that are kept no longer go, too.
    """
    try:
        with psycopg.connect(dsn, connect_timeout=10, **KEEPALIVES) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
            for table in TABLES:
                _replace(connection, table, report, kept_from)
    except psycopg.errors.InsufficientPrivilege as error:
        raise PipelineError(f"the database of reports refuses: {error.diag.message_primary}") from None
    except psycopg.Error as error:
        raise PipelineError(
            f"the database at WAKUPUSH_PIPELINE__REPORT_DSN cannot be used ({type(error).__name__})"
        ) from None


def _add_missing(connection: psycopg.Connection, table: Table) -> None:
    """Add columns to a table of an earlier version; in its rows new keys are empty, or 0."""
    there = {
        name
        for (name,) in connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            [SCHEMA, table.name],
        )
    }
    missing = [column for column in columns(table) if column not in there] if there else []
    name = sql.Identifier(SCHEMA, table.name)
    for column in missing:
        kind = columns(table)[column]
        empty = (
            sql.SQL("NOT NULL DEFAULT {}").format("" if kind == "text" else 0) if column in table.keys else sql.SQL("")
        )
        connection.execute(
            sql.SQL("ALTER TABLE {} ADD COLUMN {} {} {}").format(name, sql.Identifier(column), sql.SQL(kind), empty)
        )
    if table.keys.keys() & set(missing):
        keys = sql.SQL(", ").join(map(sql.Identifier, table.keys))
        key = sql.Identifier(f"{table.name}_pkey")
        connection.execute(
            sql.SQL("ALTER TABLE {0} DROP CONSTRAINT {1}, ADD PRIMARY KEY ({2})").format(name, key, keys)
        )


def _replace(connection: psycopg.Connection, table: Table, report: WrittenReport, kept_from: date) -> None:
    types = columns(table)
    name = sql.Identifier(SCHEMA, table.name)
    _add_missing(connection, table)
    definitions = (sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(types[column])) for column in types)
    connection.execute(
        sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({}))").format(
            name, sql.SQL(", ").join(definitions), sql.SQL(", ").join(map(sql.Identifier, table.keys))
        )
    )
    rows = report.rows[table.name]
    time = table.time
    connection.execute(
        sql.SQL("DELETE FROM {0} WHERE {1} BETWEEN %s AND %s OR {1} < %s").format(name, sql.Identifier(time)),
        [_begin(report, rows, time), report.last, kept_from],
    )
    names = sql.SQL(", ").join(map(sql.Identifier, types))
    with connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(name, names)) as copy:
        for row in rows:
            copy.write_row([row[column] for column in types])
