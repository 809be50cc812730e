"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback, and ways to ask them."""

import json
import os
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import httpx2
import yaml

from cluster.binaries import Binaries
from cluster.certificates import Authority, service_account_key
from wakupush.devnet.processes import Process, answers_http, free_port

#: Who may do everything.
MASTERS = "system:masters"


class CommandError(Exception):
    """kubectl or helm failed; the text is what it printed."""


class ControlPlane:
    """A control plane that runs inside the block. It has no nodes, and no network but loopback."""

    def __init__(self, binaries: Binaries, directory: Path) -> None:
        self.binaries = binaries
        self.directory = directory
        self.authority = Authority(directory / "pki")
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._admin = self.authority.sign("admin", "admin", MASTERS)
        self.kubeconfig = self._write_kubeconfig("admin", self._admin)
        #: As the admin.
        self.http = self._client()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for process in self._processes():
                stack.enter_context(process)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self.http.close()
        self._stack.close()

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Return an object or a list."""
        answer = self.http.get(path, params=query)
        answer.raise_for_status()
        return answer.json()

    def apply(self, *objects: dict[str, Any]) -> None:
        """Make objects, or change them into these."""
        text = yaml.safe_dump_all(objects)
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)

    def kubectl(self, *arguments: str, text: str | None = None, timeout: float = 300) -> str:
        """Run kubectl as the admin and return what it printed.

        Raises:
            CommandError: it failed.
        """
        return _run([self.binaries["kubectl"], *arguments], self._environment(), text, timeout)

    def helm(self, *arguments: str, timeout: float = 600) -> str:
        """Run Helm as the admin and return what it printed.

        Raises:
            CommandError: it failed.
        """
        return _run([str(self.binaries.helm), *arguments], self._environment(), None, timeout)

    def write_kubeconfig(self, name: str, user: dict[str, str]) -> Path:
        """Write a kubeconfig with these credentials and return its path."""
        cluster = {"server": self.url, "certificate-authority": str(self.authority.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rehearsal", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "rehearsal", "context": {"cluster": "rehearsal", "user": name}}],
            "current-context": "rehearsal",
        }
        path = self.authority.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def process(self, name: str, *arguments: str, **options: Any) -> Process:
        """Return a process of one of the binaries, which is not started yet."""
        return Process(
            name,
            [self.binaries[name], *arguments],
            log=self.directory / "logs" / f"{name}.log",
            **options,
        )

    def _write_kubeconfig(self, name: str, files: tuple[Path, Path]) -> Path:
        certificate, key = files
        return self.write_kubeconfig(name, {"client-certificate": str(certificate), "client-key": str(key)})

    def _environment(self) -> dict[str, str]:
        home = str(self.directory)
        return {"PATH": os.environ["PATH"], "HOME": home, "KUBECONFIG": str(self.kubeconfig)}

    def _client(self) -> httpx2.Client:
        context = ssl.create_default_context(cafile=self.authority.certificate)
        context.load_cert_chain(*self._admin)
        return httpx2.Client(base_url=self.url, verify=context, timeout=30, trust_env=False)

    def _processes(self) -> list[Process]:
        pki, sign = self.authority.folder, self.authority.sign
        etcd, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        certificate, key = sign("apiserver", "kube-apiserver")
        proxy_certificate, proxy_key = sign("proxy", "front-proxy-client")
        public, private = service_account_key(pki)
        authority = str(self.authority.certificate)
        manager = self._write_kubeconfig("manager", sign("manager", "system:kube-controller-manager"))
        scheduler = self._write_kubeconfig("scheduler", sign("scheduler", "system:kube-scheduler"))
        return [
            self.process(
                "etcd",
                f"--data-dir={self.directory / 'etcd'}",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                ready=lambda: answers_http(f"{etcd}/health"),
            ),
            self.process(
                "kube-apiserver",
                f"--etcd-servers={etcd}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--endpoint-reconciler-type=none",
                f"--secure-port={self.port}",
                f"--tls-cert-file={certificate}",
                f"--tls-private-key-file={key}",
                f"--client-ca-file={authority}",
                f"--kubelet-certificate-authority={authority}",
                f"--service-account-key-file={public}",
                f"--service-account-signing-key-file={private}",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--authorization-mode=Node,RBAC",
                f"--audit-policy-file={self._write_audit_policy()}",
                f"--audit-log-path={self.directory / 'logs' / 'audit.jsonl'}",
                f"--requestheader-client-ca-file={authority}",
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-username-headers=X-Remote-User",
                f"--proxy-client-cert-file={proxy_certificate}",
                f"--proxy-client-key-file={proxy_key}",
                ready=self._is_ready,
            ),
            self.process(
                "kube-controller-manager",
                f"--kubeconfig={manager}",
                "--leader-elect=false",
                "--secure-port=0",
                f"--service-account-private-key-file={private}",
                f"--root-ca-file={authority}",
                # So each controller has its own rights, that of the HPA too.
                "--use-service-account-credentials=true",
            ),
            self.process("kube-scheduler", f"--kubeconfig={scheduler}", "--leader-elect=false", "--secure-port=0"),
        ]

    def asked_by(self, account: str) -> set[tuple[str, str, int]]:
        """Return what a service account asked for: verb, resource, and status of the answer.

        Args:
            account: `NAMESPACE:NAME`.
        """
        lines = (self.directory / "logs" / "audit.jsonl").read_text().splitlines()
        requests = [each for each in map(json.loads, lines) if each["user"]["username"].endswith(f":{account}")]
        return {(each["verb"], each["objectRef"]["resource"], each["responseStatus"]["code"]) for each in requests}

    def _write_audit_policy(self) -> Path:
        """Write down what service accounts of namespaces that are not Kubernetes' own ask for."""
        rules = [
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"], "omitStages": ["RequestReceived"]},
            {"level": "None"},
        ]
        path = self.directory / "audit.yaml"
        path.write_text(yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
        return path

    def _is_ready(self) -> bool:
        try:
            return self.http.get("/readyz").is_success
        except httpx2.TransportError:
            return False


def _run(command: list[str], environment: dict[str, str], text: str | None, timeout: float) -> str:
    process = subprocess.run(
        command, env=environment, input=text, capture_output=True, text=True, timeout=timeout, check=False
    )
    if process.returncode:
        raise CommandError(f"{' '.join(Path(command[0]).name.split() + command[1:])}\n{process.stdout}{process.stderr}")
    return process.stdout
