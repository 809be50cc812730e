"""`wakupush ingest reconcile --once`: one walk over each shard of each Store and Store peer, for operators."""

import time
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from wakupush.ingest.reconcile.process import Reconciliation
from wakupush.ingest.reconcile.thorough import Course
from wakupush.ingest.reconcile.walk import Tally, Walker
from wakupush.runtime.settings import Settings, SettingsError
from wakupush.runtime.stopping import stop_on_signals


def run(settings: Settings, since: float | None) -> int:
    """Walk once, show how it goes on a terminal, print what was found, and return the exit code.

    That is 1 if a walk did not reach its end: the logs say why, and its watermark is where it was.

    Args:
        settings: of `wakupush ingest reconcile`.
        since: from when on, in seconds since the epoch; None means the whole window. Walks of query
            topics never go further back than their window. If it is given, the watermarks stay, because the walks skip
            earlier messages.

    Raises:
        SettingsError: there is no public key, an address is not valid, or `since` is before what the ledger remembers.
    """
    if since is not None and since < time.time() - settings.retention.ledger:
        raise SettingsError("--since is before what WAKUPUSH_RETENTION__LEDGER keeps: it would be handled again")
    stop = stop_on_signals()
    reconciliation = Reconciliation.open(settings, stop)
    console = Console(stderr=True)
    out = Console(highlight=False, soft_wrap=True)
    complete = True
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[summary]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with progress:
        of_peers = (walk.walker for walk in reconciliation.thorough if walk.is_store_peer)
        for walker in (*(walk.walker for walk in reconciliation.recent), *of_peers):
            for shard in settings.waku.shards:
                what = f"{walker.name} {shard} {walker.kind.name}"
                tally = walker.attempt(shard, partial(_walk, walker, shard, since, progress, what))
                complete = complete and tally is not None
                out.print(f"{what}: {'not walked to the end' if tally is None else _summary(tally)}", markup=False)
    reconciliation.close()
    return int(not complete)


def _walk(walker: Walker, shard: str, since: float | None, progress: Progress, what: str) -> Tally:
    """Walk a shard in slices; the bar has no total, because a Store does not say how many pages it has."""
    bar = progress.add_task(what, total=None, summary="")
    now = time.time()
    least = now - walker.kind.window
    if walker.kind.content_topics and since is not None:
        least = since
    elif since is not None:
        least = max(least, since)
    course = Course(walker, shard, least)
    while course.at < now:
        course.step(least, now)
        progress.update(bar, summary=_summary(course.tally))
    if since is None:
        walker.settle(shard, now, course.tally.oldest_missing)
    progress.update(bar, total=1, completed=1)
    return course.tally


def _summary(tally: Tally) -> str:
    unreadable = f", {tally.malformed} unreadable" if tally.malformed else ""
    return f"{tally.examined} examined, {tally.missing} missing, {tally.enqueued} enqueued{unreadable}"
