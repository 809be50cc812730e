"""What a cluster has besides its control plane: KEDA, Prometheus, and the API of the metrics server."""

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from cluster.control_plane import ControlPlane
from wakupush.devnet.processes import answers_http, free_port, wait_until

NAMESPACE = "keda"


def register_api(plane: ControlPlane, group: str, version: str, port: int) -> None:
    """Let the API server hand on a group of its API to a server on loopback."""
    name = f"{group}-server".replace(".", "-")
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "caBundle": _ca(plane),
                "service": {"name": name, "namespace": "kube-system", "port": port},
            },
        },
    )


def wait_for_api(plane: ControlPlane, group: str, version: str) -> None:
    """Wait until the API server finds the server of a group."""
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{version}.{group}"

    def available() -> bool:
        conditions = plane.get(path).get("status", {}).get("conditions", [])
        return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

    wait_until(available, timeout=120, what=f"the API {group} is available", interval=0.5)


@contextmanager
def keda(plane: ControlPlane) -> Iterator[None]:
    """Run KEDA's operator, metrics server and admission webhooks, with the rights of its own installation."""
    config = plane.binaries.keda_config
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    plane.kubectl("apply", "--server-side", "-f", str(config / "crd" / "bases"))
    for file in ("service_account/service_account", "rbac/role", "rbac/role_binding"):
        plane.kubectl("apply", "-n", NAMESPACE, "-f", str(config / f"{file}.yaml"))
    for file in ("role", "role_binding"):
        plane.kubectl("apply", "-f", str(config / "metrics-server" / f"{file}.yaml"))
    token = plane.kubectl("-n", NAMESPACE, "create", "token", "keda-operator", "--duration=24h").strip()
    kubeconfig = str(plane.write_kubeconfig("keda", {"token": token}))
    certificates = _certificates(plane)
    webhooks, api, grpc, *others = (free_port() for _ in range(9))
    where = [f"127.0.0.1:{port}" for port in others]
    environment = {
        "KUBECONFIG": kubeconfig,
        "POD_NAMESPACE": NAMESPACE,
        "POD_NAME": "keda-operator-0",
        "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
        "WATCH_NAMESPACE": "",
    }
    authority = str(plane.authority.certificate)
    processes = [
        plane.process(
            "keda-operator",
            f"--cert-dir={certificates}",
            f"--ca-dir={certificates}",
            f"--metrics-bind-address={where[0]}",
            f"--health-probe-bind-address={where[1]}",
            f"--metrics-service-bind-address=127.0.0.1:{grpc}",
            "--enable-cert-rotation=false",
            env=environment,
            ready=lambda: answers_http(f"http://{where[1]}/readyz"),
        ),
        plane.process(
            "keda-adapter",
            "--bind-address=127.0.0.1",
            f"--secure-port={api}",
            f"--port={others[2]}",
            f"--client-ca-file={authority}",
            f"--cert-dir={certificates}",
            f"--tls-cert-file={certificates / 'tls.crt'}",
            f"--tls-private-key-file={certificates / 'tls.key'}",
            f"--metrics-service-address=localhost:{grpc}",
            *(f"--{use}-kubeconfig={kubeconfig}" for use in ("authentication", "authorization", "lister")),
            env=environment,
        ),
        plane.process(
            "keda-webhooks",
            f"--cert-dir={certificates}",
            f"--port={webhooks}",
            f"--metrics-bind-address={where[3]}",
            f"--health-probe-bind-address={where[4]}",
            env=environment,
            ready=lambda: answers_http(f"http://{where[4]}/readyz"),
        ),
    ]
    register_api(plane, "external.metrics.k8s.io", "v1beta1", api)
    with processes[0], processes[1], processes[2]:
        wait_for_api(plane, "external.metrics.k8s.io", "v1beta1")
        plane.apply(_webhooks(plane, config, webhooks))
        yield


class Prometheus:
    """A Prometheus that scrapes the pods; the file of its targets is the kubelet's.

    Args:
        plane: whose binaries and directory it has.
        targets: a file for file_sd_configs.
    """

    def __init__(self, plane: ControlPlane, targets: Path) -> None:
        directory = plane.directory / "prometheus"
        directory.mkdir()
        job = {"job_name": "pods", "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "5s"}]}
        config = {"global": {"scrape_interval": "5s", "scrape_timeout": "4s"}, "scrape_configs": [job]}
        file = directory / "prometheus.yml"
        file.write_text(yaml.safe_dump(config))
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        self.process = plane.process(
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={directory}",
            f"--web.listen-address={address}",
            ready=lambda: answers_http(f"{self.url}/-/ready"),
        )


def _ca(plane: ControlPlane) -> str:
    return base64.b64encode(plane.authority.certificate.read_bytes()).decode()


def _certificates(plane: ControlPlane) -> Path:
    """Return a folder with the names that KEDA's programs expect."""
    folder = plane.directory / "keda"
    folder.mkdir()
    certificate, key = plane.authority.sign("keda", "keda")
    for source, name in ((plane.authority.certificate, "ca.crt"), (certificate, "tls.crt"), (key, "tls.key")):
        shutil.copy(source, folder / name)
    return folder


def _webhooks(plane: ControlPlane, config: Path, port: int) -> dict[str, Any]:
    """Return KEDA's webhooks, at loopback in place of a Service. One that cannot be asked refuses."""
    manifest = yaml.safe_load((config / "webhooks" / "validation_webhooks.yaml").read_text())
    for webhook in manifest["webhooks"]:
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {"url": f"https://localhost:{port}{path}", "caBundle": _ca(plane)}
        webhook["failurePolicy"] = "Fail"
    return json.loads(json.dumps(manifest))
