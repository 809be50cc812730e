"""``wakupush status``: is the server well? One screen."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from wakupush.cli.options import AsJson
from wakupush.cli.output import WIDE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from wakupush.model.platforms import AppPlatform
    from wakupush.operate.status import Status
    from wakupush.redis.presence import RunningProcess

#: Seconds between two looks.
PAUSE = 2.0


def status(
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again every two seconds, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show nodes, processes, queues, deliveries, breakers, tokens and Stores in one screen, and what is wrong.

    Needs Redis and Postgres, and asks the nodes. Exits with 1 if something is wrong.
    """
    from rich.console import Console
    from rich.live import Live

    from wakupush.operate.status import read
    from wakupush.runtime.settings import load_settings

    settings = load_settings()
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDE
    status = read(settings)
    if watch and console.is_terminal and not as_json:
        with Live(_screen(status), console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(PAUSE)
                live.update(_screen(read(settings)), refresh=True)
    while True:
        if as_json:
            typer.echo(json.dumps(_facts(status)))
        else:
            console.print(_screen(status))
        if not watch:
            raise typer.Exit(int(bool(status.problems())))
        time.sleep(PAUSE)
        status = read(settings)


def _facts(status: Status) -> dict[str, object]:
    return {
        "at": round(status.at, 3),
        "problems": status.problems(),
        "nodes": [
            {
                "name": node.name,
                "state": node.state,
                "ready": node.is_ready,
                "faults": _faults(status, node.name),
                "relay_peers": dict(node.peers),
            }
            for node in status.nodes
        ],
        "processes": [
            {
                "role": process.role,
                "host": process.host,
                "pid": process.pid,
                "version": process.version,
                "age": round(process.age),
                "gone": process.is_gone,
                "not_ready": list(process.failing),
                "clock_offset": round(process.clock_offset, 1),
            }
            for process in status.processes
        ],
        "queues": {
            name: {
                "tasks": queue.tasks,
                "messages": round(queue.messages),
                "bytes": queue.bytes,
                "oldest_seconds": None if queue.oldest is None else round(status.at - queue.oldest, 1),
                "messages_in_flight": round(queue.messages_in_flight),
            }
            for name, queue in status.queues.items()
        },
        "watched_topics_complete": status.topics_complete,
        "deliveries": [
            {
                **_labels(waiting.app_platform),
                "pending": waiting.pending,
                "due": waiting.due,
                "due_seconds": round(waiting.due_age, 1),
                "posting": waiting.posting,
                "breaker": _breaker(status, waiting.app_platform),
                "dead_letters": _dead_letters(status, waiting.app_platform),
            }
            for waiting in status.deliveries
        ],
        "tokens": [
            {**_labels(one.app_platform), "died_day": one.deaths.day, "brake": one.is_stopped} for one in status.tokens
        ],
        "quarantined": status.quarantined,
        "export": None
        if status.export is None
        else {"behind_seconds": round(status.export.seconds, 1), "rows": status.export.rows},
        "stores": [
            {
                "store": watermark.track.store,
                "shard": watermark.track.pubsub_topic,
                "walk": watermark.track.walk,
                "behind_seconds": round(status.at - watermark.walked_to, 1),
            }
            for watermark in status.watermarks
        ],
    }


def _faults(status: Status, node: str) -> list[str]:
    return sorted({fault.value for (name, _), fault in status.faults.items() if name == node})


def _labels(app_platform: AppPlatform) -> dict[str, str]:
    app_name, platform = app_platform.labels
    return {"app": app_name, "platform": platform}


def _breaker(status: Status, app_platform: AppPlatform) -> str:
    states = (breaker.view.state.name.lower() for breaker in status.breakers if breaker.app_platform == app_platform)
    return next(states, "unknown")


def _dead_letters(status: Status, app_platform: AppPlatform) -> int:
    return sum(number for (whose, _), number in status.dead_letters.items() if whose == app_platform)


def _screen(status: Status) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    problems = status.problems()
    verdict = Text("all is well", "bold green") if not problems else Text(f"{len(problems)} problems", "bold red")
    return Group(verdict, *(Text(f"- {problem}", "red") for problem in problems), *_tables(status))


def _tables(status: Status) -> Iterator[RenderableType]:
    facts = _facts(status)
    processes: dict[tuple[str, str], list[RunningProcess]] = {}
    for process in status.processes:
        if not process.is_gone:
            processes.setdefault((process.role, process.version), []).append(process)
    queues = {name: {"queue": name, **queue} for name, queue in facts["queues"].items()}  # type: ignore[attr-defined]  # a dict
    yield _table(
        "nodes",
        [
            {
                "node": node.name,
                "says": node.state or "nothing",
                "relay peers": " ".join(map(str, node.peers.values())) or "unknown",
                "fault": ", ".join(_faults(status, node.name)),
            }
            for node in status.nodes
        ],
    )
    yield _table(
        "processes",
        [
            {
                "process": role,
                "release": version,
                "count": len(group),
                "state": "; ".join(sorted({", ".join(process.failing) or "ready" for process in group})),
                "heard of, seconds ago": round(max(process.silence for process in group)),
            }
            for (role, version), group in sorted(processes.items())
        ],
    )
    yield _table("queues", list(queues.values()))
    yield _table("deliveries", facts["deliveries"])  # type: ignore[arg-type]  # dicts
    yield _table("Stores, as far as reconcile walked them", facts["stores"])  # type: ignore[arg-type]  # dicts


def _table(title: str, rows: list[dict[str, object]]) -> RenderableType:
    from rich.table import Table

    table = Table(*(name.replace("_", " ") for name in (rows[0] if rows else ())), title=title, title_justify="left")
    table.box = None
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    if not rows:
        table.add_column("nothing is known")
    return table
