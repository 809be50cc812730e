"""The programs of a control plane. The project has none of them: WAKUPUSH_TEST_CLUSTER names a folder that has."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "WAKUPUSH_TEST_CLUSTER"
#: Files of the folder, and the arguments that print their version.
PROGRAMS = {
    "etcd": ("--version",),
    "kube-apiserver": ("--version",),
    "kube-controller-manager": ("--version",),
    "kube-scheduler": ("--version",),
    "kubectl": ("version", "--client=true"),
    "keda-operator": (),
    "keda-adapter": (),
    "keda-webhooks": (),
    "prometheus": ("--version",),
}
#: KEDA's folder `config` of the same version as its programs: definitions, rights, webhooks.
KEDA_CONFIG = "keda-config"


class MissingError(Exception):
    """The folder is not named, or lacks files; the text says which."""


@dataclass(frozen=True)
class Binaries:
    """A folder that has all programs."""

    folder: Path
    helm: Path

    def __getitem__(self, program: str) -> str:
        return str(self.folder / program)

    @property
    def keda_config(self) -> Path:
        return self.folder / KEDA_CONFIG

    def versions(self) -> dict[str, str]:
        """Return the first line that each program prints of its version."""
        return {
            name: subprocess.run([self[name], *arguments], capture_output=True, text=True, check=True)
            .stdout.partition("\n")[0]
            .strip()
            for name, arguments in PROGRAMS.items()
            if arguments
        }


def find(helm: Path) -> Binaries:
    """Return the programs.

    Raises:
        MissingError: something is missing.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        raise MissingError(f"{VARIABLE} is not set: name a folder with {', '.join(PROGRAMS)} and {KEDA_CONFIG}/")
    folder = Path(named).resolve()
    paths = [*(folder / name for name in (*PROGRAMS, KEDA_CONFIG)), helm]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise MissingError(f"missing: {', '.join(missing)}")
    return Binaries(folder, helm)
