"""Jobs of the pipeline whose executors are pods: the lake is in a store, and one executor is killed."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.pod import Pod
from cluster.rehearsal import NAMESPACE, RELEASE, Rehearsal, Values
from cluster.traffic import check
from support.pipeline.kinds import has_committed, in_lake, in_postgres
from support.pipeline.stores import Store, store
from wakupush.pipeline.report.report import SCHEMA
from wakupush.pipeline.report.tables import TABLES
from wakupush.pipeline.session import fetch_jars

#: Executors of a job.
EXECUTORS = 2
ACCOUNT = f"{RELEASE}-spark"
DAYS = ("--from", "2026-10-01", "--to", "2026-10-04")
MADE_UP = ("--messages", "20000", "--from", "2026-10-01", "--days", "4", "--into", "postgres")
#: Events of a commit, so that a run has several.
STEP_ROWS = 30_000
WAREHOUSE = "s3://lake/wakupush"


def runs_executors(rehearsal: Rehearsal) -> str:
    """Export and report by pods: each event once, the same report as in one process, and no right that is not used."""
    jars = rehearsal.directory / "jars"
    fetch_jars(str(jars))
    rehearsal.kubelet.image |= {"WAKUPUSH_PIPELINE__JARS": str(jars), **_JAVA}
    _make_volumes(rehearsal, "keys", "reports")
    with store(rehearsal.directory) as s3:
        rehearsal.upgrade(_values(rehearsal, s3))
        with rehearsal.connect() as connection:
            connection.execute("TRUNCATE delivery_events")  # made-up events stand beside no server's
        local = _Local(rehearsal, s3, jars)
        local.run("synthesize", *MADE_UP)
        exported = _Job(rehearsal, "export")
        exported.kill_an_executor()
        text = exported.finish()
        events = _check_lake(rehearsal, s3)
        check(f"{events} events taken over" in text, f"the export said:\n{text}")
        _Job(rehearsal, "report").finish()
        rows = local.rows()
        local.run("report", *DAYS)
        check(rows == local.rows(), "the report by pods has other rows than that of one process")
    _check_rights(rehearsal)
    rehearsal.helm("uninstall", RELEASE, "--wait", "--timeout", "5m")
    rehearsal.kubectl("delete", "jobs,pvc", "--all")
    rehearsal.wait(lambda: not rehearsal.pods(), "all pods are gone")
    executors = len(exported.executors())
    exports = f"{events} events exported once each by {executors} executors, of which one was killed"
    return f"{exports}; {len(rows)} rows reported"


def _values(rehearsal: Rehearsal, s3: Store) -> Values:
    key, secret, region = s3.credentials.values()
    catalog = {
        "s3.endpoint": s3.url,
        "s3.path-style-access": "true",
        "s3.access-key-id": key,
        "s3.secret-access-key": secret,
        "client.region": region,
    }
    patch = json.dumps({"stringData": {"lake-catalog": json.dumps(catalog)}})
    rehearsal.kubectl("patch", "secret", "wakupush", "-p", patch)
    never = "0 0 31 2 *"
    values = rehearsal.values(
        "none",
        pipeline={
            "image": "wakupush-pipeline:rehearsal",
            "warehouse": WAREHOUSE,
            "executors": {"count": EXECUTORS, "memory": "1g"},
            "jobs": {
                "export": {"schedule": never, "args": ["pipeline", "export"]},
                "report": {"schedule": never, "args": ["pipeline", "report", *DAYS]},
            },
        },
        secrets={
            "lakeCatalog": {"name": "wakupush", "key": "lake-catalog"},
            "reports": {"name": "wakupush", "key": "postgres-dsn"},
        },
    )
    # Beat would drop events of October; ingest and reconcile wait for it.
    values["components"] |= {name: {"enabled": False} for name in ("beat", "ingest", "reconcile")}
    values["settings"]["pipeline"] = {"step_rows": STEP_ROWS, "memory": "1g", "shuffle_partitions": EXECUTORS}
    return values


@dataclass
class _Local:
    """The same commands in one process on this machine, with the same lake."""

    rehearsal: Rehearsal
    s3: Store
    jars: Path

    def run(self, *words: str) -> None:
        environment = (
            os.environ
            | self.s3.environment
            | {
                "SPARK_LOCAL_IP": "127.0.0.1",
                "WAKUPUSH_POSTGRES__DSN": self.rehearsal.dsn,
                "WAKUPUSH_PIPELINE__REPORT_DSN": self.rehearsal.dsn,
                "WAKUPUSH_PIPELINE__WAREHOUSE": WAREHOUSE,
                "WAKUPUSH_PIPELINE__JARS": str(self.jars),
                "WAKUPUSH_PIPELINE__KEYS": str(self.rehearsal.directory / "local-keys"),
                "WAKUPUSH_PIPELINE__REPORTS": str(self.rehearsal.directory / "local-reports"),
            }
        )
        command = [sys.executable, "-m", "wakupush", "pipeline", *words]
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        check(process.returncode == 0, f"{' '.join(words)}: {process.stderr}")

    def rows(self) -> Counter[str]:
        """Return all rows that the last report wrote to Postgres."""
        with self.rehearsal.connect() as connection:
            return Counter(
                f"{table.name} {row}"
                for table in TABLES
                for row in connection.execute(f"SELECT * FROM {SCHEMA}.{table.name}")
            )


@dataclass
class _Job:
    """A run of one of the chart's CronJobs."""

    rehearsal: Rehearsal
    name: str

    def __post_init__(self) -> None:
        self.rehearsal.kubectl("create", "job", self.name, f"--from=cronjob/{RELEASE}-{self.name}")
        self._drivers: list[Pod] = []
        self.rehearsal.wait(self._has_driver, f"the job {self.name} has a pod")

    def _has_driver(self) -> bool:
        pods = self.rehearsal.kubelet.pods.values()
        self._drivers = [pod for pod in pods if pod.metadata["labels"].get("job-name") == self.name]
        return bool(self._drivers)

    @property
    def log(self) -> str:
        path = self._drivers[-1].log
        return path.read_text(errors="replace") if path.exists() else ""

    def executors(self) -> list[Pod]:
        """Return the pods that were executors of the driver, those that are gone too."""
        owner = self._drivers[-1].uid
        pods = list(self.rehearsal.kubelet.pods.values())
        return [pod for pod in pods if owner in [each["uid"] for each in pod.metadata.get("ownerReferences", [])]]

    def kill_an_executor(self) -> None:
        """Kill one with SIGKILL while the job, an export, goes on."""
        self.rehearsal.wait(lambda: has_committed(self.rehearsal.dsn), "the export has committed", timeout=300)
        self.executors()[0].process.kill()

    def finish(self) -> str:
        """Wait for the job's success, and return what it printed."""
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{self.name}"

        def ended() -> dict[str, Any]:
            conditions = self.rehearsal.plane.get(path)["status"].get("conditions", [])
            return {each["type"]: each for each in conditions if each["status"] == "True"}

        self.rehearsal.wait(lambda: bool({"Complete", "Failed"} & ended().keys()), f"{self.name} ends", timeout=900)
        check("Complete" in ended(), f"{self.name} failed:\n{self.log}")
        return self.log


