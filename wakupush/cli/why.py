"""``wakupush why``: why did this push not arrive?"""

from __future__ import annotations

import getpass
import json
import os
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from wakupush.cli.loading import load, open_postgres
from wakupush.cli.options import AsJson, duration
from wakupush.cli.output import print_table
from wakupush.protocol.keys import InvalidKeyError, PublicKey
from wakupush.runtime.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from psycopg import Connection

    from wakupush.model.dead_letters import PastEvent
    from wakupush.operate.why import Story
    from wakupush.runtime.settings import Settings

#: Digits of a trace id, which are the first of a message's hash, and of a public key.
TRACE_DIGITS = 16
KEY_DIGITS = 130


def why(
    message: Annotated[
        str | None,
        typer.Argument(
            help="Trace id (32 hex digits in logs, 16 in rows), or hash of the message on the network (64)."
        ),
    ] = None,
    *,
    user: Annotated[
        str | None, typer.Option(help="Public key, 0x04…: messages about this user that were not refused or filtered.")
    ] = None,
    around: Annotated[
        str | None, typer.Option(help="With --user: the time, such as 10:31, 10:31:05 or 2026-11-24T10:31, in UTC.")
    ] = None,
    within: Annotated[str, typer.Option(help="With --user: how far from it: 45s, 10m, 2h.")] = "10m",
    since: Annotated[str | None, typer.Option(help="How far back to look for a message: 90m, 2h. Default: 3d.")] = None,
    last_hour: Annotated[bool, typer.Option("--last-hour", help="How many pushes were lost, by reason.")] = False,
    reveal_filters: Annotated[
        bool, typer.Option("--reveal-filters", help="Say which choice of a receiver kept a push back; it is logged.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Tell what became of a message, hop by hop, and what to do. Needs Postgres, and the server's key.

    Run it in a pod of a worker, with the operator's login. Exits with 1 if nothing is known.
    """
    if (message is not None) + (user is not None) + last_hour != 1:
        raise UsageError("name a message, or --user with --around, or --last-hour")
    if since is not None and message is None:
        raise UsageError("--since goes with MESSAGE; --user has --around and --within, --last-hour takes no time")
    if around is not None and user is None:
        raise UsageError("--around goes with --user; MESSAGE has --since, --last-hour takes no time")
    window = _time(around), timedelta(seconds=duration(within, "--within"))
    if reveal_filters:
        import structlog

        subject = {"user": str(_key(user))} if user else {"message": message} if message else {"time": "last hour"}
        load(process="why")
        structlog.get_logger(__name__).error("filters_revealed", operator=_operator(), **subject)
    if last_hour:
        end = datetime.now(UTC)
        _print_losses((end - timedelta(hours=1), end), reveal_filters=reveal_filters, as_json=as_json)
        return
    from wakupush.operate import why as stories
    from wakupush.server.engine.identity import load_identity

    with open_postgres() as (settings, connection):
        identity = load_identity(settings)
        if user is not None:
            days = settings.pipeline.pseudonym_days
            messages = stories.by_user(connection, identity, _key(user), window, period_days=days)
        else:
            begin = datetime.now(UTC) - timedelta(seconds=duration(since or "3d", "--since"))
            messages = [stories.by_trace_id(connection, identity, _trace_id(message or ""), begin)]
        withheld = _withheld(connection, window, reveal_filters=reveal_filters) if user is not None else {}
    messages = _with_waits(settings, messages)
    for story in messages:
        _print(story, reveal_filters=reveal_filters, as_json=as_json)
    if user is not None:
        _print_others(withheld, is_first=not messages, as_json=as_json)
    raise typer.Exit(int(not any(story.events for story in messages)))


def _operator() -> str:
    """Return who runs this: the user of a container may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _with_waits(settings: Settings, messages: list[Story]) -> list[Story]:
    """Say of pushes that wait what they wait for, if Redis answers."""
    from redis import RedisError

    from wakupush.operate.why import waits_for
    from wakupush.runtime.connections.redis import open_redis
    from wakupush.runtime.settings import SettingsError

    try:
        with open_redis(settings.redis) as redis:
            return [replace(story, conclusion=waits_for(redis, story) or story.conclusion) for story in messages]
    except (RedisError, SettingsError):
        return messages


def _withheld(connection: Connection, window: tuple[datetime, timedelta], *, reveal_filters: bool) -> dict[str, int]:
    """Return how many notifications for anybody were refused or filtered in a time, by failure or choice."""
    from wakupush.postgres import history

    around, within = window
    numbers: Counter[str] = Counter()
    for kind, label, count in history.losses(connection, around - within, around + within):
        if kind in {"refused", "filtered"}:
            numbers[_name(kind, label, reveal_filters=reveal_filters)] += count
    return dict(numbers)


def _name(kind: str, label: str, *, reveal_filters: bool) -> str:
    """Return the name of a failure or choice. Which choices of receivers keep pushes back is nobody's business."""
    return label if kind != "filtered" or reveal_filters else "the receiver's choice"


def _print_others(withheld: Mapping[str, int], *, is_first: bool, as_json: bool) -> None:
    """Say what can be about the user, too: events of what is refused or filtered name nobody."""
    if as_json:
        if withheld:
            typer.echo(json.dumps({"refused_or_filtered_for_anybody": withheld}))
        return
    if is_first:
        typer.echo("no message about this user is known from then: nobody asked for a push, or it did not get here,")
        typer.echo("or it was refused or filtered")
    if withheld:
        reasons = ", ".join(f"{label} {count}" for label, count in withheld.items())
        typer.echo(f"refused or filtered in that time, for this user or others: {reasons};")
        typer.echo("their events name nobody: ask the sender for the hash of the message, then `wakupush why HASH`")


def _trace_id(text: str) -> str:
    digits = text.lower().removeprefix("0x")
    if len(digits) == KEY_DIGITS:
        raise UsageError("this is a public key: name it by --user, and the time by --around")
    if not re.fullmatch(r"[0-9a-f]{16}|([0-9a-f]{16})\1|[0-9a-f]{64}", digits):
        raise UsageError("a message is named by its trace id (32 hex digits in logs, 16 in rows) or its hash (64)")
    return digits[:TRACE_DIGITS]


def _key(text: str) -> PublicKey:
    try:
        return PublicKey.from_hex(text)
    except InvalidKeyError as error:
        raise UsageError(f"--user: {error}") from None


def _time(text: str | None) -> datetime:
    now = datetime.now(UTC)
    if text is None:
        return now
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
            hour, minute, second = (int(number) for number in f"{text}:0".split(":")[:3])
            today = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return today if today <= now else today - timedelta(days=1)
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError("--around is a time such as 10:31 or 2026-11-24T10:31") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _facts(event: PastEvent, *, reveal_filters: bool) -> dict[str, object]:
    facts = {
        "time": event.time.isoformat(timespec="milliseconds"),
        "kind": event.kind,
        "queue": event.queue,
        "app": event.app,
        "platform": event.platform,
        "failure": event.failure,
        "reason": event.reason if reveal_filters else None,
        "attempt": event.attempt,
        "count": event.count,
        "worker": event.worker,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _print(story: Story, *, reveal_filters: bool, as_json: bool) -> None:
    events = [_facts(event, reveal_filters=reveal_filters) for event in story.events]
    if as_json:
        typer.echo(json.dumps({"trace_id": story.trace_id, "events": events, "conclusion": story.conclusion}))
        return
    if events:
        first = story.events[0].time
        rows = []
        for event, facts in zip(story.events, events, strict=True):
            details = ", ".join(f"{name} {value}" for name, value in facts.items() if name not in {"time", "kind"})
            after = f"{(event.time - first).total_seconds():.3f} s"
            rows.append((str(facts["time"]), after, event.kind, details))
        print_table(rows, "time", "after", "what", "details", title=story.trace_id, title_justify="left")
    typer.echo(f"{story.trace_id}: {story.conclusion}")


def _print_losses(time: tuple[datetime, datetime], *, reveal_filters: bool, as_json: bool) -> None:
    from wakupush.operate.why import ADVICE
    from wakupush.postgres import history

    with open_postgres() as (_, connection):
        losses = history.losses(connection, *time)
    numbers: Counter[tuple[str, str]] = Counter()
    for kind, label, count in losses:
        numbers[kind, _name(kind, label, reveal_filters=reveal_filters)] += count
    rows = [(kind, label, count) for (kind, label), count in numbers.most_common()]
    admitted = sum(count for kind, _, count in rows if kind == "admitted")
    if as_json:
        for kind, label, count in rows:
            typer.echo(json.dumps({"kind": kind, "label": label, "count": count}))
        return
    table = []
    for kind, label, count in rows:
        is_of_admitted = admitted and kind not in {"refused", "filtered"}
        share = f"{100 * count / admitted:.1f} %" if is_of_admitted else ""
        table.append((str(count), share, kind, label, ADVICE.get(label, "")))
    print_table(table, "count", "share of the admitted", "what", "failure or reason", "what to do")
