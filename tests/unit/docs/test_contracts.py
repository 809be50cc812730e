"""docs/reference/contracts name recordings that exist, and have the sections that the code cites."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONTRACTS = sorted((ROOT / "docs" / "reference" / "contracts").glob("*.md"))
CODE = [
    path for folder in ("wakupush", "ingest", "workers", "pipeline", "tests") for path in (ROOT / folder).rglob("*.py")
]
CITED = [
    pytest.param(name, section, id=f"{path.relative_to(ROOT)}-{section}")
    for path in CODE
    for name, sections in re.findall(r"/contracts/([\w-]+\.md), sections? ([\d, toand]*\d)", path.read_text())
    for section in re.findall(r"\d+", sections)
]


@pytest.mark.parametrize(("name", "section"), CITED)
def test_cited_section_exists(name, section):
    assert re.search(rf"^## {section}\. ", (ROOT / "docs" / "reference" / "contracts" / name).read_text(), re.MULTILINE)


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda path: path.name)
def test_named_recordings_exist(contract):
    text = contract.read_text()
    recordings = re.findall(r"`(?:([\w-]+)/)?([\w-]+\.json)`", text)
    assert recordings
    folder = ROOT / "tests" / "recordings"
    assert [each for area, each in recordings if not (folder / (area or contract.stem) / each).exists()] == []
