"""What a worker comes to need as it handles more and more messages."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import track

from benchmarks.running import Bench, Run, memory, running

MIB = 2**20
#: Messages between two looks at the memory.
STEP = 5000


def show_growth(
    console: Console, begin: Callable[[Bench, int], Run], handle: Callable[[Bench, int], Run], messages: int
) -> None:
    """Print the memory of a dispatch worker and its one process, and by how much it grew over the later half.

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
            found[done] = memory(bench.stack.workers["dispatch"]) / MIB
    for done, size in found.items():
        console.print(f"memory of the dispatch worker after {done:,} messages: {size:.1f} MiB")
    half = min(done for done in found if done >= messages / 2)
    console.print(f"growth from {half:,} to {max(found):,} messages: {found[max(found)] - found[half]:.2f} MiB")
