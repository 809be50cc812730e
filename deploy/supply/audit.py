"""`make audit`: fails on known holes in what the lock files pin, except those in accepted.toml."""

import datetime as dt
import itertools
import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from deploy.supply.locks import REQUIREMENTS, Pin, pins

ACCEPTED: Final = Path(__file__).parent / "accepted.toml"


class Hole(NamedTuple):
    """A known hole in a version of a package."""

    pin: Pin
    #: All its names, first the one that pip-audit prefers.
    ids: tuple[str, ...]
    fixed_in: tuple[str, ...]


class Accepted(NamedTuple):
    """A hole that is accepted up to a day, which is included."""

    id: str
    package: str
    reason: str
    until: dt.date


class AuditError(Exception):
    """The known holes of the pins could not be found out."""


def known(pinned: Iterable[Pin]) -> list[Hole]:
    """Ask pip-audit for the known holes; its own environment variables choose the service that it asks.

    Raises:
        AuditError: pip-audit failed, or its service does not know one of the packages.
    """
    # pip-audit takes a package once: further versions, for other versions of Python, are checked in further runs.
    versions = defaultdict[str, list[str]](list)
    for name, version in sorted(pinned):
        versions[name].append(version)
    rounds = itertools.zip_longest(*([Pin(name, each) for each in all_] for name, all_ in versions.items()))
    return [hole for one in rounds for hole in _ask([pin for pin in one if pin])]


def _ask(pinned: list[Pin]) -> list[Hole]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{name}=={version}\n" for name, version in pinned))
        file.flush()
        options = ["--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json", "--requirement", file.name]
        answer = subprocess.run(  # noqa: S603 - our own arguments
            [sys.executable, "-m", "pip_audit", *options],
            capture_output=True,
            text=True,
            check=False,
        )
    # It exits with 1 if there are holes, and also if it failed.
    if not answer.stdout:
        raise AuditError(f"pip-audit failed:\n{answer.stderr}")
    return read(json.loads(answer.stdout))


def read(report: dict[str, Any]) -> list[Hole]:
    """Return the holes in pip-audit's report.

    Raises:
        AuditError: it skipped a package.
    """
    skipped = [each for each in report["dependencies"] if "skip_reason" in each]
    if skipped:
        raise AuditError(f"pip-audit could not look at {len(skipped)} packages, at first: {skipped[0]['skip_reason']}")
    return [
        Hole(Pin(each["name"], each["version"]), (hole["id"], *hole["aliases"]), tuple(hole["fix_versions"]))
        for each in report["dependencies"]
        for hole in each["vulns"]
    ]


def accepted(file: Path = ACCEPTED) -> list[Accepted]:
    """Return the accepted holes."""
    return [Accepted(**each) for each in tomllib.loads(file.read_text()).get("accepted", [])]


def faults(holes: Iterable[Hole], exceptions: Iterable[Accepted], today: dt.date) -> list[str]:
    """Return a line for each fault: holes that are not accepted, and exceptions that are over or not needed."""
    holes, exceptions = list(holes), list(exceptions)

    def covers(exception: Accepted, hole: Hole) -> bool:
        return exception.id in hole.ids and exception.package == hole.pin.name

    gaps = [
        f"{hole.pin.name} {hole.pin.version}: {', '.join(hole.ids)}; "
        + (f"mended in {', '.join(hole.fixed_in)}" if hole.fixed_in else "not mended yet")
        for hole in holes
        if not any(covers(exception, hole) for exception in exceptions)
    ]
    for exception in exceptions:
        if exception.until < today:
            gaps.append(f"{exception.id} of {exception.package} was accepted until {exception.until} only")
        if not any(covers(exception, hole) for hole in holes):
            gaps.append(f"{exception.id} of {exception.package} is accepted, and no longer there")
    return gaps


def main() -> None:
    """Check all lock files."""
    pinned = set[Pin]().union(*map(pins, REQUIREMENTS.glob("*.lock")))
    exceptions = accepted()
    try:
        problems = faults(known(pinned), exceptions, dt.datetime.now(dt.UTC).date())
    except AuditError as error:
        sys.exit(str(error))
    if problems:
        sys.exit("\n".join(problems))
    sys.stdout.write(f"{len(pinned)} versions have no known hole that is not accepted ({len(exceptions)} are)\n")


if __name__ == "__main__":
    main()
