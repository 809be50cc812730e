"""The processes behind the queues: ``wakupush worker``, ``beat``, ``exporter``, ``feedback`` and ``canary``."""

from __future__ import annotations

import os
from contextlib import nullcontext
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from wakupush.cli.loading import load
from wakupush.cli.options import PoolName


def worker(
    pool: Annotated[PoolName, typer.Argument(help="The pool, which has the name of its queue.")],
    concurrency: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
) -> None:
    """Handle the messages of a queue. The pool `rest` handles those for devices that no push reached yet."""
    settings = load(process=f"worker {pool}")
    has_metrics = settings.port_or(-1) >= 0
    with TemporaryDirectory(prefix="wakupush-metrics-") if has_metrics else nullcontext() as directory:
        if directory is not None:
            # Where the processes keep their counters; to be set before anything imports `wakupush.runtime.metrics`.
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
        from wakupush.workers import run

        run.worker(settings, pool, concurrency)


def beat() -> None:
    """Run the jobs of beat: due deliveries, overdue answers, watched topics, retention."""
    from wakupush.workers import run

    run.beat(load(process="beat"))


def exporter() -> None:
    """Export metrics of queues and due deliveries, for Prometheus and autoscaling."""
    from wakupush.workers import exporter as process

    process.run(load(process="exporter"))


def canary() -> None:
    """Register devices of its own, and ask for pushes to them about once a minute: do they arrive?"""
    from wakupush.canary import canary as process

    process.run(load(process="canary"))


def feedback() -> None:
    """Receive gorush's feedback webhook."""
    from wakupush.workers import webhook as receiver

    receiver.run(load(process="feedback"))
