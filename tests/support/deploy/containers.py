"""What a container engine does with `docker/Dockerfile`, as far as Linux does it by itself: where there is no podman.

Each stage is a layer of an overlay over this machine's own root, which stands for the base image; its RUN lines are run
in it by chroot, as they are. A container is the layers without one to write to, an unprivileged user without
capabilities, and a tmpfs on /tmp. That needs root and `unshare`; the network is this machine's, but for its name, which
is one that nobody can resolve.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
#: Variables with which the package client of this machine works.
_CLIENT = re.compile(r"PIP_|HTTPS?_PROXY|SSL_CERT|REQUESTS_CA", re.IGNORECASE)

_IN_NAMESPACE = ("unshare", "--mount", "--uts", "sh", "-c")
_LAYERS = """
set -eu
hostname container
mount --make-rprivate /
mount -t overlay overlay -o "$OVERLAY" "$MERGED"
mount --rbind /proc "$MERGED/proc"
mount --rbind /dev "$MERGED/dev"
"""
_BUILD = _LAYERS + 'exec chroot "$MERGED" /usr/bin/env -i "$@"'
_RUN = (
    _LAYERS
    + """
mount -t tmpfs -o mode=1777 tmpfs "$MERGED/tmp"
mount -t tmpfs -o mode=755 tmpfs "$MERGED/run"
if [ -n "$SECRETS" ]; then
    mkdir "$MERGED/run/secrets"
    mount --bind "$SECRETS" "$MERGED/run/secrets"
fi
mount -o remount,ro "$MERGED/run"
if [ -n "$VOLUME" ]; then
    mount --bind "$VOLUME" "$MERGED/volume"
fi
exec chroot "$MERGED" /usr/bin/setpriv --reuid "$RUN_UID" --regid "$RUN_GID" --clear-groups \\
    --bounding-set=-all --inh-caps=-all --no-new-privs /usr/bin/env -i "$@"
