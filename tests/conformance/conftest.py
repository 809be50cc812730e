"""``--vectors DIR``: the sets of vectors to run, and the summary of what was compared."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from conformance.expected import VERDICT


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vectors",
        metavar="DIR",
        type=Path,
        action="append",
        help="vectors to run; again for another set (default: tests/vectors and tests/vectors_2026)",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    verdicts = Counter(
        value if outcome == "passed" else outcome
        for outcome in ("passed", "failed", "xfailed", "skipped")
        for report in terminalreporter.stats.get(outcome, [])
        for name, value in getattr(report, "user_properties", ())
        if name == VERDICT
    )
    if verdicts:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
        terminalreporter.write_sep("-", f"conformance: {verdicts.total()} steps: {counts}")
