"""The tables of the report by one engine, from the files of a lake: ``python -m benchmarks.engines ENGINE ROWS``.

The lake is that of the settings. Prints the seconds until the engine was ready, and those that the tables took; writes
their rows to ROWS, as JSON. DuckDB asks the catalog for the files, as pyiceberg knows it, and reads them itself. Both
engines have two cores and 2 GB, read the same files, and count exactly. Neither leaves out rows about too few people.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from pipeline.events.lake import Lake
from pipeline.events.tables import TABLES, UNUSUAL_EVENTS, UNUSUAL_ROWS, UNUSUAL_TIMES
from wakupush.runtime.settings import PipelineSettings, Settings, load_settings

#: Days of a period of pseudonyms.
PERIOD = PipelineSettings().pseudonym_days
MEMORY = "2g"
CORES = 2

_COUNTED = """sum(count) AS events, count(DISTINCT coalesce("user", trace))
            + coalesce(sum(count) FILTER (coalesce("user", trace) IS NULL), 0) AS people"""
_STAGE = """CASE WHEN kind <> 'delivered' THEN kind WHEN attempt = 1 THEN 'delivered_at_once'
            ELSE 'delivered_by_retry' END"""
_PERIOD = f"DATE '1970-01-01' + CAST({PERIOD} * (date_diff('day', DATE '1970-01-01', day) // {PERIOD}) AS INTEGER)"
#: `pipeline.events.tables` in DuckDB's SQL.
SQL = {
    "funnel_daily": f"""
        SELECT day, kind, {_STAGE} AS stage, {_COUNTED} FROM events GROUP BY ALL""",
    "load_hourly": f"SELECT day, hour(time) AS hour, queue, kind, {_COUNTED} FROM events GROUP BY ALL",
    "latency_daily": f"""
        SELECT day, what, queue, platform, {_COUNTED}, quantile_disc(value, 0.5) AS p50_ms,
            quantile_disc(value, 0.95) AS p95_ms, quantile_disc(value, 0.99) AS p99_ms
        FROM (
            SELECT *, CASE kind WHEN 'received' THEN 'queue_wait' WHEN 'answered' THEN 'answer' ELSE 'delivery' END
                AS what, CASE WHEN kind = 'received' THEN queue_wait_ms ELSE latency_ms END AS value
            FROM events WHERE kind IN ('received', 'answered', 'delivered')
        ) AS timed WHERE value IS NOT NULL GROUP BY ALL""",
    "retries_daily": f"""
        SELECT day, platform, attempt, kind, {_STAGE} AS stage, {_COUNTED}
        FROM events
        WHERE kind IN ('attempt', 'delivered', 'failed', 'unknown') AND attempt IS NOT NULL AND platform IS NOT NULL
        GROUP BY ALL""",
    "failures_daily": f"""
        SELECT day, kind, failure, platform, {_COUNTED} FROM events WHERE failure IS NOT NULL GROUP BY ALL""",
    "filtered_daily": f"SELECT day, reason, {_COUNTED} FROM events WHERE kind = 'filtered' GROUP BY ALL",
    "tokens_daily": """
        SELECT day, platform, kind, count(DISTINCT installation) AS devices,
            count(DISTINCT coalesce("user", trace)) AS people
        FROM events WHERE kind IN ('registered', 'unregistered', 'token_died') AND installation IS NOT NULL
        GROUP BY ALL""",
    "token_lives": f"""
        SELECT period, platform, date_diff('day', began, ended) AS days, count(*) AS tokens,
            count(DISTINCT person) AS people
        FROM (
            SELECT {_PERIOD} AS period, platform, installation, min(day) FILTER (kind = 'registered') AS began,
                max(day) FILTER (kind = 'token_died') AS ended, any_value(coalesce("user", trace)) AS person
            FROM events WHERE kind IN ('registered', 'token_died') AND installation IS NOT NULL GROUP BY ALL
        ) AS lives WHERE ended >= began GROUP BY ALL""",
    "registrations_used": f"""
        SELECT period, platform, CASE WHEN notified THEN 'notified' ELSE 'unused' END AS use, count(*) AS devices,
            count(DISTINCT person) AS people
        FROM (
            SELECT {_PERIOD} AS period, platform, installation, bool_or(kind = 'registered') AS registered,
                bool_or(kind = 'admitted') AS notified, any_value(coalesce("user", trace)) AS person
            FROM events WHERE kind IN ('registered', 'admitted') AND installation IS NOT NULL GROUP BY ALL
        ) AS devices WHERE registered GROUP BY ALL""",
    "load_weekly": """
        SELECT isodow(minute) - 1 AS weekday, hour(minute) AS hour, queue, sum(messages) AS messages,
            count(DISTINCT day) AS days, max(messages) AS busiest_minute, sum(messages) AS people
        FROM (
            SELECT day, queue, date_trunc('minute', time) AS minute, sum(count) AS messages
            FROM events WHERE kind = 'received' GROUP BY ALL
        ) AS minutes GROUP BY ALL""",
    "unusual_daily": f"""
        SELECT day, kind, lower(hex("user")) AS pseudonym, events, mean, 1 AS people
        FROM (
            SELECT day, kind, "user", sum(count) AS events, avg(sum(count)) OVER (PARTITION BY day, kind) AS mean
            FROM events WHERE kind IN ('admitted', 'queried') AND "user" IS NOT NULL GROUP BY day, kind, "user"
        ) AS daily WHERE events >= {UNUSUAL_EVENTS} AND events >= {UNUSUAL_TIMES} * mean
        QUALIFY row_number() OVER (PARTITION BY day, kind ORDER BY events DESC, "user") <= {UNUSUAL_ROWS}""",
}

Rows = dict[str, list[dict]]


def files(dsn: str) -> list[str]:
    """Return the files of events, as a reader of Iceberg finds them."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - each engine imports what it needs

    uri = f"{dsn.replace('postgresql:', 'postgresql+psycopg:')}?options=-csearch_path%3Dwakupush_lake"
    with load_catalog("lake", type="sql", uri=uri) as catalog:
        return [task.file.file_path for task in catalog.load_table("wakupush.events").scan().plan_files()]


