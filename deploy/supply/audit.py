"""`make audit`: fails on known vulnerabilities in what the lock files pin, except those in accepted.toml."""

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


class Vulnerability(NamedTuple):
    """A known vulnerability in a version of a package."""

    pin: Pin
    #: All its names, first the one that pip-audit prefers.
    ids: tuple[str, ...]
    fixed_in: tuple[str, ...]


class Exemption(NamedTuple):
    """A vulnerability that is accepted up to and including a day."""

    id: str
    package: str
    reason: str
    until: dt.date


class AuditError(Exception):
    """The known vulnerabilities of the pins could not be read."""


def find_vulnerabilities(pins_to_check: Iterable[Pin]) -> list[Vulnerability]:
    """Ask pip-audit for the known vulnerabilities; its own environment variables choose the service that it asks.

    Raises:
        AuditError: pip-audit failed, or its service does not know one of the packages.
    """
    # pip-audit takes a package once: further versions, for other versions of Python, are checked in further runs.
    versions = defaultdict[str, list[str]](list)
    for name, version in sorted(pins_to_check):
        versions[name].append(version)
    rounds = itertools.zip_longest(*([Pin(name, version) for version in all_] for name, all_ in versions.items()))
    return [vulnerability for one in rounds for vulnerability in _ask([pin for pin in one if pin])]


def _ask(pins_to_check: list[Pin]) -> list[Vulnerability]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{name}=={version}\n" for name, version in pins_to_check))
        file.flush()
        options = ["--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json", "--requirement", file.name]
        answer = subprocess.run(  # noqa: S603 - our own arguments
            [sys.executable, "-m", "pip_audit", *options],
            capture_output=True,
            text=True,
            check=False,
        )
    # It exits with 1 if there are vulnerabilities, and also if it failed.
    if not answer.stdout:
        raise AuditError(f"pip-audit failed:\n{answer.stderr}")
    return read(json.loads(answer.stdout))


def read(report: dict[str, Any]) -> list[Vulnerability]:
    """Return the vulnerabilities in pip-audit's report.

    Raises:
        AuditError: it skipped a package.
    """
    skipped = [dependency for dependency in report["dependencies"] if "skip_reason" in dependency]
    if skipped:
        raise AuditError(f"pip-audit could not look at {len(skipped)} packages, at first: {skipped[0]['skip_reason']}")
    return [
        Vulnerability(
            Pin(dependency["name"], dependency["version"]),
            (vulnerability["id"], *vulnerability["aliases"]),
            tuple(vulnerability["fix_versions"]),
        )
        for dependency in report["dependencies"]
        for vulnerability in dependency["vulns"]
    ]


def exemptions(file: Path = ACCEPTED) -> list[Exemption]:
    """Return the accepted vulnerabilities."""
    return [Exemption(**fields) for fields in tomllib.loads(file.read_text()).get("accepted", [])]


def faults(vulnerabilities: Iterable[Vulnerability], exceptions: Iterable[Exemption], today: dt.date) -> list[str]:
    """Return a line for each fault: vulnerabilities nobody accepted, and exceptions that are over or not needed."""
    vulnerabilities, exceptions = list(vulnerabilities), list(exceptions)

    def covers(exception: Exemption, vulnerability: Vulnerability) -> bool:
        return exception.id in vulnerability.ids and exception.package == vulnerability.pin.name

    gaps = [
        f"{vulnerability.pin.name} {vulnerability.pin.version}: {', '.join(vulnerability.ids)}; "
        + (f"mended in {', '.join(vulnerability.fixed_in)}" if vulnerability.fixed_in else "not mended yet")
        for vulnerability in vulnerabilities
        if not any(covers(exception, vulnerability) for exception in exceptions)
    ]
    for exception in exceptions:
        if exception.until < today:
            gaps.append(f"{exception.id} of {exception.package} was accepted until {exception.until} only")
        if not any(covers(exception, vulnerability) for vulnerability in vulnerabilities):
            gaps.append(f"{exception.id} of {exception.package} is accepted, and no longer there")
    return gaps


def main() -> None:
    """Check all lock files."""
    all_pins = set[Pin]().union(*map(pins, REQUIREMENTS.glob("*.lock")))
    exceptions = exemptions()
    try:
        problems = faults(find_vulnerabilities(all_pins), exceptions, dt.datetime.now(dt.UTC).date())
    except AuditError as error:
        sys.exit(str(error))
    if problems:
        sys.exit("\n".join(problems))
    sys.stdout.write(
        f"{len(all_pins)} versions have no known vulnerability that is not accepted ({len(exceptions)} are)\n"
    )


if __name__ == "__main__":
    main()
