"""Every number of the report is that of a plain count of the same events; none is about too few people."""

import csv
import re
from datetime import UTC, date, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from xml.etree import ElementTree as ET

import psycopg
import pytest

from deploy.monitoring.dashboards import Look
from deploy.monitoring.reports import REPORTS
from support.pipeline import counting, happenings
from support.pipeline.happenings import EMPTY, FIRST, LAST, day_of, ignore, kept_from
from wakupush.model.events import EventKind
from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.lake import export
from wakupush.pipeline.lake.lake import Lake, days_between
from wakupush.pipeline.lake.pseudonyms import whole_periods
from wakupush.pipeline.report import files, page, report
from wakupush.pipeline.report.tables import TABLES, Total
from wakupush.pipeline.session import CATALOG

MESSAGES = 1500
K = 5


@pytest.fixture(scope="module")
def events():
    all_events = happenings.make(MESSAGES)
    assert {event.kind for event in all_events} >= set(EventKind) - {
        EventKind.SEGMENT, EventKind.REFUSED, EventKind.DEAD_LETTER
    }  # fmt: skip
    return all_events


@pytest.fixture(scope="module")
def database(new_database):
    return new_database()


@pytest.fixture(scope="module")
def exported(spark, database, settings_in, tmp_path_factory, events):
    with psycopg.connect(database, autocommit=True) as connection:
        happenings.write(connection, events)
    # A period begins with the first day.
    settings = settings_in(
        tmp_path_factory.mktemp("report"),
        database,
        report_dsn=database,
        smallest_cell=K,
        pseudonym_days=(FIRST - date(1970, 1, 1)).days,
    )
    export.run(spark, settings, ignore)
    return settings


@pytest.fixture(scope="module")
def written(spark, exported):
    return report.run(spark, exported, FIRST, LAST, ignore)


def hidden_of(expected):
    """Return the keys of each table's rows that must not be shown."""
    hidden = {}
    for table in TABLES:
        if table.name in expected:
            rows = expected[table.name]
            named = {key: counting.by_column(table.keys, key) for key in rows}
            wholes = [lambda key, of=itemgetter(*columns), named=named: of(named[key]) for columns in table.wholes]
            parts = counting.parts_of_hidden(table.name, rows, hidden)
            hidden[table.name] = counting.hidden_keys(rows, wholes, K, parts)
    return hidden


def test_every_number_is_that_of_a_plain_count(written, events, database):
    expected = counting.every(events, FIRST)
    hidden = hidden_of(expected)
    shown_rows = 0
    for table in TABLES:
        if not table.anonymous:
            continue
        names = list(table.keys)
        of_table, of_hidden = expected[table.name], hidden[table.name]
        rows = {tuple(row[name] for name in names): row for row in written.rows[table.name]}
        assert rows.keys() == of_table.keys(), table.name
        for key, row in rows.items():
            values = tuple(row[name] for name in ("people", *table.values))
            assert row["suppressed"] == (key in of_hidden), (table.name, key)
            assert values == ((None,) * len(values) if key in of_hidden else of_table[key]), (table.name, key)
        shown_rows += len(rows) - len(of_hidden)
    assert shown_rows > 300
    assert sum(map(len, hidden.values())) > 30
    unusual = sorted((row["day"], row["kind"], row["events"]) for row in written.rows["unusual_daily"])
    assert unusual == counting.unusual(events)
    assert unusual, "the user who gets a third of everything is unusual"
    funnel, few = expected["funnel_daily"], hidden["funnel_daily"]
    event_count = counting.number(events) - sum(funnel[key][1] for key in few)
    assert written.events == Total(event_count, is_partial=bool(few))
    # What is in Postgres and in the files is the same.
    for table in TABLES:
        columns = list(report.columns(table))
        query = f"SELECT {', '.join(columns)} FROM wakupush_reports.{table.name}"
        with psycopg.connect(database) as connection:
            stored_rows = set(connection.execute(query))
        assert stored_rows == {tuple(row[name] for name in columns) for row in written.rows[table.name]}


