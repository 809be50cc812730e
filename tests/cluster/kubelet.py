"""Nodes whose pods are plain processes: without images, network policies, and limits of CPU and memory."""

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self
from urllib.parse import parse_qs, urlparse

import httpx2

from cluster.control_plane import ControlPlane
from cluster.pod import Pod, now

#: Seconds between two looks at the pods of all nodes.
LOOK = 0.3
#: Seconds between two measurements of CPU time.
MEASURED = 10.0


class Kubelet:
    """All nodes, while the block lasts; it also serves the pods' logs, and their CPU time as the metrics server does.

    Args:
        plane: the control plane.
        nodes: their names.
        programs: the folder of what pods run, `wakupush` unless they have a command.
        targets: a file for Prometheus' file_sd_configs, kept up to date.
    """

    def __init__(self, plane: ControlPlane, nodes: list[str], programs: Path, targets: Path) -> None:
        self.plane, self.nodes, self.programs, self.targets = plane, nodes, programs, targets
        self.directory = plane.directory / "pods"
        #: Variables that all pods have, as if from their image.
        self.image: dict[str, str] = {}
        self.http, self.get = plane.http, plane.get
        self.pods: dict[str, Pod] = {}
        #: Pods that were asked to end: component, exit code, seconds.
        self.stopped: list[tuple[str, int, float]] = []
        #: What went wrong.
        self.notes: list[str] = []
        self._ips = 0
        self._stop_event = Event()
        self._server = self._serve()
        self.port = self._server.server_port
        self._threads = [
            Thread(target=self._server.serve_forever, daemon=True),
            *(Thread(target=self._repeat, args=work) for work in ((self._look, LOOK), (self._beat, 10.0))),
            Thread(target=self._repeat, args=(self._measure, MEASURED)),
        ]

    def __enter__(self) -> Self:
        for name in self.nodes:
            labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": name}
            self.plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
        self._beat()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop_event.set()
        self._server.shutdown()
        self._server.server_close()
        for pod in list(self.pods.values()):
            if pod.process is not None:
                pod.process.kill()

    def note(self, text: str) -> None:
        self.notes.append(f"{now()} {text}")

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Note an error in place of letting a thread end by it, unless all ends."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the rehearsal tells
            if not self._stop_event.is_set():
                self.note(f"{what}: {error!r}")

    def patch(self, path: str, body: dict[str, Any]) -> None:
        kind = {"Content-Type": "application/strategic-merge-patch+json"}
        answer = self.http.patch(path, content=json.dumps(body), headers=kind)
        if answer.status_code != httpx2.codes.NOT_FOUND:
            answer.raise_for_status()

    def host_names(self) -> list[str]:
        """Return the names that pods have by a headless Service."""
        specs = [(pod.spec, pod.namespace) for pod in self.pods.values()]
        named = [(spec["hostname"], spec["subdomain"], namespace) for spec, namespace in specs if "subdomain" in spec]
        return sorted({f"{host}.{service}.{namespace}.svc" for host, service, namespace in named})

    def claimed(self, claim: str) -> Path:
        """Return the folder that stands for the volume of a claim."""
        folder = self.plane.directory / "claims" / claim
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def next_ip(self) -> str:
        """Return an address that nobody can reach: probes and Prometheus ask loopback."""
        self._ips += 1
        return f"10.245.{self._ips // 250}.{self._ips % 250 + 1}"

    def _repeat(self, work: Callable[[], None], pause: float) -> None:
        while not self._stop_event.wait(pause):
            with self.noting(work.__name__):
                work()

    def _look(self) -> None:
        for manifest in self.get("/api/v1/pods")["items"]:
            metadata, node = manifest["metadata"], manifest["spec"].get("nodeName")
            if node not in self.nodes:
                continue
            pod = self.pods.get(metadata["uid"])
            if pod is None:
                pod = self.pods[metadata["uid"]] = Pod(self, manifest)
                pod.directory.joinpath("run").mkdir(parents=True)
                pod.thread.start()
            if "deletionTimestamp" in metadata and not pod.stop_event.is_set():
                pod.grace = metadata["deletionGracePeriodSeconds"]
                pod.stop_event.set()
        self._write_targets()

    def _write_targets(self) -> None:
        running = [
            pod for pod in self.pods.values() if pod.port and pod.thread.is_alive() and not pod.stop_event.is_set()
        ]
        targets = [
            {
                "targets": [f"127.0.0.1:{pod.port}"],
                "labels": {"namespace": pod.namespace, "pod": pod.name, "component": pod.component},
            }
            for pod in running
        ]
        text = json.dumps(targets)
        if self.targets.read_text() != text:
            new = self.targets.with_suffix(".new")
            new.write_text(text)
            new.rename(self.targets)

    def _measure(self) -> None:
        for pod in list(self.pods.values()):
            pod.measure()

    def _beat(self) -> None:
        """Say that the nodes are well."""
        conditions = [
            {"type": name, "status": status, "reason": "Rehearsal", "lastHeartbeatTime": now()}
            for name, status in _CONDITIONS.items()
        ]
        amount = {"cpu": "64", "memory": "256Gi", "pods": "300"}
        status = {
            "conditions": conditions,
            "capacity": amount,
            "allocatable": amount,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        }
        for name in self.nodes:
            self.patch(f"/api/v1/nodes/{name}/status", {"status": status})
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": {
                    "holderIdentity": name,
                    "leaseDurationSeconds": 40,
                    "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                },
            }
            path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
            kind = {"Content-Type": "application/apply-patch+yaml"}
            query = {"fieldManager": "kubelet", "force": "true"}
            self.http.patch(path, content=json.dumps(lease), headers=kind, params=query).raise_for_status()

    def _serve(self) -> ThreadingHTTPServer:
        kubelet = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
                pass

            def do_GET(self) -> None:
                body, kind = kubelet.answer(self.path)
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.plane.authority.sign("kubelet", "kubelet"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        return server

    def answer(self, path: str) -> tuple[bytes, str]:
        """Return what the kubelet's API, and that of the metrics server, say to a GET, and its type."""
        url = urlparse(path)
        match url.path.strip("/").split("/"):
            case ["containerLogs", namespace, name, _]:
                [pod] = [each for each in self.pods.values() if (each.namespace, each.name) == (namespace, name)][-1:]
                return pod.log.read_bytes(), "text/plain"
            case ["apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods"]:
                selector = parse_qs(url.query).get("labelSelector", [""])[0]
                manifests = self.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)["items"]
                pods = [
                    self.pods[each["metadata"]["uid"]] for each in manifests if each["metadata"]["uid"] in self.pods
                ]
                return _json(_metrics(pod) for pod in pods if pod.thread.is_alive() and not pod.is_job)
            case _:
                return json.dumps(_RESOURCES).encode(), "application/json"


_CONDITIONS = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
_RESOURCES = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": "metrics.k8s.io/v1beta1",
    "resources": [
        {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
    ],
}


def _json(items: Iterator[dict[str, Any]]) -> tuple[bytes, str]:
    listed = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": list(items)}
    return json.dumps(listed).encode(), "application/json"


def _metrics(pod: Pod) -> dict[str, Any]:
    usage = {"cpu": f"{round(pod.usage * 1000)}m", "memory": "100Mi"}
    return {
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": pod.metadata["labels"]},
        "timestamp": now(),
        "window": f"{MEASURED:g}s",
        "containers": [{"name": pod.container["name"], "usage": usage}],
    }
