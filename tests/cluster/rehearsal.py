"""A control plane with nodes, the parts that the chart expects outside, and what scenarios ask of them."""

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import yaml

from benchmarks.running import UNLIMITED
from cluster.addons import Prometheus, keda, register_api, wait_for_api
from cluster.binaries import Binaries
from cluster.control_plane import ControlPlane
from cluster.kubelet import Kubelet
from e2e.stacks import refused_by_redis
from support.replica import Replica
from wakupush.devnet.postgres import PostgresServer
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import Stack
from wakupush.model.roles import Role
from wakupush.redis.users import RedisUser

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "wakupush"
RELEASE = NAMESPACE = "wakupush"
POOLS = ("registration", "query", "dispatch")
NODES = ["node-a", "node-b"]
#: Pods of each pool at least, and of dispatch at most.
LEAST, MOST = 2, 6
#: Pods of each pool while there are no figures.
FALLBACK = 3
#: Messages for each process of dispatch: one task has 4, and waits for a gorush of 0.3 s.
MESSAGES_PER_PROCESS = 3
Values = dict[str, Any]


@dataclass
class Rehearsal:
    """What runs, and how it is used."""

    plane: ControlPlane
    kubelet: Kubelet
    prometheus: Prometheus
    parts: Stack
    #: Of `parts.postgres`.
    replica: Replica
    directory: Path
    say: Callable[[str], None]
    #: Of the last installation or upgrade.
    mode: str = "none"
    revision: int = field(default=0, init=False)

    def values(self, mode: str, *, redis: str = "", **more: Any) -> Values:
        """Return values of the chart for a mode of autoscaling.

        Args:
            mode: `autoscaling.mode`.
            redis: `host:port` of the Redis that KEDA asks in the place of Prometheus.
            more: further values.
        """
        source = {"redis": {"address": redis}} if redis else {"prometheus": {"serverAddress": self.prometheus.url}}
        scaled = {"minReplicas": LEAST, "maxReplicas": 4, "fallbackReplicas": FALLBACK}
        pools = {pool: {"concurrency": 1, "replicas": LEAST, "autoscaling": scaled} for pool in POOLS}
        own = {"maxReplicas": MOST, "messagesPerProcess": MESSAGES_PER_PROCESS}
        pools["dispatch"] = pools["dispatch"] | {"autoscaling": scaled | own}
        # All its devices are new ones, whose messages would go there.
        pools["rest"] = {"enabled": False}
        settings = {"ingest": {"batch_size": 4}, "gorush": {"batch_size": 1}}
        for name, value in UNLIMITED.items():
            group, setting = name.removeprefix("WAKUPUSH_").lower().split("__")
            settings.setdefault(group, {})[setting] = int(value)
        return {
            "publicKey": str(self.parts.key.public_key),
            "postgres": {"database": "postgres", "parameters": _either(self.parts.postgres, self.replica)},
            "redis": {"url": f"redis://127.0.0.1:{self.parts.redis.port}/0"},
            "node": {"urls": [self.parts.node_url]},
            "gorush": {"url": self.parts.gorush_url},
            "settings": settings,
            "components": {"flower": {"enabled": False}, **pools},
            "autoscaling": {"mode": mode, "scaleDownStabilizationSeconds": 75, **source},
            **more,
        }

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@/postgres?{_either(self.parts.postgres, self.replica)}"

    def refusals(self) -> list[str]:
        """Return what Postgres refused to roles, and Redis to users since it started."""
        logs = [server.log for server in (self.parts.postgres, self.replica)]
        lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
        by_postgres = [line for line in lines if "permission denied" in line]
        return by_postgres + [" ".join(refusal) for refusal in refused_by_redis(self.parts)]

    def connect(self) -> psycopg.Connection:
        """Return a connection to the Postgres that takes writes, in autocommit mode."""
        return psycopg.connect(self.dsn, autocommit=True)

    def upgrade(self, values: Values) -> float:
        """Install the release, or upgrade it, wait for it, and return the seconds that it took."""
        self.mode, self.revision = values["autoscaling"]["mode"], self.revision + 1
        file = self.directory / f"values-{self.revision}.yaml"
        file.write_text(yaml.safe_dump(values))
        start_time = time.monotonic()
        self.helm("upgrade", "--install", RELEASE, str(CHART), "-f", str(file), "--wait", "--timeout", "8m")
        return time.monotonic() - start_time

    def helm(self, *arguments: str) -> str:
        return self.plane.helm(*arguments, "-n", NAMESPACE)

    def kubectl(self, *arguments: str) -> str:
        return self.plane.kubectl("-n", NAMESPACE, *arguments)

    def replicas(self, pool: str) -> int:
        """Return how many pods a pool is to have."""
        return self._deployment(pool)["spec"]["replicas"]

    def ready(self, pool: str) -> int:
        """Return how many pods of a pool are ready."""
        return self._deployment(pool)["status"].get("readyReplicas", 0)

    def pods(self) -> list[dict[str, Any]]:
        return self.plane.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]

    def wait(self, predicate: Callable[[], bool], what: str, timeout: float = 180) -> float:
        """Wait for something of the cluster and return the seconds that it took."""
        start_time = time.monotonic()
        wait_until(predicate, timeout=timeout, what=what, interval=0.5)
        return time.monotonic() - start_time

    def _deployment(self, pool: str) -> dict[str, Any]:
        return self.plane.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}-{pool}")

    @contextmanager
    def watching(self) -> Iterator["Watched"]:
        """Note the replicas of the pools all the while."""
        watched, stop_event = Watched(), Event()

        def watch() -> None:
            path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
            start_time = time.monotonic()
            while not stop_event.wait(0.3):
                for each in self.plane.get(path)["items"]:
                    pool = each["metadata"]["name"].removeprefix(f"{RELEASE}-")
                    if pool in POOLS:
                        ready = each["status"].get("readyReplicas", 0)
                        watched.note(pool, time.monotonic() - start_time, each["spec"]["replicas"], ready)

        with ThreadPoolExecutor(1) as threads:
            watching = threads.submit(watch)
            try:
                yield watched
            finally:
                stop_event.set()
            watching.result()


