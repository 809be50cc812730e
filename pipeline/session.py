"""Spark: finding Java, and one session for a command."""

import hashlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from wakupush.pipeline.errors import PipelineError
from wakupush.runtime.settings import PipelineSettings, is_remote

#: The exceptions of a failed job of Spark, which depend on where it fails.
SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
#: The name of the lake's catalog in Spark and other readers; the one in Postgres keeps its tables under this name.
CATALOG: Final = "lake"
#: The oldest Java that Spark 4 runs on.
OLDEST_JAVA: Final = 17
#: The jars that Spark needs for Postgres and Iceberg, by coordinates and hash (SHA-256). Spark resolves them unless a
#: folder with the jars is given.
JDBC_DRIVER: Final = "org.postgresql:postgresql:42.7.7"
ICEBERG: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
S3: Final = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
JARS: Final = {
    JDBC_DRIVER: "157963d60ae66d607e09466e8c0cdf8087e9cb20d0159899ffca96bca2528460",
    ICEBERG: "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    S3: "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
}
#: Java's archive of the classes that a report loads, in the folder of the jars: it saves parsing and checking them.
CLASSES: Final = "classes.jsa"
#: From how many calls and loops on Java compiles a method with all optimisations: a hundred times its defaults.
_OPTIMISED_FROM: Final = {
    "Tier4InvocationThreshold": 500_000,
    "Tier4MinInvocationThreshold": 60_000,
    "Tier4CompileThreshold": 1_500_000,
    "Tier4BackEdgeThreshold": 4_000_000,
}
#: What results depend on.
_FIXED: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Damage inside a file must be an error that names the file, and never give wrong numbers.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
}
#: What an operator's Spark configuration may say otherwise.
_DEFAULTS: Final = {
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: What the driver of Postgres asks for, and only its compiler uses.
NEEDLESS: Final = "org.checkerframework:checker-qual"


def missing_parts() -> str | None:
    """Return the parts to install before Spark can run here; None if none is missing."""
    for name in ("pyspark", "pyarrow", "pandas"):
        if find_spec(name) is None:
            return f"{name} is not installed: install wakupush[pipeline]"
    java = java_path()
    if java is None:
        return f"there is no Java: install Java {OLDEST_JAVA}, or name its folder in JAVA_HOME"
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - found above
    version = re.search(r'version "(\d+)', answer.stderr)
    if version is None or int(version[1]) < OLDEST_JAVA:
        return f"{java} is not Java {OLDEST_JAVA} or newer: install it, or name its folder in JAVA_HOME"
    return None


def java_path() -> str | None:
    """Return the path of Java, by `JAVA_HOME` if that is set; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None)


def _java_options(settings: PipelineSettings) -> Iterator[str]:
    """Yield what makes jobs of seconds cheap: half of their CPU time would be compilation for jobs of hours."""
    for threshold, calls in _OPTIMISED_FROM.items():
        yield f"-XX:{threshold}={calls}"
    if settings.jars is not None and (archive := settings.jars / CLASSES).is_file():
        # One of another Java, or of other jars, is not used, and Java says nothing of it.
        yield f"-XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


@contextmanager
def spark_session(settings: PipelineSettings, *, lake: bool = False) -> Iterator[SparkSession]:
    """Run a Spark session until the end of the block.

    Started by ``spark-submit``, it runs where, and with what, that was told to. Otherwise the settings say so. Either
    way an operator's Spark configuration decides all that the results do not depend on.

    Args:
        settings: where it runs, and with how much memory.
        lake: whether it needs `JARS`, for the lake and for reading Postgres.

    Raises:
        PipelineError: Spark or Java is missing, the session does not start, or Spark resolved a jar that is not pinned.
    """
    if problem := missing_parts():
        raise PipelineError(problem)
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    log4j = resources.files("wakupush.pipeline") / "log4j2.properties"
    # What Java is started with; spark-submit has started it already.
    chosen = {
        "spark.master": settings.master,
        "spark.app.name": "wakupush pipeline",
        "spark.driver.memory": settings.memory,
        "spark.driver.defaultJavaOptions": " ".join(
            (f"-Dlog4j2.configurationFile=file:{log4j}", *_java_options(settings))
        ),
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        **(_on_loopback() if settings.master.startswith("local") else {}),
        **(jars(settings) if lake else {}),
    }
    # Executors run this Python, not the one called python3.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        if not is_submitted:
            # Only with Java there can one read what spark-defaults.conf says.
            SparkContext._ensure_initialized(  # noqa: SLF001 - the public way also starts Spark
                conf=SparkConf(loadDefaults=False).setAll(list(chosen.items()))
            )
        conf = SparkConf()  # what spark-submit was told, and spark-defaults.conf
        if not is_submitted:
            conf.setAll(list(chosen.items()))
        for name, value in _DEFAULTS.items():
            conf.setIfMissing(name, value)
        conf.setAll(list(_FIXED.items()))
        if lake:
            conf.set("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
            conf.setAll(list(_without_catalog(conf, settings).items()))
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:
        raise PipelineError(
            f"Spark does not start{'' if is_submitted else f' on {settings.master}'} ({type(error).__name__}):"
            " its messages are above"
        ) from error
    try:
        if not is_submitted:
            _check_jars(session.conf.get("spark.jars", "") or "")
    except PipelineError:
        session.stop()
        raise
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler calls the JVM in the middle of another call, and both end in a traceback.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # py4j logs the traceback of an interruption that it raises, too.
        logging.getLogger().addHandler(logging.NullHandler())
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def telling_tasks(spark: SparkSession, progress: Callable[[int, int], None], every: float = 1.0) -> Iterator[None]:
    """Report the tasks of Spark's present job that are done, and their total, until the end of the block.

    Args:
        spark: with one job at a time.
        progress: called with both numbers when they change.
        every: seconds between two looks.
    """
    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()

    def watch() -> None:
        last_progress = None
        while not over.wait(every):
            stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
            now = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
            if stages and now != last_progress:
                progress(*now)
                last_progress = now

    thread = threading.Thread(target=watch, name="tasks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _without_catalog(conf: SparkConf, settings: PipelineSettings) -> dict[str, str]:
    """Return the options that keep the properties of the lake's catalog out of Spark's event log and page.

    Spark redacts a property of a session only if it knows the name from its start.
    """
    names = {*settings.catalog, "jdbc.password", "jdbc.user", "uri", "warehouse"}
    expression = conf.get("spark.redaction.regex", "(?i)secret|password|token|access[.]?key")
    return {f"spark.sql.catalog.{CATALOG}.{name}": "" for name in names} | {
        "spark.redaction.regex": rf"{expression}|^spark\.sql\.catalog\.{CATALOG}\."
    }


def _on_loopback() -> dict[str, str]:
    """Let Spark use loopback, and return the options for it: the name of a container often has no address."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def fetch_jars(folder: str) -> None:
    """Let Spark resolve all of `JARS`, and put them into a folder, for `WAKUPUSH_PIPELINE__JARS`.

    Raises:
        PipelineError: a resolved jar has another hash.
    """
    with tempfile.TemporaryDirectory() as ivy_folder:
        options = {"spark.jars.packages": ",".join(JARS), "spark.jars.ivy": ivy_folder, "spark.ui.enabled": "false"}
        SparkSession.builder.master("local[1]").config(map=options | _on_loopback()).getOrCreate().stop()
        Path(folder).mkdir(parents=True, exist_ok=True)
        for coordinates, digest in JARS.items():
            group, artifact, version = coordinates.split(":")
            content = (Path(ivy_folder) / "jars" / f"{group}_{artifact}-{version}.jar").read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                raise PipelineError(f"{coordinates} is not the one that was pinned")
            (Path(folder) / f"{artifact}-{version}.jar").write_bytes(content)


def _check_jars(paths: str) -> None:
    """Refuse jars without a pinned hash, before a connection string or anything else of ours is used.

    Args:
        paths: as in ``spark.jars``.

    Raises:
        PipelineError: one of them has another hash.
    """
    for path in filter(None, paths.split(",")):
        with Path(urlsplit(path).path).open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() not in JARS.values():
                raise PipelineError(f"{path} is no jar that was pinned: remove it, and look where Spark gets its jars")


def jars(settings: PipelineSettings) -> dict[str, str]:
    """Return the options that give Spark the jars; those for S3 only if the lake is there.

    Raises:
        PipelineError: a jar is not in the folder that the settings name.
    """
    coordinates_needed = [coordinates for coordinates in JARS if coordinates != S3 or is_remote(settings.warehouse)]
    if settings.jars is None:
        return {"spark.jars.packages": ",".join(coordinates_needed), "spark.jars.excludes": NEEDLESS}
    paths = [
        settings.jars / f"{artifact}-{version}.jar"
        for _, artifact, version in (e.split(":") for e in coordinates_needed)
    ]
    if absent := [path for path in paths if not path.is_file()]:
        raise PipelineError(f"WAKUPUSH_PIPELINE__JARS: there is no file {absent[0]}")
    # Pods of executors have them in their image; other executors get them from the driver.
    scheme = "local:" if settings.master.startswith("k8s://") else ""
    return {
        "spark.jars": ",".join(f"{scheme}{path}" for path in paths),
        "spark.driver.extraClassPath": os.pathsep.join(map(str, paths)),
    }
