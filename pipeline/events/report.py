"""``wakupush pipeline report``: writes the tables of some days beside the lake, in Postgres, and as a page."""

import shutil
import uuid
from collections.abc import Callable
from datetime import date
from operator import itemgetter
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.events.catalog import CATALOG
from wakupush.pipeline.events.lake import Lake, of_days
from wakupush.pipeline.events.page import WrittenReport, render
from wakupush.pipeline.events.pseudonyms import keep_from, whole_periods
from wakupush.pipeline.events.tables import TABLES, Row, Table, anonymous, of_shown_hours
from wakupush.runtime.connections.postgres import KEEPALIVES
from wakupush.runtime.settings import Settings

#: The schema of the tables in Postgres, and their namespace in the catalog.
SCHEMA: Final = "wakupush_reports"
_SPARK_TYPES: Final = {"text": "string", "integer": "int", "double precision": "double"}
#: Columns by which a report of some days finds the rows that it replaces.
_TIMES: Final = ("day", "period")
#: Pattern of the names of reports' folders, FIRST_LAST.
_FOLDERS: Final = "????-??-??_????-??-??"


def columns(table: Table) -> dict[str, str]:
    """Return the columns of a table with their types in Postgres."""
    return {**table.keys, "people": "bigint", **table.values, "suppressed": "boolean"}


def run(
    spark: SparkSession, settings: Settings, first: date, last: date, progress: Callable[[int, int], None]
) -> WrittenReport:
    """Make the report of some days and write it to all places in the settings; delete rows that are past the retention.

    An earlier report of the same days is replaced, so late events are in the new one.

    Args:
        progress: called with the tables made so far, and their total.

    Raises:
        PipelineError: the lake has nothing of these days, or the text says what to do.
    """
    lake = Lake.of(spark, settings)
    begin, end = whole_periods(first, last, settings.pipeline.pseudonym_days)
    with lake.naming_damage(of_days(begin, end)):
        events = lake.need(first, last).where(F.col("day").between(begin, end))
        rows = tables(events, first, last, settings, progress)
    report = WrittenReport(first=first, last=last, rows=rows, page=_folder(settings, first, last) / "report.html")
    kept_from = keep_from(settings.retention.lake)
    _write_tables(lake, report, kept_from)
    _write_page(report)
    _forget_pages(report.page.parent.parent, kept_from)
    if settings.pipeline.report_dsn is not None:
        _write_postgres(settings.pipeline.report_dsn.get_secret_value(), report, kept_from)
    return report


def tables(
    events: DataFrame, first: date, last: date, settings: Settings, progress: Callable[[int, int], None]
) -> dict[str, list[Row]]:
    """Return the rows of every table of some days, in the order of their keys.

    Rows of a period count all its days, even if the report is of only some of them: otherwise each later report would
    count fewer events of the period.

    Args:
        events: of all periods that the days are in.
        progress: called with the tables made so far, and their total.
    """
    of_days = events.where(F.col("day").between(first, last))
    rows_of: dict[str, list[Row]] = {}
    progress(0, len(TABLES))
    for table in TABLES:
        rows_to_count = events if "period" in table.keys else of_days
        if table.of_shown_hours:
            rows_to_count = of_shown_hours(rows_to_count, rows_of["load_hourly"])
        texts = [name for name, kind in table.keys.items() if kind == "text"]
        collected_rows = table.build(rows_to_count, settings.pipeline.pseudonym_days).fillna("", texts).collect()
        rows = anonymous([row.asDict() for row in collected_rows], table, settings.pipeline.smallest_cell)
        rows_of[table.name] = sorted(rows, key=itemgetter(*table.keys))
        progress(len(rows_of), len(TABLES))
    return rows_of


def _folder(settings: Settings, first: date, last: date) -> Path:
    return settings.pipeline.reports.resolve() / f"{first}_{last}"


def _write_tables(lake: Lake, report: WrittenReport, kept_from: date) -> None:
    """Replace the rows of the report's days in the catalog's tables, each in one commit; create the tables if missing.

    Rows before a day that are kept no longer go, too.
    """
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{SCHEMA}")
    for table in TABLES:
        name = f"{CATALOG}.{SCHEMA}.{table.name}"
        time = _time(table)
        meaning = table.meaning.replace("'", r"\'")
        lake.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {name} ({_columns(table)}) USING iceberg PARTITIONED BY ({time})"
            f" COMMENT '{meaning}' TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true')"
        )
        rows = report.rows[table.name]
        begin = _begin(report, rows, time)
        condition = F.col(time).between(begin, report.last) | (F.col(time) < F.lit(kept_from))
        _frame(lake.spark, table, rows).coalesce(1).writeTo(name).overwrite(condition)


def _time(table: Table) -> str:
    """Return the column by which a report finds the rows that it replaces."""
    return next(column for column in _TIMES if column in table.keys)


def _begin(report: WrittenReport, rows: list[Row], time: str) -> date:
    """Return the first day of the rows that a report replaces: a period may begin before the report's days."""
    begins: list[date] = [report.first, *(row[time] for row in rows)]
    return min(begins)


def _write_page(report: WrittenReport) -> None:
    """Write the page, in place of an earlier one of the same days."""
    partial = report.page.with_name(f".{report.page.name}-{uuid.uuid4().hex[:8]}")
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(render(report))
        partial.rename(report.page)
    except OSError as error:
        raise PipelineError(f"{report.page} cannot be written: {error.strerror}") from None


def _forget_pages(folder: Path, before: date) -> None:
    for path in folder.glob(_FOLDERS):
        if path.name.partition("_")[2] < before.isoformat():
            shutil.rmtree(path, ignore_errors=True)


def _columns(table: Table) -> str:
    return ", ".join(f"`{name}` {_SPARK_TYPES.get(kind, kind)}" for name, kind in columns(table).items())


def _frame(spark: SparkSession, table: Table, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in columns(table)) for row in rows], _columns(table))


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


def _replace(connection: psycopg.Connection, table: Table, report: WrittenReport, kept_from: date) -> None:
    types = columns(table)
    name = sql.Identifier(SCHEMA, table.name)
    definitions = (sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(types[column])) for column in types)
    connection.execute(
        sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({}))").format(
            name, sql.SQL(", ").join(definitions), sql.SQL(", ").join(map(sql.Identifier, table.keys))
        )
    )
    rows = report.rows[table.name]
    time = _time(table)
    connection.execute(
        sql.SQL("DELETE FROM {0} WHERE {1} BETWEEN %s AND %s OR {1} < %s").format(name, sql.Identifier(time)),
        [_begin(report, rows, time), report.last, kept_from],
    )
    names = sql.SQL(", ").join(map(sql.Identifier, types))
    with connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(name, names)) as copy:
        for row in rows:
            copy.write_row([row[column] for column in types])
