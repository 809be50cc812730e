"""The whole server as real processes on embedded parts: the parts, ingest, reconcile, workers, beat."""

import json
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Literal, Self, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from wakupush.devnet.postgres import PostgresServer
from wakupush.devnet.processes import (
    Launcher,
    Process,
    StartFailedError,
    WaitTimeoutError,
    answers_http,
    free_port,
)
from wakupush.devnet.redis import RedisServer
from wakupush.model.queues import QUEUES
from wakupush.model.roles import COMMANDS, Role
from wakupush.protocol import topics
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import users

#: Static shards of the Status network.
SHARDS = ("/waku/2/rs/16/32", "/waku/2/rs/16/64")
#: Variables of this process that its children keep.
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV")
#: Seconds between the walks of reconcile: short, so that missed messages are enqueued soon.
_RECONCILE_PAUSE = 1.0
_RECONCILE_OVERLAP = 20.0
#: Seconds that the first walk looks back on an embedded node, which is no older than the stack: a day has 288 slices.
_RECONCILE_WINDOW = 3600.0
Who = TypeVar("Who")
#: Celery logs this text once a worker takes tasks.
_READY = " ready."


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """Addresses of real parts; a part that is None is embedded."""

    waku_url: str | None = None
    gorush_url: str | None = None
    postgres_dsn: str | None = field(default=None, repr=False)
    redis_url: str | None = field(default=None, repr=False)


