"""Where the processes of a pool keep their counters."""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory


def metrics_directory() -> TemporaryDirectory[str]:
    """Return a new directory for the counters of all processes of a pool, and make prometheus_client use it.

    To be called before anything imports `wakupush.runtime.metrics`.
    """
    directory: TemporaryDirectory[str] = TemporaryDirectory(prefix="wakupush-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory.name
    return directory
