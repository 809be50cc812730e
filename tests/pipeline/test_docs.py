"""docs/operating/pipeline.md says what the code says."""

from pathlib import Path

import pytest

from wakupush.pipeline.archive import rebuild
from wakupush.pipeline.lake import schema
from wakupush.pipeline.report.tables import TABLES

DOCUMENT = Path(__file__).parents[2] / "docs" / "operating" / "pipeline.md"


def columns_table():
    yield "column", "meaning"
    for name, meaning in schema.MEANINGS.items():
        yield f"`{name}`", meaning


def reports_table():
    yield "table", "rows by", "meaning"
    for table in TABLES:
        yield f"`{table.name}`", ", ".join(f"`{name}`" for name in table.keys), table.meaning


@pytest.mark.parametrize("rows", [columns_table, reports_table])
def test_table_is_that_of_the_code(rows):
    head, *body = rows()
    table = "\n".join("| " + " | ".join(line) + " |" for line in [head, ("---",) * len(head), *body])
    if f"\n{table}\n\n" not in DOCUMENT.read_text():
        pytest.fail(f"{DOCUMENT.name} must have exactly this table:\n\n{table}", pytrace=False)


def test_every_column_of_the_lake_has_a_meaning():
    assert list(schema.MEANINGS) == list(schema.EVENTS)


def test_every_outcome_of_a_rebuild_is_told():
    for outcome, meaning in rebuild.MEANINGS.items():
        assert f"\n| `{outcome}` | {meaning} |\n" in DOCUMENT.read_text()