@dataclass(kw_only=True, eq=False)
class Stack:
    """A server that listens on loopback and ends with this process. Start its parts by `start`, or one by one.

    Each process connects to an embedded Postgres under its own role and to an embedded Redis as its own user, and to
    others by the given addresses.
    """

    #: For data and logs; if we are root, every folder above it must be open to others.
    directory: Path = field(kw_only=False)
    #: Of the server.
    key: PrivateKey = field(default_factory=PrivateKey.generate)
    #: Parts that run already.
    external: External = field(default_factory=External)
    #: Processes of each pool.
    concurrency: int = 1
    #: Further variables, for example ``{"WAKUPUSH_GORUSH__DIALECT": "status"}``; they win over ours.
    settings: Mapping[str, str] = field(default_factory=dict)
    #: Further variables over which the key, addresses and ports of the stack win.
    defaults: Mapping[str, str] = field(default_factory=dict)
    #: Pubsub topics that the server listens to.
    shards: Sequence[str] = SHARDS
    #: The module that ``python -m`` runs instead of `wakupush` for workers, ingest and beat; tests plant faults so.
    worker_module: str = "wakupush"
    ingest_module: str = "wakupush"
    beat_module: str = "wakupush"
    #: False trades the safety of Postgres' data for speed.
    fsync: bool = True
    #: Of the embedded Postgres, see `PostgresServer`.
    postgres_settings: Mapping[str, str] = field(default_factory=dict)
    #: Of the embedded Waku node; go-waku's has no Store v3, which the observer reads.
    manners: Literal["nwaku", "go-waku"] = "nwaku"
    #: Further ones of the first embedded Waku node, see `wakupush.devnet.serve`; they win over ours.
    node_options: Sequence[str] = ()
    #: Number of embedded Waku nodes, each a peer of every other one.
    nodes: int = 1
    #: Further options of the embedded gorush.
    gorush_options: Sequence[str] = ()
    #: Pools of workers; without `rest` the others handle all messages.
    pools: Sequence[str] = tuple(QUEUES)
    #: Whether the exporter runs too, and all processes serve /healthz, /readyz and /metrics.
    serves_metrics: bool = False
    #: Starts all Python processes, see `Process`.
    launcher: Launcher | None = None

    def __post_init__(self) -> None:
        """Make the processes, which are not started yet."""
        self._key_file = self.directory / "identity.key"
        self._feedback_secret = self.defaults.get("WAKUPUSH_GORUSH__FEEDBACK_SECRET") or secrets.token_hex(16)
        waku = ["waku", *(f"waku-{number}" for number in range(2, self.nodes + 1))]
        names = (*waku, "gorush", "ingest", "reconcile", "feedback", "exporter", "beat", *self.pools)
        self._ports = {name: free_port() for name in names}
        self._make_parts(waku)
        self._make_processes()

    def _make_parts(self, waku: Sequence[str]) -> None:
        self.postgres = PostgresServer(self.directory / "postgres", fsync=self.fsync, settings=self.postgres_settings)
        self.redis = RedisServer(self.directory / "redis")
        options = ("--manners", self.manners, "--archive-window", "any")
        peers = {name: [f"--peer={self._url(other)}" for other in waku if other != name] for name in waku}
        self.node = self._server("waku", *options, *peers["waku"], *self.node_options)
        #: The embedded nodes after the first.
        self.further_nodes = [self._server(name, *options, *peers[name]) for name in waku[1:]]
        feedback = ("--feedback-url", self.feedback_url, "--feedback-header", self.feedback_header)
        self.gorush = self._server("gorush", *feedback, *self.gorush_options)

    def _make_processes(self) -> None:
        self.ingest = self._wakupush(
            "ingest live",
            *("ingest", "live"),
            module=self.ingest_module,
            settings=self._http_port("ingest"),
            ready=partial(answers_http, f"{self.ingest_url}/readyz"),
        )
        # It only has to be healthy, not ready: a node that runs already may have no Store.
        self.reconcile = self._wakupush(
            "ingest reconcile",
            *("ingest", "reconcile"),
            module=self.ingest_module,
            settings=self._http_port("reconcile"),
            ready=partial(answers_http, f"{self.reconcile_url}/healthz"),
        )
        self.workers = {
            name: self.worker(name, concurrency=self.concurrency, settings=self._metrics_port(name))
            for name in self.pools
        }
        self.feedback = self._wakupush(
            "feedback", "feedback", ready=partial(answers_http, f"{self._url('feedback')}/readyz")
        )
        self.beat = self._wakupush("beat", "beat", module=self.beat_module, settings=self._metrics_port("beat"))
        self.exporter = self._wakupush(
            "exporter",
            "exporter",
            settings=self._http_port("exporter"),
            ready=partial(answers_http, f"{self._url('exporter')}/readyz"),
        )

    def _http_port(self, name: str) -> dict[str, str]:
        return {"WAKUPUSH_HTTP_PORT": str(self._ports[name])}

    def _metrics_port(self, name: str) -> dict[str, str]:
        return self._http_port(name) if self.serves_metrics else {}

    def _url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"

    @property
    def node_url(self) -> str:
        """URL of the first Waku node."""
        return self.external.waku_url or self._url("waku")

    @property
    def node_urls(self) -> list[str]:
        """URLs of all Waku nodes."""
        return [self.node_url, *(self._url(node.name) for node in self.further_nodes)]

    @property
    def gorush_url(self) -> str:
        """URL of gorush."""
        return self.external.gorush_url or self._url("gorush")

    @property
    def postgres_dsn(self) -> str:
        """Connection string of Postgres."""
        return self.external.postgres_dsn or self.postgres.dsn

    @property
    def redis_url(self) -> str:
        """URL of Redis."""
        return self.external.redis_url or self.redis.url

    @property
    def ingest_url(self) -> str:
        """URL of ingest's /healthz, /readyz and /metrics."""
        return self._url("ingest")

    @property
    def reconcile_url(self) -> str:
        """URL of /healthz, /readyz and /metrics of reconcile."""
        return self._url("reconcile")

    @property
    def metrics_urls(self) -> dict[str, str]:
        """URLs of the /metrics of all processes that have any, by the name of the process."""
        ports = {"ingest live": "ingest", "ingest reconcile": "reconcile", "feedback": "feedback"}
        if self.serves_metrics:
            ports |= {**{f"worker {name}": name for name in self.pools}, "beat": "beat", "exporter": "exporter"}
        return {process: f"{self._url(port)}/metrics" for process, port in ports.items()}

    @property
    def feedback_url(self) -> str:
        """URL of gorush's feedback webhook."""
        return f"{self._url('feedback')}/feedback"

    @property
    def feedback_header(self) -> str:
        """The header that gorush has to send there, as in `core.feedback_header`."""
        return f"X-Wakupush-Secret: {self._feedback_secret}"

    @property
    def processes(self) -> list[Process]:
        """Everything that is started, in this order."""
        return [
            *self._embedded_processes,
            self.feedback,
            *self.workers.values(),
            self.beat,
            self.ingest,
            self.reconcile,
            *([self.exporter] if self.serves_metrics else []),
        ]

    @property
    def _embedded_processes(self) -> list[Process]:
        external = self.external
        parts: list[tuple[Process, str | None]] = [
            (self.postgres, external.postgres_dsn),
            (self.redis, external.redis_url),
            *((node, external.waku_url) for node in (self.node, *self.further_nodes)),
            (self.gorush, external.gorush_url),
        ]
        return [process for process, address in parts if address is None]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every process of the server; its connection string of Postgres is the owner's."""
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        often = {
            "WAKUPUSH_RECONCILE__PAUSE": str(_RECONCILE_PAUSE),
            "WAKUPUSH_RECONCILE__OVERLAP": str(_RECONCILE_OVERLAP),
            # No repeated answers, so that each is counted once.
            "WAKUPUSH_WORKER__REPEAT_ANSWERS_AFTER": "0",
            "WAKUPUSH_HTTP_HOST": "127.0.0.1",
        }
        if self.external.waku_url is None:
            often["WAKUPUSH_RECONCILE__WINDOW"] = str(_RECONCILE_WINDOW)
        return {
            **environment,
            **often,
            **self.defaults,
            "WAKUPUSH_PUBLIC_KEY": str(self.key.public_key),
            "WAKUPUSH_IDENTITY_KEY_FILE": str(self._key_file),
            "WAKUPUSH_WAKU__URL": json.dumps(self.node_urls) if self.further_nodes else self.node_url,
            "WAKUPUSH_RECONCILE__STORES": json.dumps(self.node_urls),
            # A shell, or the file that WAKUPUSH_CONFIG names, may have set these for another server.
            "WAKUPUSH_RECONCILE__STORE_PEERS": "[]",
            "WAKUPUSH_REDIS__SENTINELS": "[]",
            "WAKUPUSH_WAKU__SHARDS": json.dumps(self.shards),
            "WAKUPUSH_REDIS__URL": self.redis_url,
            "WAKUPUSH_POSTGRES__DSN": self.postgres_dsn,
            "WAKUPUSH_POSTGRES__DIRECT_DSN": self.postgres_dsn,
            "WAKUPUSH_GORUSH__URL": self.gorush_url,
            "WAKUPUSH_GORUSH__FEEDBACK_SECRET": self._feedback_secret,
            "WAKUPUSH_FEEDBACK__HTTP_PORT": str(self._ports["feedback"]),
            "WAKUPUSH_HTTP_PORT": "-1",
            **self.settings,
        }

    def start(self) -> None:
        """Start everything and wait until it works.

        Raises:
            StartFailedError: a part did not start; all others are stopped.
        """
        with ExitStack() as undo:
            undo.callback(self.stop)
            self.start_servers()
            _all([self.feedback, *self.workers.values()], "start")
            self.beat.start()
            _all((self.ingest, self.reconcile), "start")
            if self.serves_metrics:
                self.exporter.start()
            undo.pop_all()

    def start_servers(self) -> None:
        """Start those of Postgres, Redis, the node and gorush that are embedded, and bring the schema up to date."""
        self.start_parts()
        self.migrate()

    def start_parts(self) -> None:
        """Start those of Postgres, Redis, the node and gorush that are embedded."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._key_file.touch(mode=0o600)
        self._key_file.write_text(self.key.secret.hex())
        _all(self._embedded_processes, "start")

    def migrate(self, *options: str) -> None:
        """Run ``wakupush migrate``, and let the roles log in to an embedded Postgres."""
        self.run("migrate", *options)
        if self.external.postgres_dsn is None:
            with self.connect() as connection:
                for role in Role:
                    connection.execute(sql.SQL("ALTER ROLE {} LOGIN").format(sql.Identifier(role)))

    def dsn_of(self, *command: str) -> str:
        """Return the connection string of a command of ``wakupush``: as its role, if Postgres is embedded."""
        role = _who_runs(command, COMMANDS)
        if role is None or self.external.postgres_dsn is not None:
            return self.postgres_dsn
        return make_conninfo(self.postgres_dsn, user=role)

    def redis_url_of(self, *command: str) -> str:
        """Return the URL of Redis for a command of ``wakupush``: as its user, if Redis is embedded."""
        user = _who_runs(command, users.COMMANDS)
        return self.redis_url if user is None or self.external.redis_url else self.redis.url_of(user)

    def run(self, *arguments: str, timeout: float = 60) -> None:
        """Run a command of ``wakupush`` to its end, for so many seconds at most.

        Raises:
            StartFailedError: it failed, or goes on; the text ends with the tail of its log.
        """
        process = self._wakupush(arguments[0], *arguments)
        process.start()
        try:
            failed = "failed" if process.wait(timeout=timeout) else ""
        except WaitTimeoutError:
            process.kill()
            failed = f"did not end within {timeout:g} s"
        if failed:
            raise StartFailedError(f"wakupush {' '.join(arguments)} {failed}\n{process.log_tail()}")

    def stop(self) -> None:
        """Stop everything: first the processes that take messages, last the parts that they need."""
        self.exporter.stop()
        _all((self.ingest, self.reconcile), "stop")
        self.beat.stop()
        _all(self.workers.values(), "stop")
        self.feedback.stop()
        _all(self._embedded_processes, "stop")

    def connect(self) -> psycopg.Connection:
        """Return a connection to Postgres, in autocommit mode."""
        return psycopg.connect(self.postgres_dsn, autocommit=True)

    def is_handled(self, connection: psycopg.Connection, message_hash: bytes, content_topic: str) -> bool:
        """Return whether the server is done with a message, or does not listen on its topic."""
        watched = connection.execute(
            "SELECT FROM query_topics WHERE topic = %s", [topics.topic_of(content_topic)]
        ).fetchone()
        listens = content_topic in topics.server_content_topics(self.key.public_key) or watched is not None
        row = connection.execute("SELECT FROM ledger WHERE message_hash = %s", [message_hash]).fetchone()
        return not listens or row is not None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _server(self, name: str, *options: str) -> Process:
        kind = name.partition("-")[0]
        ready_path = {"waku": "/debug/v1/info", "gorush": "/healthz"}[kind]
        return Process(
            name,
            [sys.executable, "-m", "wakupush.devnet.serve", kind, "--port", str(self._ports[name]), *options],
            log=self.directory / f"{name}.log",
            ready=partial(answers_http, f"{self._url(name)}{ready_path}"),
            launcher=self.launcher,
        )

    def _wakupush(
        self,
        name: str,
        *arguments: str,
        module: str = "wakupush",
        settings: Mapping[str, str] | None = None,
        ready: Callable[[], bool] | None = None,
    ) -> Process:
        dsn = self.dsn_of(*arguments)
        return Process(
            name,
            [sys.executable, "-m", module, *arguments],
            log=self.directory / f"{name.replace(' ', '-')}.log",
            env={
                **self.environment,
                "WAKUPUSH_POSTGRES__DSN": dsn,
                "WAKUPUSH_POSTGRES__DIRECT_DSN": dsn,
                "WAKUPUSH_REDIS__URL": self.redis_url_of(*arguments),
                **self.settings,
                **(settings or {}),
            },
            ready=ready,
            grace=100.0,
            launcher=self.launcher,
        )

    def worker(self, queue: str, *, concurrency: int = 1, settings: Mapping[str, str] | None = None) -> Process:
        """Return a further pool of workers of a queue, which is not started yet."""
        tells = self.environment.get("WAKUPUSH_LOG_LEVEL", "INFO") in {"DEBUG", "INFO"}
        process = self._wakupush(
            f"worker {queue}",
            *("worker", queue, "--concurrency", str(concurrency)),
            module=self.worker_module,
            settings=settings,
            ready=(lambda: process.has_logged(_READY)) if tells else None,
        )
        return process


def _who_runs(command: Sequence[str], commands: Mapping[Who, Sequence[str]]) -> Who | None:
    begins = {" ".join(command[:count]) for count in (1, 2)}
    return next((who for who, firsts in commands.items() if not begins.isdisjoint(firsts)), None)


def _all(processes: Iterable[Process], verb: Literal["start", "stop"]) -> None:
    with ThreadPoolExecutor() as threads:
        list(threads.map(methodcaller(verb), processes))
