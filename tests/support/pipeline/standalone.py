"""A standalone cluster of Spark on loopback: a master and two workers, each of one core and a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from wakupush.devnet.processes import Process, free_port

WORKERS = 2


@contextmanager
def cluster(directory: Path, memory: str = "1g") -> Iterator[str]:
    """Run a cluster until the end of the block, and yield its URL, for `WAKUPUSH_PIPELINE__MASTER`.

    Drivers need `SPARK_LOCAL_IP=127.0.0.1` in their environment, and processes of their own: a JVM has one session.

    Args:
        directory: for logs, and the work of executors.
        memory: of each worker, as Java writes it; an executor takes 1g unless it is told otherwise.
    """
    import pyspark  # noqa: PLC0415 - may be missing

    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(directory / "work"),
    }

    def process(name: str, message: str, kind: str, *options: str) -> Process:
        log = directory / f"{name}.log"
        return Process(
            name,
            [str(home / "bin" / "spark-class"), kind, "--host", "127.0.0.1", "--webui-port", "0", *options],
            log=log,
            env=environment,
            ready=lambda: message in log.read_text(),
            start_timeout=300,
        )

    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    processes = [
        process("master", "elected leader", "org.apache.spark.deploy.master.Master", "--port", str(port)),
        *(
            process(
                f"worker-{number}",
                "registered with master",
                "org.apache.spark.deploy.worker.Worker",
                *("--cores", "1", "--memory", memory, master),
            )
            for number in range(WORKERS)
        ),
    ]
    with ExitStack() as stack:
        for process_ in processes:
            stack.enter_context(process_)
        yield master


@pytest.fixture(scope="session")
def standalone(tmp_path_factory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("standalone")) as master:
        yield master


def processes(kind: str) -> list[psutil.Process]:
    """Return the processes of our clusters that run a class of Spark; one that ends meanwhile is none."""
    executors = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if kind in child.cmdline():
                executors.append(child)
    return executors
