"""One Spark session and one Postgres for all tests of the pipeline; a fresh lake and a fresh database for each."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psycopg
import pytest

from support.pipeline.happenings import FOR_EVER
from wakupush.devnet.postgres import PostgresServer, temporary_postgres
from wakupush.model.roles import Role
from wakupush.pipeline.session import missing_parts
from wakupush.postgres.migrations import runner
from wakupush.runtime.settings import PipelineSettings, PostgresSettings, Settings

#: What to install before these tests can run; test_spark_is_installed.py says so.
MISSING = missing_parts()
collect_ignore = [
    str(path)
    for path in Path(__file__).parent.rglob("test_*.py")
    if MISSING and path.name != "test_spark_is_installed.py"
]


#: pyspark 4.1 leaves the sockets open over which rows come from Java.
SOCKETS_OF_PYSPARK = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.filterwarnings(SOCKETS_OF_PYSPARK))


#: To compile a plan takes longer than to run it on little data. The tests that run commands in processes of their own
#: have Spark as it is.
FOR_LITTLE_DATA = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}
#: For a session to stop.
STOP_SECONDS = 60.0


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator[object]:
    from wakupush.pipeline.session import spark_session  # noqa: PLC0415 - pyspark may be missing

    # Jobs of seconds: compiling them well would take longer than they do.
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    settings = PipelineSettings(master="local[1]", memory="1g", shuffle_partitions=1)
    _give_up_connections_when_time_is_up()
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patched:
        # For the sessions of each lake, too.
        options = " ".join(f"--conf {name}={value}" for name, value in FOR_LITTLE_DATA.items())
        patched.setenv("PYSPARK_SUBMIT_ARGS", f"{options} pyspark-shell")
        session = stack.enter_context(spark_session(settings, lake=True))
        session.sparkContext.setCheckpointDir(str(tmp_path_factory.mktemp("spark")))
        stop = stack.pop_all().close
    yield session
    # A test of another kind may run by now: what goes wrong here, or takes long, must not fail it. Java is killed with
    # all else that this fixture leaves.
    thread = threading.Thread(target=_in_silence, args=[stop], daemon=True)
    thread.start()
    with suppress(Exception, pytest.fail.Exception):
        thread.join(STOP_SECONDS)


def _give_up_connections_when_time_is_up() -> None:
    """Keep a test from reading the answer to what a test before it asked when its time was up, after waiting for it."""
    from py4j.clientserver import ClientServerConnection  # noqa: PLC0415 - pyspark may be missing

    send_command = ClientServerConnection.send_command

    def send(self, command):
        try:
            return send_command(self, command)
        except pytest.fail.Exception:
            self.close(reset=True)
            raise

    ClientServerConnection.send_command = send


def _in_silence(stop: Callable[[], None]) -> None:
    with suppress(Exception):
        stop()


@pytest.fixture(autouse=True)
def _no_job_goes_on(request) -> Iterator[None]:
    """End the job of a test that failed in its midst: the next test would wait for it."""
    session = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    yield
    if session is not None:
        with suppress(Exception):
            session.sparkContext.cancelAllJobs()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with temporary_postgres() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE DATABASE wakupush_template")
        with psycopg.connect(_dsn(server, "wakupush_template"), autocommit=True) as connection:
            runner.migrate(connection)
            for role in (Role.PIPELINE, Role.LAKE, Role.REBUILD):
                connection.execute(f"ALTER ROLE {role} LOGIN")
        yield server


@pytest.fixture(scope="session")
def new_database(postgres) -> Callable[[], str]:
    """Make a database with the schema, and nothing in it."""

    def make() -> str:
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE wakupush_template")
        return _dsn(postgres, name)

    return make


@pytest.fixture
def dsn(new_database) -> str:
    return new_database()


@pytest.fixture
def connection(dsn) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def _dsn(server: PostgresServer, database: str) -> str:
    return server.dsn.rsplit("/", 1)[0] + f"/{database}"


@pytest.fixture(scope="session")
def settings_in() -> Callable[..., Settings]:
    """Make the settings of a lake in a folder."""

    def make(
        folder: Path, dsn: str = "postgresql://nobody@127.0.0.1:1/nothing", retention=None, **options: object
    ) -> Settings:
        own = {
            "warehouse": str(folder / "lake"),
            "keys": folder / "keys",
            "reports": str(folder / "reports"),
            "pseudonym_days": FOR_EVER,
            "shuffle_partitions": 1,
        }
        return Settings(
            postgres=PostgresSettings(dsn=dsn, timeout=2),
            pipeline=PipelineSettings(**(own | options)),
            retention=retention or {},
        )

    return make


@pytest.fixture
def make_settings(settings_in, tmp_path) -> Callable[..., Settings]:
    """Make the settings of a lake in the test's folder."""
    return lambda *dsn, **options: settings_in(tmp_path, *dsn, **options)