@dataclass
class Watched:
    """Replicas of pools over a time: seconds, how many are to run, how many are ready; only changes are kept."""

    pools: dict[str, list[tuple[float, int, int]]] = field(default_factory=dict)

    def note(self, pool: str, seconds: float, target: int, ready: int) -> None:
        changes = self.pools.setdefault(pool, [])
        if not changes or changes[-1][1:] != (target, ready):
            changes.append((seconds, target, ready))

    def target_counts(self, pool: str) -> list[int]:
        return [target for _, target, _ in self.pools[pool]]

    def least_ready(self, pool: str) -> int:
        return min(ready for _, _, ready in self.pools[pool])


@contextmanager
def rehearsing(binaries: Binaries, directory: Path, say: Callable[[str], None]) -> Iterator[Rehearsal]:
    """Start everything; it ends with the block."""
    targets = directory / "targets.json"
    targets.write_text("[]")
    programs = Path(sys.executable).parent
    parts = Stack(directory / "parts", fsync=False)
    replica = Replica(directory / "parts" / "replica", parts.postgres.dsn)
    with ControlPlane(binaries, directory) as plane, Kubelet(plane, NODES, programs, targets) as kubelet:
        say("the control plane runs")
        prometheus = Prometheus(plane, targets)
        register_api(plane, "metrics.k8s.io", "v1beta1", kubelet.port)
        wait_for_api(plane, "metrics.k8s.io", "v1beta1")
        with prometheus.process, keda(plane):
            say("KEDA and Prometheus run")
            try:
                parts.start_parts()
                replica.start()
                replica.make_synchronous()
                say("Postgres and its replica, Redis, the node and gorush run")
                rehearsal = Rehearsal(plane, kubelet, prometheus, parts, replica, directory, say)
                _make_namespace(rehearsal)
                yield rehearsal
            finally:
                replica.stop()
                parts.stop()


def _either(*servers: PostgresServer) -> str:
    """Return parameters of a connection string that lead to the one of several servers that takes writes."""
    hosts, ports = ",".join("127.0.0.1" for _ in servers), ",".join(str(server.port) for server in servers)
    return f"host={hosts}&port={ports}&target_session_attrs=read-write"


def _make_namespace(rehearsal: Rehearsal) -> None:
    parts = rehearsal.parts
    restricted = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    secret = partial(dict, apiVersion="v1", kind="Secret")
    # Postgres and Redis on loopback take any password.
    passwords = {f"postgres-{role.removeprefix('wakupush_')}-password": "rehearsal" for role in Role}
    passwords |= {f"redis-{user}-password": "rehearsal" for user in RedisUser}
    owner = {"postgres-host": "127.0.0.1", "postgres-user": "postgres", "postgres-password": "rehearsal"}
    rehearsal.plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": restricted}},
        secret(
            metadata={"name": "wakupush-identity", "namespace": NAMESPACE},
            stringData={"identity.key": parts.key.secret.hex()},
        ),
        secret(
            metadata={"name": "wakupush", "namespace": NAMESPACE},
            stringData={
                "postgres-dsn": rehearsal.dsn,
                "feedback-secret": parts.environment["WAKUPUSH_GORUSH__FEEDBACK_SECRET"],
                **owner,
                **passwords,
            },
        ),
    )