def _check_lake(rehearsal: Rehearsal, s3: Store) -> int:
    """Compare what another program finds in the lake with what Postgres has, and return the number of events."""
    lake_rows, postgres_rows = in_lake(rehearsal.dsn, s3), in_postgres(rehearsal.dsn)
    check(
        lake_rows == postgres_rows,
        f"in the lake and not in Postgres: {lake_rows - postgres_rows}; the other way: {postgres_rows - lake_rows}",
    )
    return lake_rows.total()


def _check_rights(rehearsal: Rehearsal) -> None:
    """Fail if Spark asked for what it may not, or may do what it never asked for."""
    requests = rehearsal.plane.asked_by(f"{NAMESPACE}:{ACCOUNT}")
    refused = {each for each in requests if each[2] == 403}
    check(not refused, f"refused: {refused}")
    role = rehearsal.plane.get(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/{ACCOUNT}")
    granted = {(verb, name) for rule in role["rules"] for name in rule["resources"] for verb in rule["verbs"]}
    used = {(verb, resource) for verb, resource, _ in requests}
    check(used == granted, f"used: {used}; granted: {granted}")


def _make_volumes(rehearsal: Rehearsal, *names: str) -> None:
    spec = {"capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/none"}}
    rehearsal.plane.apply(
        *({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec} for name in names)
    )


_JAVA = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
