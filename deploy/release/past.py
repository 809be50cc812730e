"""Checkouts of earlier releases."""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
#: The folder for checkouts of other revisions, each with its `.venv`.
CHECKOUTS: Final = ROOT / ".tools" / "against"
#: The commit from which all upgrades go on. It is the last release where there are no tags.
BASE: Final = "a279e435134c"
#: Variables of a stack that the last release refuses as unknown settings.
NEWER_SETTINGS: Final = frozenset({"WAKUPUSH_HTTP_HOST"})


def last_release() -> str:
    """Return the tag of the release before this code, or `BASE` if there is no tag."""
    command = ["git", "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return BASE if result.returncode else result.stdout.strip()


def commit_of(revision: str) -> str:
    """Return the hash of a revision's commit.

    Raises:
        subprocess.CalledProcessError: there is no such revision.
    """
    command = ["git", "rev-parse", "--verify", f"{revision}^{{commit}}"]
    result = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return result.stdout.strip()


def checkout(revision: str) -> Path:
    """Return a folder with a revision that is set up with its own `.venv`; the first time this takes minutes.

    Raises:
        subprocess.CalledProcessError: there is no such revision, or it cannot be set up.
    """
    commit = commit_of(revision)
    folder = CHECKOUTS / commit[:12]
    if not folder.exists():
        _run(["git", "worktree", "prune"], ROOT)
        _run(["git", "worktree", "add", "--detach", str(folder), commit], ROOT)
    _run(["make", "--silent", "setup"], folder)
    return folder


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr)
