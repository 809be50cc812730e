"""The memory of a worker as it handles more and more messages."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import track

from benchmarks.running import Bench, Run, family, running

MIB = 2**20
#: Messages between two looks at the memory.
STEP = 5000


def show_growth(
    console: Console, begin: Callable[[Bench, int], Run], handle: Callable[[Bench, int], Run], messages: int
) -> None:
    """Print the memory of a dispatch worker's parent and of its one process, and how much each grew in the later half.

    Args:
        console: where the figures go.
        begin: makes so many users.
        handle: handles so many messages of theirs.
        messages: in all.
    """
    with running(1) as bench:
        begin(bench, 500)
        found = {}
        for done in track(range(STEP, messages + 1, STEP), description="messages", console=console):
            handle(bench, STEP)
            parent, child = (each.memory_full_info().uss / MIB for each in family(bench.stack.workers["dispatch"]))
            found[done] = parent, child
    for done, (parent, child) in found.items():
        console.print(f"after {done:,} messages: parent {parent:.1f} MiB, process {child:.1f} MiB")
    last, half = max(found), min(done for done in found if done >= messages / 2)
    grown = [now - before for before, now in zip(found[half], found[last], strict=True)]
    console.print(f"growth from {half:,} to {last:,} messages: parent {grown[0]:.2f} MiB, process {grown[1]:.2f} MiB")
