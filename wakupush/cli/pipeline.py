"""``wakupush pipeline``: jobs on Spark over the delivery events, and over the archive of messages."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wakupush.cli.options import AsJson
from wakupush.cli.output import complain, progress_bar
from wakupush.runtime.durations import parse_since
from wakupush.runtime.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wakupush.runtime.settings import Settings

app = typer.Typer(
    help="Jobs on Spark over delivery events and archived messages. They need the extra `pipeline` and Java 17.",
    no_args_is_help=True,
)


class Destination(StrEnum):
    """Where made-up events go."""

    LAKE = "lake"
    POSTGRES = "postgres"


Warehouse = Annotated[
    str | None,
    typer.Option("--warehouse", help="Where the lake is, instead of WAKUPUSH_PIPELINE__WAREHOUSE.", metavar="WHERE"),
]
FirstDay = Annotated[str | None, typer.Option("--from", help="First day (UTC), as 2026-11-01.", metavar="DAY")]
LastDay = Annotated[str | None, typer.Option("--to", help="Last day; yesterday by default.", metavar="DAY")]


@app.command()
def export(*, as_json: AsJson = False, warehouse: Warehouse = None) -> None:
    """Copy new delivery events from Postgres into the lake, each exactly once.

    You may kill it at any time: the next run continues after the last commit.
    """
    with _extra():
        from wakupush.pipeline.lake import export as exporting

    with _job("events", warehouse, lake_job="export") as (spark, settings, progress):
        totals = exporting.run(spark, settings, progress)
    sentences = [f"{totals.rows} events taken over in {totals.steps} steps"]
    if totals.forgotten_keys:
        sentences.append(f"{totals.forgotten_keys} keys of pseudonyms are deleted: their periods are over")
    _tell(asdict(totals), sentences, as_json=as_json)


@app.command()
def tidy(
    *,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Take a damaged file out of the lake, with its events; repeatable."),
    ] = None,
    as_json: AsJson = False,
    warehouse: Warehouse = None,
) -> None:
    """Compact the files of the lake, and delete days past the retention and unused files.

    You may kill it at any time. Reads that began within the last day can still finish.
    """
    with _extra():
        from wakupush.pipeline import tidy as tidying

    with _job("tasks", warehouse, lake_job="tidy", tasks=True) as (spark, settings, _):
        totals = tidying.run(spark, settings, without or [])
    sentences = [f"{totals.compacted} files put together, {totals.deleted} deleted"]
    if totals.forgotten:
        sentences.append(f"{totals.forgotten} events were older than WAKUPUSH_RETENTION__LAKE and are forgotten")
    if totals.without:
        sentences.append(f"{totals.without} events are out of the lake with their files")
    _tell(asdict(totals), sentences, as_json=as_json)


@app.command()
def report(
    *,
    first: FirstDay = None,
    last: LastDay = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make all days, not only those that changed.")] = False,
    as_json: AsJson = False,
    warehouse: Warehouse = None,
) -> None:
    """Write the tables and the page of a report, by default about the last four weeks.

    It reads only days whose events changed since the last report. You may kill it: the next run continues.
    """
    with _extra():
        from wakupush.pipeline.report import report as reporting

    days = _days(first, last, 28)
    with _job("days", warehouse, lake_job="report") as (spark, settings, progress):
        result = reporting.run(spark, settings, *days, progress, rebuild=rebuild)
    facts = {
        "first": result.first.isoformat(),
        "last": result.last.isoformat(),
        "events": result.events.shown,
        "is_partial": result.events.is_partial,
        "page": result.page,
    }
    sentence = f"{result.events} events of {result.first} to {result.last}: {result.page}"
    _tell(facts, [sentence], as_json=as_json)


@app.command()
def capacity(
    *,
    first: FirstDay = None,
    last: LastDay = None,
    wait: Annotated[float, typer.Option(help="Largest p99 of the wait in a queue, in seconds.", min=0.01)] = 0.25,
    users: Annotated[float, typer.Option(help="Plan for so many times the users.", min=0.01)] = 1.0,
    gorush: Annotated[float, typer.Option(help="Plan for a gorush that takes so many ms a post.", min=0)] = 50.0,
    cost: Annotated[
        list[str] | None,
        typer.Option(help="Milliseconds of CPU time of a message, as dispatch=0.9; `make bench` measures them."),
    ] = None,
    bench: Annotated[
        Path | None, typer.Option(help="Figures of `python -m benchmarks.bench --json FILE` on your machines.")
    ] = None,
    as_json: AsJson = False,
    warehouse: Warehouse = None,
) -> None:
    """Compute how many replicas each pool needs, check that on the later half of the days, and print chart values."""
    with _extra():
        from wakupush.pipeline import capacity as planning

    days = _days(first, last, 28)
    costs = planning.costs(bench, cost or [])
    with _job("queues", warehouse, lake_job="capacity") as (spark, settings, progress):
        question = planning.Question(
            wait=wait,
            users=users,
            gorush=gorush / 1000,
            costs=costs,
            connections=settings.gorush.concurrency,
            notifications=settings.gorush.batch_size,
        )
        plan = planning.run(spark, settings, days, question, progress)
    _tell({"values": planning.values(plan), **asdict(plan)}, [planning.describe(plan)], as_json=as_json)


@app.command()
def fetch_archive(
    since: Annotated[
        str, typer.Option(help="Start: how long ago (`30m`, `2h`, `400d`), or a time, as 2026-11-01T12:00.")
    ] = "30d",
    *,
    as_json: AsJson = False,
) -> None:
    """Fetch messages on the server's own topics from Stores into Parquet, for `rebuild`; existing files stay.

    You may kill it at any time: the next run fetches the missing hours. Exits with 1 if it could not fetch some.
    """
    with _extra():
        from wakupush.pipeline.archive import fetch
    settings = _settings()
    with _bar("hours of a shard") as progress:
        totals = fetch.run(settings, _since(since), progress)
    sentence = (
        f"{totals.messages} messages of {totals.hours - totals.failed} hours of a shard fetched;"
        f" {totals.complete_before} were complete already"
    )
    _tell(asdict(totals), [sentence], as_json=as_json)
    if totals.malformed:
        typer.echo(f"{totals.malformed} messages could not be read", err=True)
    if totals.failed:
        typer.echo(
            f"{totals.failed} hours of a shard could not be fetched; run it again. The first: {totals.error}", err=True
        )
        raise typer.Exit(1)


@app.command()
def rebuild(*, as_json: AsJson = False) -> None:
    """Rebuild the registrations from the archive, and load them into the database, which may be in use.

    Newer rows of the database stay. You may kill it at any time, and run it again.
    """
    with _extra():
        from wakupush.pipeline.archive import rebuild as rebuilding

    with _job("tasks", tasks=True) as (spark, settings, _):
        rebuilt = rebuilding.run(spark, settings)
    _tell(asdict(rebuilt), [rebuilding.describe(rebuilt)], as_json=as_json)
    if not rebuilt.watched:
        typer.echo(
            "wakupush: Redis does not answer, so perhaps ingest does not watch the query topics of all users."
            " Run it again with WAKUPUSH_REDIS__URL, or restart Redis",
            err=True,
        )


@app.command()
def warm_topics(*, as_json: AsJson = False) -> None:
    """Derive the missing keys of query topics, 12 to 25 ms each, on all cores.

    You may kill it at any time: the next run continues.
    """
    with _extra():
        from wakupush.pipeline.archive import warm

    with _job("keys") as (spark, settings, progress):
        count = warm.run(spark, settings, progress)
    _tell({"keys": count}, [f"{count} keys derived and stored"], as_json=as_json)


@app.command()
def synthesize(
    *,
    messages: Annotated[int, typer.Option(help="Messages; each makes about seven events.", min=1)] = 100_000,
    days: Annotated[int, typer.Option(help="Days that they spread over, up to yesterday.", min=1, max=3660)] = 28,
    seed: Annotated[int, typer.Option(help="The same seed makes the same events.")] = 1,
    first: FirstDay = None,
    into: Annotated[
        Destination, typer.Option(help="Where they go; refused if real ones are there.")
    ] = Destination.LAKE,
    as_json: AsJson = False,
    warehouse: Warehouse = None,
) -> None:
    """Make up events of a server: daily and weekly load, group chats, outages, dead tokens."""
    with _extra():
        from wakupush.pipeline.synthetic import made_up
        from wakupush.pipeline.synthetic.synthesize import Plan

    begin = _day(first) or datetime.now(UTC).date() - timedelta(days=days)
    plan = Plan(seed=seed, messages=messages, first_day=begin, days=days)
    write = made_up.into_lake if into is Destination.LAKE else made_up.into_postgres
    with _job("tasks", warehouse, lake_job="synthesize", tasks=True) as (spark, settings, _):
        count = write(spark, settings, plan)
    facts = {"events": count, "into": into.value}
    _tell(facts, [f"{count} events made up, into {into.value}"], as_json=as_json)


def _tell(facts: dict[str, Any], sentences: list[str], *, as_json: bool) -> None:
    """Print what a job did, as one line of JSON or as sentences."""
    typer.echo(json.dumps(facts) if as_json else "\n".join(sentences))


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise UsageError(f"{package} is not installed: install wakupush[pipeline]") from None


def _settings(warehouse: str | None = None) -> Settings:
    from wakupush.runtime.settings import load_settings

    if warehouse is not None:
        os.environ["WAKUPUSH_PIPELINE__WAREHOUSE"] = warehouse
    return load_settings()


@contextmanager
def _job(
    what: str, warehouse: str | None = None, *, lake_job: str | None = None, tasks: bool = False
) -> Iterator[tuple[Any, Settings, Callable[[int, int], None]]]:
    """Run a Spark session with a bar, and note the end of a job of the lake.

    Args:
        what: the bar counts.
        lake_job: the command, if it uses the lake.
        tasks: whether the bar shows Spark's own tasks.
    """
    with _extra():
        from wakupush.pipeline.session import spark_session, telling_tasks

    settings = _settings(warehouse)
    with (
        _note_duration(lake_job, settings) if lake_job is not None else nullcontext(),
        spark_session(settings.pipeline, lake=lake_job is not None) as spark,
        _bar(what) as progress,
        telling_tasks(spark, progress) if tasks else nullcontext(),
    ):
        yield spark, settings, progress


@contextmanager
def _note_duration(job: str, settings: Settings) -> Iterator[None]:
    """Note how long a job took, the start and end of Spark included, if it ends well."""
    from wakupush.pipeline.errors import PipelineError
    from wakupush.pipeline.lake.catalog import note_run

    begin = time.monotonic()
    yield
    try:
        note_run(settings, job, time.monotonic() - begin)
    except PipelineError as error:
        complain(f"{job} ended well, but its time is not noted: {error}")


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    with progress_bar(what) as progress:
        task = progress.add_task(what, total=None)

        def show(count: int, total: int) -> None:
            progress.update(task, completed=count, total=total)
            if progress.disable:
                progress.console.print(f"{count} of {total} {what}")

        yield show


def _days(first: str | None, last: str | None, most: int) -> tuple[date, date]:
    end = _day(last) or datetime.now(UTC).date() - timedelta(days=1)
    begin = _day(first) or end - timedelta(days=most - 1)
    if begin > end:
        raise UsageError("--from is after --to")
    return begin, end


def _since(text: str) -> float:
    try:
        return parse_since(text, time.time())
    except ValueError:
        raise UsageError("--since is so long ago (30m, 2h, 400d), or a time, as 2026-11-01T12:00") from None


def _day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise UsageError(f"{text} is no day; write it as 2026-11-01") from None
