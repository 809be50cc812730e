"""`python -m year.timed_beat`: wakupush, which writes down at its end how long the jobs of beat took.

With YEAR_FAULT it deletes nothing by one rule of `prune`, or drops no ``partitions``.
"""

import functools
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

from wakupush.cli import main
from wakupush.postgres import maintenance
from wakupush.server.beat.beat import Beat
from wakupush.server.beat.jobs import JOBS

#: Seconds of each run that ended well, by the job.
_SECONDS: dict[str, list[float]] = defaultdict(list)


def _timed(work: Callable[[Beat], object]) -> Callable[[Beat], object]:
    @functools.wraps(work)
    def timed(beat: Beat) -> object:
        start_time = time.perf_counter()
        result = work(beat)
        _SECONDS[work.__name__].append(time.perf_counter() - start_time)
        return result

    return timed


def _break(fault: str) -> None:
    if fault == "partitions":
        maintenance.drop_partitions = lambda *_: 0
    delete = maintenance.delete
    maintenance.delete = lambda connection, table, **keep: 0 if table == fault else delete(connection, table, **keep)


if __name__ == "__main__":
    jobs = dict(JOBS)
    JOBS.clear()
    JOBS.update({_timed(work): pause for work, pause in jobs.items()})
    _break(os.environ.get("YEAR_FAULT", ""))
    try:
        main()
    finally:
        medians = {name: median(seconds) for name, seconds in _SECONDS.items()}
        Path(os.environ["YEAR_JOBS"]).write_text(json.dumps(medians))
