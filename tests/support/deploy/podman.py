"""The images as `make images` builds them, and containers of podman; it can what the stand-in in containers.py can."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from support.deploy.containers import ROOT, Stage

#: What `docker/build.sh` names the images of the Dockerfile's targets.
IMAGES = {"wakupush": "wakupush"} | {target: f"wakupush-{target}" for target in ("flower", "pipeline", "devnet")}
_LABEL = "org.wakupush.test"
_OPTIONS = (
    # The tests run the health check themselves, where podman would ask systemd to.
    *("--rm", "--network", "host", "--http-proxy=false", "--entrypoint", "", "--no-healthcheck"),
    *("--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp:size=64m,mode=1777"),  # noqa: S108 - inside
    *("--cap-drop", "all", "--security-opt", "no-new-privileges"),
    # Those of podman itself may be more than this process may give.
    *("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"),
)
#: crun takes cgroups of both versions side by side for a fault, where only the first has controllers.
_WITHOUT_HYBRID = ("unshare", "--mount", "sh", "-c", 'umount /sys/fs/cgroup/unified; exec "$@"', "podman")


def there() -> bool:
    """Whether images can be built, and run, with what `make images` installs."""
    return os.geteuid() == 0 and all(map(shutil.which, ("buildah", "podman", "crun", "mmdebstrap")))


class Podman:
    """Builds the images, and runs commands in them."""

    def __init__(self, directory: Path) -> None:
        self.stages: dict[str, Stage] = {}
        self._label = f"{_LABEL}={directory.name}"
        self._podman = ["podman", "--cgroup-manager", "cgroupfs", "--runtime", "crun"]
        if Path("/sys/fs/cgroup/unified").is_dir():
            self._podman = [*_WITHOUT_HYBRID, *self._podman]

    def build(self) -> None:
        result = subprocess.run([ROOT / "docker" / "build.sh"], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout[-10_000:] + result.stderr[-10_000:]
        self.stages = {stage: self._inspect(stage, image) for stage, image in IMAGES.items()}

    def _inspect(self, stage: str, image: str) -> Stage:
        [inspection] = json.loads(self._run("image", "inspect", f"localhost/{image}:{_version()}"))
        config = inspection["Config"]
        return Stage(
            stage,
            layers=[],
            env=dict(variable.split("=", 1) for variable in config["Env"]),
            workdir=config["WorkingDir"],
            user=config["User"],
            entrypoint=config["Entrypoint"],
            healthcheck=inspection.get("Healthcheck", {}).get("Test", ["CMD"])[1:],
        )

    def container(
        self,
        stage: Stage,
        command: list[str],
        env: dict[str, str],
        *,
        user: str = "",
        secrets: Path | None = None,
        volume: Path | None = None,
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command and environment that run `command` in a read-only container of the image.

        Secrets are at /run/secrets, the volume at /volume.
        """
        options = [*_OPTIONS, "--label", self._label]
        options += [f"--env={name}={value}" for name, value in env.items()]
        options += ["--user", user] if user else []
        options += [f"--volume={secrets}:/run/secrets"] if secrets else []
        options += [f"--volume={volume}:/volume"] if volume else []
        image = f"localhost/{IMAGES[stage.name]}:{_version()}"
        return [*self._podman, "run", *options, image, *command], dict(os.environ)

    def close(self) -> None:
        """Remove what a killed `podman run` left."""
        containers = self._run("ps", "--all", "--quiet", "--filter", f"label={self._label}").split()
        if containers:
            self._run("rm", "--force", "--time", "0", *containers)

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._podman, *words], check=True, capture_output=True, text=True).stdout


def _version() -> str:
    [line] = [line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version = ")]
    return line.split('"')[1]
