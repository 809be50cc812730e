"""A pod that is a plain process of this checkout, with its arguments, environment, Secrets, token and probes.

It has a mount namespace in which /run holds its Secrets, ConfigMaps and its token of the Kubernetes API, so its paths
are those of the chart, and in which /etc/hosts has the names of pods. A volume of a claim is a folder; variables that
name a path in it name the folder.
"""

from __future__ import annotations

import base64
import re
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import httpx2
import psutil

from wakupush.devnet.processes import Process, free_port

if TYPE_CHECKING:
    from cluster.kubelet import Kubelet

#: A private /run, then the files of the pod in it, then the program.
_SCRIPT = (
    'mount -t tmpfs tmpfs /run && cp -a "$1/run/." /run/ && mount --bind "$1/hosts" /etc/hosts && shift && exec "$@"'
)
_IN_OWN_RUN = ("unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", _SCRIPT, "pod")


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Pod:
    """A pod from the moment it is bound to its node until it is gone."""

    def __init__(self, kubelet: Kubelet, manifest: dict[str, Any]) -> None:
        self.kubelet = kubelet
        self.metadata, self.spec = manifest["metadata"], manifest["spec"]
        self.name, self.namespace, self.uid = (self.metadata[name] for name in ("name", "namespace", "uid"))
        self.thread = Thread(target=self._run, name=self.name, daemon=True)
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.directory = kubelet.directory / self.uid
        self.log = self.directory / "log"
        [self.container] = self.spec["containers"]
        self.ip = kubelet.next_ip()
        self.port: int | None = None
        self.process: Process | None = None
        self.ready = False
        self.restarts = 0
        #: Seconds that it has to end in, once it is asked to.
        self.grace: int | None = None
        self.stop_event = Event()
        self.exit_code: int | None = None
        self._cpu = (time.monotonic(), 0.0)
        #: Cores in use.
        self.usage = 0.0

    @property
    def is_job(self) -> bool:
        return self.spec["restartPolicy"] == "Never"

    @property
    def component(self) -> str:
        return self.metadata.get("labels", {}).get("app.kubernetes.io/component", "")

    def _run(self) -> None:
        with self.kubelet.noting(self.name):
            while not self.stop_event.is_set():
                self._start()
                self._watch()
                if self.stop_event.is_set() or self.is_job:
                    break
                self.restarts += 1
                self._show("Running", {"waiting": {"reason": "CrashLoopBackOff"}})
                self.stop_event.wait(2)
            if self.process is not None:
                self._end()
            self._delete()

    def measure(self) -> None:
        """Note the cores that it used since the last time."""
        if self.process is None or self.process.pid is None:
            return
        with suppress(psutil.Error):
            main = psutil.Process(self.process.pid)
            total = sum(sum(each.cpu_times()[:2]) for each in (main, *main.children(recursive=True)))
            at, (then, before) = time.monotonic(), self._cpu
            self.usage, self._cpu = max(0.0, total - before) / (at - then), (at, total)

    def _start(self) -> None:
        environment = self._environment()
        (self.directory / "hosts").write_text(
            f"127.0.0.1 localhost {socket.gethostname()} {' '.join(self.kubelet.host_names())}\n"
        )
        command = [*self.container.get("command", ["wakupush"]), *self.container.get("args", [])]
        self.process = Process(
            self.name,
            [*_IN_OWN_RUN, str(self.directory), *command],
            log=self.log,
            env=environment,
            cwd=self.directory,
        )
        self.process.launch()
        self.ready = self.is_job
        self._show("Running", {"running": {"startedAt": now()}})

    def _watch(self) -> None:
        """Probe it until it ends, fails, or is to go."""
        if self.is_job or self.port is None:
            while self._runs_on():
                pass
            return None
        startup = _Probe(self, "startupProbe")
        while not startup.has_passed:
            if not self._runs_on() or startup.failed:
                return self.process.kill()
            startup.look()
        live, ready = _Probe(self, "livenessProbe"), _Probe(self, "readinessProbe")
        while self._runs_on():
            live.look()
            if live.failed:
                self.kubelet.note(f"{self.name}: the liveness probe failed")
                return self.process.kill()
            ready.look()
            if (now_ready := ready.has_passed and not ready.failed) != self.ready:
                self.ready = now_ready
                self._show("Running", {"running": {"startedAt": now()}})
        return None

    def _runs_on(self) -> bool:
        return self.process.running and not self.stop_event.wait(0.2)

    def _end(self) -> None:
        if self.stop_event.is_set() and self.process.running:
            self.ready = False
            self._show("Running", {"running": {"startedAt": now()}})
            self._stop()
        self.exit_code = self.process.wait()
        if self.is_job and not self.stop_event.is_set():
            reason = "Error" if self.exit_code else "Completed"
            ended = {"exitCode": self.exit_code & 255, "reason": reason, "startedAt": now(), "finishedAt": now()}
            self._show("Failed" if self.exit_code else "Succeeded", {"terminated": ended})
            self.stop_event.wait()

    def _stop(self) -> None:
        start_time = time.monotonic()
        psutil.Process(self.process.pid).terminate()
        try:
            self.process.wait(self.grace)
        except TimeoutError:
            self.process.kill()
        self.kubelet.stopped.append((self.component, self.process.wait(), time.monotonic() - start_time))

    def _delete(self) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        self.kubelet.http.request("DELETE", self.path, json=options)

    def _environment(self) -> dict[str, str]:
        """Write the files of the pod and return its environment."""
        variables: dict[str, str] = {}
        for each in self.container.get("envFrom", []):
            variables |= self.kubelet.get(f"{self._of('configmaps')}/{each['configMapRef']['name']}")["data"]
        server = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.kubelet.plane.port)}
        for each in self.container.get("env", []):
            variables[each["name"]] = self._value(each, server | variables)
        volumes = {volume["name"]: volume for volume in self.spec.get("volumes", [])}
        for mount in self.container.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            if "persistentVolumeClaim" in volume:
                folder = str(self.kubelet.claimed(volume["persistentVolumeClaim"]["claimName"]))
                variables = {name: value.replace(mount["mountPath"], folder) for name, value in variables.items()}
            else:
                self._mount(volume, Path(mount["mountPath"]))
        ports = [port["containerPort"] for port in self.container.get("ports", [])]
        names = ("WAKUPUSH_HTTP_PORT", "WAKUPUSH_FEEDBACK__HTTP_PORT")
        if any(int(variables.get(name, "0")) in ports for name in names):
            self.port = free_port()
            variables |= dict.fromkeys(names, str(self.port))
        path = f"{self.kubelet.programs}:/usr/sbin:/usr/bin:/sbin:/bin"
        own = {"HOME": str(self.directory), "TMPDIR": str(self.directory), "PATH": path}
        return self.kubelet.image | own | server | variables

    def _value(self, variable: dict[str, Any], before: dict[str, str]) -> str:
        """Return the value of a variable, after others that it may name."""
        match variable.get("valueFrom"):
            case None:
                value = variable.get("value", "")
                return re.sub(r"\$\((\w+)\)", lambda match: before.get(match[1], match[0]), value)
            case {"secretKeyRef": secret}:
                return self._secret(secret["name"], secret["key"]).decode()
            case {"fieldRef": {"fieldPath": "metadata.name"}}:
                return self.name
            case {"fieldRef": {"fieldPath": "status.podIP"}}:
                return "127.0.0.1"  # where its ports are; nobody reaches the address that its status has
            case source:
                raise NotImplementedError(source)

    def _mount(self, volume: dict[str, Any], path: Path) -> None:
        if "secret" in volume:
            secret = volume["secret"]
            for item in secret["items"]:
                self._write(path / item["path"], self._secret(secret["secretName"], item["key"]))
        elif "configMap" in volume:
            for name, text in self.kubelet.get(f"{self._of('configmaps')}/{volume['configMap']['name']}")[
                "data"
            ].items():
                self._write(path / name, text.encode())
        elif "projected" in volume:  # the token that admission gives to a pod that may ask the Kubernetes API
            account = f"{self._of('serviceaccounts')}/{self.spec['serviceAccountName']}/token"
            answer = self.kubelet.http.post(account, json={"spec": {"expirationSeconds": 3600}}).raise_for_status()
            self._write(path / "token", answer.json()["status"]["token"].encode())
            self._write(path / "namespace", self.namespace.encode())
            self._write(path / "ca.crt", self.kubelet.plane.authority.certificate.read_bytes())

    def _write(self, path: Path, content: bytes) -> None:
        # /var/run is /run.
        inside = path.relative_to("/var/run") if path.is_relative_to("/var/run") else path.relative_to("/run")
        file = self.directory / "run" / inside
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def _of(self, kind: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{kind}"

    def _secret(self, name: str, key: str) -> bytes:
        return base64.b64decode(self.kubelet.get(f"{self._of('secrets')}/{name}")["data"][key])

    def _show(self, phase: str, state: dict[str, Any]) -> None:
        true, began = str(self.ready), self.metadata["creationTimestamp"]
        conditions = [
            {"type": name, "status": status, "lastTransitionTime": time}
            for name, status, time in (
                ("PodScheduled", "True", began),
                ("Initialized", "True", began),
                ("ContainersReady", true, now()),
                ("Ready", true, now()),
            )
        ]
        container = {
            "name": self.container["name"],
            "image": self.container["image"],
            "imageID": "",
            "ready": self.ready,
            "started": "running" in state,
            "restartCount": self.restarts,
            "state": state,
        }
        status = {
            "phase": phase,
            "conditions": conditions,
            "startTime": began,
            "podIP": self.ip,
            "podIPs": [{"ip": self.ip}],
            "containerStatuses": [container],
        }
        self.kubelet.patch(f"{self.path}/status", {"status": status})


class _Probe:
    """One of a pod's three probes."""

    def __init__(self, pod: Pod, name: str) -> None:
        probe = pod.container[name]
        self._url = f"http://127.0.0.1:{pod.port}{probe['httpGet']['path']}"
        self._period, self._timeout = probe["periodSeconds"], probe["timeoutSeconds"]
        self._threshold = probe["failureThreshold"]
        self._next, self._failures = 0.0, 0
        self.has_passed = False

    @property
    def failed(self) -> bool:
        return self._failures >= self._threshold

    def look(self) -> None:
        """Ask, if it is time to."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._period
        try:
            httpx2.get(self._url, timeout=self._timeout, trust_env=False).raise_for_status()
            self.has_passed, self._failures = True, 0
        except httpx2.HTTPError:
            self._failures += 1
