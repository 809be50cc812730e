"""`make cluster`: rehearse the chart on a real control plane, and end with a table and an exit code."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import httpx2
from rich.console import Console
from rich.table import Table

from cluster.binaries import Binaries, MissingError, find
from cluster.control_plane import CommandError
from cluster.rehearsal import ROOT, Rehearsal, rehearsing
from cluster.scenarios import SCENARIOS, Scenario
from cluster.traffic import ScenarioFailedError, check
from wakupush.devnet.processes import StartFailedError, WaitTimeoutError

#: What makes a scenario fail, and the next one go on.
_FAILURES = (ScenarioFailedError, CommandError, WaitTimeoutError, httpx2.HTTPError)


def main() -> int:  # noqa: PLR0911 - each is an exit code
    """Return 0 if all went as promised, 1 if not, 2 if it could not begin."""
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="names of scenarios, or their beginnings")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    parser.add_argument("--keep", action="store_true", help="keep the directory with all logs")
    options = parser.parse_args()
    out = Console(highlight=False, soft_wrap=True)
    if options.list:
        out.print("\n".join(scenario.name for scenario in SCENARIOS))
        return 0
    chosen = [each for each in SCENARIOS if not options.only or each.name.startswith(tuple(options.only))]
    if not chosen:
        out.print(f"no scenario begins like that; there are {', '.join(scenario.name for scenario in SCENARIOS)}")
        return 2
    try:
        binaries = find(ROOT / ".tools" / "helm")
    except MissingError as error:
        out.print(f"{error}; CONTRIBUTING.md says what it needs")
        return 2
    if os.geteuid():
        out.print("the pods need mount namespaces of their own: run this as root")
        return 2
    directory = Path(tempfile.mkdtemp(prefix="wakupush-cluster-"))
    directory.chmod(0o755)
    try:
        return _rehearse(binaries, directory, chosen, out)
    except StartFailedError as error:
        out.print(str(error), style="red")
        return 2
    except KeyboardInterrupt:
        out.print("interrupted; nothing runs on")
        return 130
    finally:
        if options.keep:
            out.print(f"logs: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


def _rehearse(binaries: Binaries, directory: Path, chosen: list[Scenario], out: Console) -> int:
    start_time = time.monotonic()

    def say(text: str) -> None:
        out.print(f"{time.monotonic() - start_time:6.0f} s  {text}")

    for program, version in binaries.versions().items():
        say(f"{program}: {version}")
    table = Table("scenario", "", "seconds", "what was seen")
    failed = 0
    with rehearsing(binaries, directory, say) as rehearsal:
        for scenario in chosen:
            say(scenario.name)
            since = time.monotonic()
            summary, well = _run(rehearsal, scenario)
            failed += not well
            table.add_row(scenario.name, "passed" if well else "FAILED", f"{time.monotonic() - since:.0f}", summary)
            say(("" if well else "FAILED: ") + summary)
        for note in rehearsal.kubelet.notes:
            say(f"kubelet: {note}")
    out.print(table)
    return 1 if failed else 0


def _run(rehearsal: Rehearsal, scenario: Scenario) -> tuple[str, bool]:
    try:
        summary = scenario.run(rehearsal)
        refusals = rehearsal.refusals()
        check(not refusals, f"roles and users lack rights: {refusals}")
    except _FAILURES as error:
        return str(error) or type(error).__name__, False
    return summary, True


if __name__ == "__main__":
    sys.exit(main())