"""
)


def missing_tool() -> str | None:
    """What keeps containers from being made here."""
    if os.geteuid() != 0:
        return "run the tests as root: they make overlays and change the user"
    if not all(map(shutil.which, ("unshare", "setpriv", "hostname"))):
        return "install util-linux (unshare, setpriv) and hostname"
    if subprocess.run(["unshare", "--mount", "--uts", "true"], check=False, capture_output=True).returncode:
        return "this system lets nobody make a namespace"
    return None


@dataclass
class Stage:
    name: str
    #: Directories, topmost first.
    layers: list[Path]
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)
    #: What runs the commands of RUN.
    shell: list[str] = field(default_factory=lambda: ["sh", "-c"])


def instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line.strip()]


class Builder:
    """Builds the stages of the Dockerfile, all of them, in order.

    Args:
        directory: for the layers; not on the file system of `/`, of which an overlay would otherwise hold a part twice.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stages: dict[str, Stage] = {}
        self._allowed = [
            line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
        ]

    def build(self) -> dict[str, Stage]:
        bases = {"${PYTHON}": self._base(), "${JAVA}": self._java()}
        stage = bases["${PYTHON}"]
        for instruction, text in instructions(DOCKERFILE.read_text()):
            if instruction == "FROM":
                parent, name = text.split(" AS ")
                stage = self._stage(name, bases[parent] if parent in bases else self.stages[parent])
            else:
                self._apply(stage, instruction, text)
        return self.stages

    def _apply(self, stage: Stage, instruction: str, text: str) -> None:
        match instruction:
            case "RUN":
                self._run(stage, text)
            case "COPY":
                self._copy(stage, *shlex.split(text))
            case "ENV":
                for name, value in (pair.split("=", 1) for pair in shlex.split(text)):
                    stage.env[name] = value.replace("$PATH", stage.env["PATH"])
            case "WORKDIR":
                stage.workdir = text
                (stage.layers[0] / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "USER":
                stage.user = text
            case "SHELL":
                stage.shell = json.loads(text)
            case "ENTRYPOINT":
                stage.entrypoint = json.loads(text)
            case "HEALTHCHECK":
                stage.healthcheck = json.loads(text.split(" CMD ", 1)[1])
            case _:
                assert instruction in {"ARG", "EXPOSE", "STOPSIGNAL", "LABEL", "CMD"}, instruction

    def _base(self) -> Stage:
        """The base image: this machine, with the Python of these tests where an image of Python has it."""
        python = Path(os.path.realpath(sys.executable))
        layer = self.directory / "layers" / "base-image"
        (layer / "usr/local/bin").mkdir(parents=True)
        (layer / "usr/local/bin/python").symlink_to(python)
        # Open to others, as it would be in an image.
        for folder in python.parents:
            if folder != Path("/") and not folder.stat().st_mode & 0o001:
                (layer / folder.relative_to("/")).mkdir(parents=True, exist_ok=True)
                (layer / folder.relative_to("/")).chmod(0o755)
        # Its own folder comes first: a virtual environment looks for the standard library beside the program.
        path = f"{python.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return Stage("base-image", [layer], env={"PATH": path})

    def _java(self) -> Stage:
        """An image of Java, with that of this machine where such images have it."""
        layer = self.directory / "layers" / "java-image"
        if java := shutil.which("java"):
            home = Path(os.path.realpath(java)).parents[1]
            # What is elsewhere on this machine comes along: its configuration, and certificates.
            shutil.copytree(home, layer / "opt/java/openjdk", ignore_dangling_symlinks=True)
        return Stage("java-image", [layer])

    def _stage(self, name: str, parent: Stage) -> Stage:
        layer = self.directory / "layers" / name
        layer.mkdir(parents=True)
        self.stages[name] = Stage(
            name, [layer, *parent.layers], dict(parent.env), parent.workdir, parent.user, list(parent.entrypoint)
        )
        return self.stages[name]

    def _copy(self, stage: Stage, *words: str) -> None:
        source_root = ROOT
        sources = list(words)
        target = sources.pop()
        if sources[0].startswith("--from="):
            stage_root = self.stages[sources.pop(0).removeprefix("--from=")].layers
            source_root = next(
                layer for layer in stage_root if all((layer / source.lstrip("/")).exists() for source in sources)
            )
        else:
            for source in sources:
                assert any(fnmatch(source, pattern) for pattern in self._allowed), f".dockerignore hides {source}"
        destination = stage.layers[0] / str(Path(stage.workdir) / target).lstrip("/")
        for source in sources:
            path = source_root / source.lstrip("/")
            if path.is_dir():
                shutil.copytree(
                    path, destination, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                folder = target.endswith(("/", "."))
                (destination if folder else destination.parent).mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, destination)

    def _run(self, stage: Stage, text: str) -> None:
        text = re.sub(r"^(--mount=type=cache\S*\s+)+", "", text)  # this machine's own caches are seen
        client = {name: value for name, value in os.environ.items() if _CLIENT.match(name)}
        env = [f"{name}={value}" for name, value in ({"HOME": "/root"} | client | stage.env).items()]
        lower = ":".join(map(str, [*stage.layers[1:], "/"]))
        work = fresh(self.directory, "work")
        result = subprocess.run(
            [*_IN_NAMESPACE, _BUILD, "build", *env, *stage.shell, f"cd {shlex.quote(stage.workdir)}; {text}"],
            env=os.environ
            | {
                "OVERLAY": f"lowerdir={lower},upperdir={stage.layers[0]},workdir={work}",
                "MERGED": str(fresh(self.directory, "merged")),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{stage.name}: RUN {text}\n{result.stdout}\n{result.stderr}"

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
        uid, gid = (user or stage.user).split(":")
        inside = [f"{name}={value}" for name, value in (stage.env | env).items()]
        outside = {
            "PATH": os.environ["PATH"],
            # No upper layer: nothing can be written.
            "OVERLAY": "lowerdir=" + ":".join(map(str, [self._mount_point(), *stage.layers, "/"])),
            "MERGED": str(fresh(self.directory, "merged")),
            "SECRETS": str(secrets or ""),
            "VOLUME": str(volume or ""),
            "RUN_UID": uid,
            "RUN_GID": gid,
        }
        in_workdir = ["sh", "-c", f'cd {shlex.quote(stage.workdir)}; exec "$@"', "run"]
        return [*_IN_NAMESPACE, _RUN, "run", *inside, *in_workdir, *command], outside

    def close(self) -> None:
        """Nothing is left but the folder."""

    def _mount_point(self) -> Path:
        """A layer that has the folder that a volume is mounted on."""
        layer = self.directory / "layers" / "mount-point"
        (layer / "volume").mkdir(parents=True, exist_ok=True)
        return layer


@contextmanager
def memory(directory: Path) -> Iterator[Path]:
    """A file system of its own at a directory, in memory."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755,size=5g", "tmpfs", directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def fresh(directory: Path, name: str) -> Path:
    """Return a new directory."""
    folder = directory / name
    folder.mkdir(exist_ok=True)
    layer = folder / str(len(list(folder.iterdir())))
    layer.mkdir()
    return layer