def in_catalog(spark, settings, table):
    return Lake.of(spark, settings).spark.table(f"{CATALOG}.{report.SCHEMA}.{table.name}")


def test_tables_of_the_catalog_have_the_rows(spark, exported, written):
    for table in TABLES:
        table_frame = in_catalog(spark, exported, table)
        columns = list(report.columns(table))
        assert table_frame.columns == columns
        assert {tuple(row) for row in table_frame.collect()} >= {
            tuple(row[name] for name in columns) for row in written.rows[table.name]
        }


@pytest.mark.long
def test_a_second_report_has_what_came_late(spark, connection, dsn, make_settings):
    settings = make_settings(dsn, report_dsn=dsn, smallest_cell=2)
    events, late = (happenings.make(60, seed, days=happenings.DAYS[:2]) for seed in (1, 2))
    pages = []
    for new in (events, late):
        happenings.write(connection, new)
        export.run(spark, settings, ignore)
        written = report.run(spark, settings, FIRST, LAST, ignore)
        pages.append(written.page)
    assert pages[0] == pages[1]
    expected = counting.every(events + late, date(1970, 1, 1))["funnel_daily"]
    query = "SELECT day, stage, events FROM wakupush_reports.funnel_daily WHERE NOT suppressed"
    stored_rows = connection.execute(query).fetchall()
    assert stored_rows
    assert all(expected[day, stage][1] == count for day, stage, count in stored_rows)
    [funnel] = [table for table in TABLES if table.name == "funnel_daily"]
    rows = in_catalog(spark, settings, funnel).where("NOT suppressed").select("day", "stage", "events").collect()
    assert sorted(map(tuple, rows)) == sorted(stored_rows)


@pytest.mark.long
def test_every_report_counts_whole_periods(spark, exported, dsn, make_settings, events):
    """Night after night the days of a report move on, and one day is made anew."""
    of_period = 3
    settings = make_settings(
        exported.postgres.dsn.get_secret_value(), report_dsn=dsn, smallest_cell=2, pseudonym_days=of_period
    )
    export.run(spark, settings, ignore)
    for last in (FIRST + timedelta(days=1), LAST, FIRST):
        report.run(spark, settings, last - timedelta(days=1), last, ignore)
    periods = {}
    for event in events:
        begin, _ = whole_periods(day_of(event), day_of(event), of_period)
        periods.setdefault(begin, []).append(event)
    assert len(periods) > 1
    for name, count in (("registrations_used", counting.usage), ("token_lives", counting.lives)):
        expected = {
            key: row
            for begin, events_of_period in periods.items()
            for key, row in count(events_of_period, begin).items()
        }
        table = next(table for table in TABLES if table.name == name)
        columns = ", ".join([*table.keys, "people", *table.values])
        with psycopg.connect(dsn) as connection:
            stored_rows = connection.execute(
                f"SELECT {columns} FROM wakupush_reports.{name} WHERE NOT suppressed"
            ).fetchall()
        assert stored_rows
        for row in stored_rows:
            places = len(table.keys)
            assert expected[row[:places]] == row[places:], (name, row)


def test_a_report_of_one_day_keeps_other_days(spark, exported, dsn, make_settings):
    settings = make_settings(
        exported.postgres.dsn.get_secret_value(), warehouse=exported.pipeline.warehouse, report_dsn=dsn
    )
    names = [table.name for table in TABLES if "day" in table.keys]

    def stored_rows():
        with psycopg.connect(dsn) as connection:
            of_postgres = {
                name: set(connection.execute(f"SELECT * FROM wakupush_reports.{name}").fetchall()) for name in names
            }
        of_catalog = {
            table.name: set(map(tuple, in_catalog(spark, settings, table).collect()))
            for table in TABLES
            if table.name in names
        }
        return of_postgres, of_catalog

    report.run(spark, settings, FIRST, LAST, ignore)
    before = stored_rows()
    assert len({row[0] for row in before[0]["load_minutes_daily"]}) > 1
    report.run(spark, settings, FIRST, FIRST, ignore)
    assert stored_rows() == before


