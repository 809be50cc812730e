"""`make release-check`: checks everything that has to hold before a release is tagged, and prints a table."""

import argparse
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from deploy.release.past import ROOT, checkout, commit_of, last_release
from wakupush.postgres.migrations import runner

ROLLING: Final = "tests/e2e/test_rolling_upgrade.py"
SIDE_BY_SIDE: Final = "tests/e2e/test_side_by_side.py"
#: The result of a check that found no fault.
HOLDS: Final = "holds"


class NotReadyError(Exception):
    """A condition does not hold; the text says why."""


@dataclass(frozen=True)
class Check:
    """A condition that has to hold."""

    name: str
    what: str
    #: Raises `NotReadyError`.
    run: Callable[[], None]


#: Where the version is the tag of an image.
_IMAGES: Final = {
    "docker/compose.yaml": r"WAKUPUSH_VERSION:-(.*?)}",
    "docker/prepare.sh": r"WAKUPUSH_VERSION:-(.*?)}",
    ".github/workflows/containers.yml": r"""(?:wakupush(?:-\w+)?|\$name):(\d[^\s"]*)""",
}


def nothing_uncommitted() -> None:
    """Check that everything is committed."""
    changes = _output("git", "status", "--porcelain").splitlines()
    if changes:
        raise NotReadyError(f"{len(changes)} files are not committed, {changes[0].split()[-1]} for one")


def versions() -> dict[str, str]:
    """Return the versions that files name, by the place."""
    changelog = _text("CHANGELOG.md")
    chart = _text("deploy/helm/wakupush/Chart.yaml")
    by_file = {
        "pyproject.toml": str(tomllib.loads(_text("pyproject.toml"))["project"]["version"]),
        "the top of CHANGELOG.md": _first(r"^## \[(.*?)\]", changelog),
        "wakupush/__init__.py": _first(r'^__version__ = "(.*)"', _text("wakupush/__init__.py")),
        # A chart has a semantic version, which separates the candidate by a hyphen.
        "version of the chart": _first(r"^version: (.*)$", chart).replace("-rc", "rc"),
        "appVersion of the chart": _first(r"^appVersion: (.*)$", chart),
    }
    images = {
        f"{file} ({version})": version
        for file, pattern in _IMAGES.items()
        for version in re.findall(pattern, _text(file)) or ["none"]
    }
    return by_file | images


def one_version() -> None:
    """Compare the versions that files name with each other and with the tags."""
    by_file = versions()
    [version, *others] = dict.fromkeys(by_file.values())
    if others:
        raise NotReadyError(", ".join(f"{where}: {it}" for where, it in by_file.items()))
    if f"v{version}" in _output("git", "tag", "--list").split():
        raise NotReadyError(f"v{version} is tagged already")


def migrations_begin() -> None:
    """Compare the migrations with the last release: an upgrade removes only what that release does not use any more."""
    files = _output("git", "ls-tree", "-r", "--name-only", last_release()).splitlines()
    numbers = [int(match[1]) for file in files if (match := re.search(r"/migrations/(\d{4})_\w+\.sql$", file))]
    if not numbers:
        raise NotReadyError(f"{last_release()} has no migrations")
    if max(numbers) + 1 != runner.RELEASE_BEGINS:
        raise NotReadyError(
            f"{last_release()} knows migrations up to {max(numbers)}, so RELEASE_BEGINS in"
            f" wakupush/postgres/migrations/runner.py is {max(numbers) + 1}, not {runner.RELEASE_BEGINS}"
        )
    frozen = f"tests/integration/postgres/frozen/{max(numbers):04}"
    if not (ROOT / frozen).is_dir():
        raise NotReadyError(f"the SQL of {last_release()} is not kept in {frozen}")


def last_release_is_set_up() -> None:
    """Set up the last release in a separate folder."""
    try:
        commit_of(last_release())
    except subprocess.CalledProcessError:
        raise NotReadyError(f"{last_release()} is not in this clone: fetch its history") from None
    checkout(last_release())


def _make(*targets: str, **variables: str) -> Callable[[], None]:
    return lambda: _run(["make", *targets], variables)


def _pytest(*arguments: str) -> Callable[[], None]:
    return lambda: _run([sys.executable, "-m", "pytest", "-s", *arguments], {})


CHECKS: Final = (
    Check("clean", "nothing is uncommitted", nothing_uncommitted),
    Check(
        "version", "one version in pyproject, changelog, chart, docker/ and the workflow, and no tag of it", one_version
    ),
    Check("migrations", "RELEASE_BEGINS and the frozen SQL are those of the last release", migrations_begin),
    Check("audit", "no known vulnerabilities in what is locked (make audit)", _make("audit")),
    Check("test", "make test", _make("test")),
    Check("last", "the last release can be run", last_release_is_set_up),
    Check("rolling", "a rolling upgrade of everything under load, from the last release", _pytest(ROLLING)),
    Check("beside", "the last release and this one share the work", _pytest(SIDE_BY_SIDE)),
    Check(
        "long",
        "make test-long, but for the two before",
        _make("test-long", PYTEST_ADDOPTS=f"--ignore={ROLLING} --ignore={SIDE_BY_SIDE}"),
    ),
)


def holds(check: Check) -> str:
    """Run a check; return `HOLDS`, or why it does not."""
    try:
        check.run()
    except NotReadyError as error:
        return str(error)
    except subprocess.CalledProcessError as error:
        return f"exit code {error.returncode}"
    return HOLDS


def main(arguments: list[str] | None = None, checks: Iterable[Check] = CHECKS) -> int:
    """Run the checks, print the result of each, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make release-check", description=__doc__)
    names = [check.name for check in checks]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--list", action="store_true", help="list what would be checked")
    options = parser.parse_args(arguments)
    console = Console(soft_wrap=True, highlight=False)
    rows = Table("check", "what has to hold", "minutes", "result", title=f"release check, against {last_release()}")
    has_failed = False
    for check in [check for check in checks if check.name in options.only]:
        if options.list:
            console.print(f"{check.name:<11} {check.what}", markup=False)
            continue
        console.print(f"== {check.name}: {check.what}", markup=False, style="bold")
        start = time.monotonic()
        result = holds(check)
        has_failed |= result != HOLDS
        rows.add_row(check.name, check.what, f"{(time.monotonic() - start) / 60:.1f}", result)
    if not options.list:
        Console(width=160).print(rows)
    return int(has_failed)


def _run(command: list[str], variables: Mapping[str, str]) -> None:
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, **variables})


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def _text(path: str) -> str:
    return (ROOT / path).read_text()


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else "none"


if __name__ == "__main__":
    sys.exit(main())