def by_duckdb(settings: Settings, ready: Callable[[], None]) -> Rows:
    import duckdb  # noqa: PLC0415 - the same

    with duckdb.connect(config={"threads": CORES, "memory_limit": "2GB"}) as database:
        database.read_parquet(files(settings.postgres.dsn.get_secret_value())).create_view("events")
        ready()
        rows: Rows = {}
        for name, query in SQL.items():
            cursor = database.execute(query)
            columns = [column[0] for column in cursor.description]
            rows[name] = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
        return rows


def by_spark(settings: Settings, ready: Callable[[], None]) -> Rows:
    from pipeline.session import spark_session  # noqa: PLC0415 - slow to import

    own = settings.pipeline.model_copy(update={"master": f"local[{CORES}]", "memory": MEMORY})
    with spark_session(own, lake=True) as spark:
        ready()
        events = Lake.of(spark, settings).events()
        return {table.name: [row.asDict() for row in table.build(events, PERIOD).collect()] for table in TABLES}


ENGINES = {"duckdb": by_duckdb, "spark": by_spark}


def in_order(rows: list[dict]) -> list[str]:
    """Return rows as texts that can be compared: integers in full, means to nine digits."""
    return sorted(
        repr(sorted((name, f"{value:.9g}" if name == "mean" else str(value)) for name, value in row.items()))
        for row in rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("rows", type=Path)
    options = parser.parse_args()
    times = [time.perf_counter()]
    rows = ENGINES[options.engine](load_settings(), lambda: times.append(time.perf_counter()))
    begin, ready = times
    print(ready - begin, time.perf_counter() - ready)
    options.rows.write_text(json.dumps({name: in_order(of_table) for name, of_table in rows.items()}))


if __name__ == "__main__":
    main()