def test_the_page_averages_hours_of_the_week():
    days = [date(2026, 11, 2), date(2026, 11, 9), date(2026, 11, 10)]
    load = [(days[0], 3, "dispatch", 8), (days[0], 3, "query", 2), (days[1], 3, "dispatch", 20)]
    load += [(days[0], 4, "dispatch", 8), (days[1], 4, "dispatch", None), (days[2], 3, "query", 7)]
    rows = {
        "load_minutes_daily": [
            {"day": day, "hour": hour, "queue": queue, "messages": count, "busiest_minute": 1}
            for day, hour, queue, count in load
        ],
    }
    written = page.WrittenReport(first=days[0], last=days[-1], rows=rows, page="", smallest_cell=K)
    text = page._week(written, days_between(days[0], days[-1]))
    titles = [title for title in re.findall(r"<title>(.*?)</title>", text) if not title.endswith(": 0")]
    # Of two Mondays and Tuesdays, one had nothing at that hour, and one hides how much.
    assert titles == ["Monday 03: 15", "Monday 04: at least 4", "Tuesday 03: 3.5"]


@pytest.mark.long
def test_reports_expire_with_their_days(spark, exported, dsn, make_settings):
    settings = make_settings(
        exported.postgres.dsn.get_secret_value(),
        warehouse=exported.pipeline.warehouse,
        report_dsn=dsn,
        retention={"lake": kept_from(FIRST)},
    )
    ended = FIRST - timedelta(days=1)
    names = {f"{FIRST - timedelta(days=9)}_{day}": day >= FIRST for day in (ended, FIRST)} | {"another folder": True}
    for name in names:
        (Path(settings.pipeline.reports) / name).mkdir(parents=True)
    report.run(spark, settings, FIRST, FIRST, ignore)
    with psycopg.connect(dsn) as connection:
        for day in (ended, FIRST):
            values = [day, "queried", f"of {day}", 500, 2.5, False]
            connection.execute(
                "INSERT INTO wakupush_reports.unusual_daily (day, kind, pseudonym, events, mean, suppressed)"
                " VALUES (%s, %s, %s, %s, %s, %s)",
                values,
            )
    report.run(spark, settings, LAST, LAST, ignore)
    assert {name: (Path(settings.pipeline.reports) / name).exists() for name in names} == names
    with psycopg.connect(dsn) as connection:
        days = {day for (day,) in connection.execute("SELECT day FROM wakupush_reports.unusual_daily")}
    assert FIRST in days
    assert ended not in days


def test_a_report_that_cannot_be_deleted_is_told(settings_in, tmp_path):
    settings = settings_in(tmp_path, "postgresql://127.0.0.1:1/x").pipeline
    in_the_way = Path(settings.reports) / f"{FIRST}_{FIRST}"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file, not a folder")
    with pytest.raises(PipelineError, match=rf"reports before {LAST} in .* cannot be deleted: Not a directory"):
        files.forget(None, settings, LAST)


def test_the_page_needs_nothing_and_shows_the_numbers(written):
    text = Path(written.page).read_text()
    assert not re.search(r"<script|https?://|src=|@import|url\(", text)
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(drawing)  # noqa: S314 - our own
    assert text.count("<svg") >= 6
    admitted = sum(row["events"] for row in written.rows["funnel_daily"] if row["stage"] == "admitted")
    assert f"{admitted:,}" in text
    # The day without events is 0, not missing.
    assert f">admitted, {EMPTY:%d %b}: 0<" in text


def test_each_table_lies_beside_the_page(written):
    for table in TABLES:
        with (Path(written.page).parent / report.TABLES_FOLDER / f"{table.name}.csv").open() as file:
            names, *rows = csv.reader(file)
        assert names == list(report.columns(table))
        texts = [["" if row[name] is None else str(row[name]) for name in names] for row in written.rows[table.name]]
        assert rows == texts


