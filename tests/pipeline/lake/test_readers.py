"""The examples of docs/operating/reading-the-lake.md, run as they stand, give a plain count of the same events."""

import re
from collections import Counter
from pathlib import Path

import pytest

from support.pipeline import happenings
from support.pipeline.happenings import FIRST, day_of
from wakupush.pipeline.lake import export

DOCUMENT = Path(__file__).parents[3] / "docs" / "operating" / "reading-the-lake.md"


@pytest.mark.parametrize("program", ["pyiceberg", "DuckDB"])
def test_the_example_comes_to_a_plain_count(spark, connection, dsn, make_settings, program):
    events = happenings.make(60)
    happenings.write(connection, events)
    export.run(spark, make_settings(dsn), lambda *_: None)
    [section] = [each for each in DOCUMENT.read_text().split("\n## ") if each.startswith(program)]
    [code] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 5
    # The host and the day of the example.
    there = dsn.replace("postgresql://postgres@", "").partition("?")[0]
    code = code.replace("@postgres/wakupush", f"@{there}").replace("2026-11-01", str(FIRST))
    values = {}
    exec(code, values)  # noqa: S102 - our own
    funnel = values["funnel"] if program == "DuckDB" else [tuple(row.values()) for row in values["funnel"].to_pylist()]
    counted = Counter()
    for event in events:
        if day_of(event) == FIRST:
            counted[str(event.kind)] += event.count
    assert dict(funnel) == counted
    assert len(counted) > 5