@pytest.mark.parametrize(
    ("look", "query"),
    [(panel.look, query) for row in REPORTS.rows.values() for panel in row for query in panel.queries.values()],
)
@pytest.mark.usefixtures("written")
def test_the_dashboard_finds_its_numbers_in_postgres(database, look, query):
    filtered, count = re.subn(r"\$__timeFilter\((\w+)\)", rf"\1 BETWEEN '{FIRST - timedelta(28)}' AND '{LAST}'", query)
    assert count == 1
    with psycopg.connect(database) as connection:
        cursor = connection.execute(filtered)
        rows = cursor.fetchall()
    assert rows
    if look is not Look.TABLE:
        assert [column.name for column in cursor.description] == ["time", "metric", "value"]
        assert {type(time) for time, _, _ in rows} <= {datetime}
        assert {time.astimezone(UTC).date() for time, _, _ in rows} <= {
            FIRST + timedelta(days=offset) for offset in range(5)
        }


def test_an_internal_report_has_every_row_and_says_so(spark, exported, written):
    changes = {"smallest_cell": 1, "report_dsn": None, "reports": f"{exported.pipeline.reports}/internal"}
    settings = exported.model_copy(update={"pipeline": exported.pipeline.model_copy(update=changes)})
    internal = report.run(spark, settings, FIRST, LAST, ignore)
    assert not any(row.get("suppressed") for rows in internal.rows.values() for row in rows)
    assert not internal.events.is_partial
    assert page.INTERNAL in Path(internal.page).read_text()
    assert page.INTERNAL not in Path(written.page).read_text()
    for table in TABLES:
        assert not (table.anonymous and in_catalog(spark, exported, table).where("people < 5").count())


def test_tables_of_an_earlier_version_get_their_new_columns(written, new_database):
    before = new_database()
    with psycopg.connect(before, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA wakupush_reports")
        connection.execute(
            "CREATE TABLE wakupush_reports.load_hourly (day date, hour integer, queue text, kind text, events integer,"
            " people integer, suppressed boolean, PRIMARY KEY (day, hour, queue, kind))"
        )
        old = FIRST - timedelta(days=1)
        connection.execute(
            "INSERT INTO wakupush_reports.load_hourly VALUES (%s, 3, 'query', 'received', 5, 5, false)", [old]
        )
        report._write_postgres(before, written, old)
        names = list(report.columns(next(table for table in TABLES if table.name == "load_hourly")))
        stored_rows = set(connection.execute(f"SELECT {', '.join(names)} FROM wakupush_reports.load_hourly"))
    old_row = {"day": old, "hour": 3, "queue": "query", "kind": "received", "platform": "", "events": 5, "people": 5}
    old_row["suppressed"] = False
    rows = [*written.rows["load_hourly"], old_row]
    assert stored_rows == {tuple(row[name] for name in names) for row in rows}


def test_an_empty_lake_and_empty_days_are_told(spark, make_settings, exported, dsn):
    with pytest.raises(PipelineError, match="has no event of"):
        report.run(spark, exported, EMPTY, EMPTY, ignore)
    with pytest.raises(PipelineError, match="run `wakupush pipeline export`"):
        report.run(spark, make_settings(dsn), FIRST, LAST, ignore)
    one = report.run(spark, exported, EMPTY, EMPTY + timedelta(days=1), ignore)
    assert {row["day"] for row in one.rows["funnel_daily"]} == {EMPTY + timedelta(days=1)}


def test_a_database_that_refuses_is_told(connection, dsn, written):
    connection.execute("CREATE ROLE reader LOGIN")
    with pytest.raises(PipelineError, match="database of reports refuses"):
        report._write_postgres(dsn.replace("postgres@", "reader@"), written, FIRST)
    with pytest.raises(PipelineError, match=r"REPORT_DSN cannot be used \(OperationalError\)"):
        report._write_postgres("postgresql://x:secret@127.0.0.1:1/x", written, FIRST)


def test_texts_cannot_break_the_page():
    evil = '<script>alert(1)</script>&"'
    assert "<script" not in page.bars(evil, {evil: Total(3)})
    assert "<script" not in page.lines(evil, [evil], {evil: [Total(1.0)]}, bands=[page.Band(0, 1, evil)])
    assert "<script" not in page.heat_map(evil, [evil], [evil], {(0, 0): Total(2)})
    assert "<script" not in page.table([evil], [[evil]])
