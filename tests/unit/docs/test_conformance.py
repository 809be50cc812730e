"""docs/reference/conformance.md names what exists: recorded steps, deviations, limits."""

import json
import re
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

from conformance import deviations, sets
from wakupush.model.failures import BY_LABEL
from wakupush.runtime.settings import LimitSettings, Settings

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "reference" / "conformance.md").read_text()


def table(*head):
    """Return the rows of the table with this head."""
    [body] = re.findall(rf"^{re.escape(_line(head))}\n\|[-| ]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in body.splitlines()]


def _line(cells):
    return "| " + " | ".join(cells) + " |"


RESULTS = table("scenario", "steps", "exact", "by specification", "by listed deviation")
DEVIATIONS = table("steps", "what they send", "ours", "why")
LIMITS = table("limit", "default", "failure", "answer", "shown by")


SCENARIOS = {
    path.stem.removeprefix("scenario_"): path
    for directory in (sets.OF_2024, sets.OF_2026)
    for path in directory.glob("scenario_*.json")
}


@cache
def scenario(name):
    return json.loads(SCENARIOS[name].read_text())["steps"]


@pytest.mark.parametrize("step", sorted(set(re.findall(r"test_step\[(\w+-\w+)\]", TEXT))))
def test_step_exists(step):
    name, _, step = step.partition("-")
    assert step in {each["name"] for each in scenario(name)}


def test_results_are_of_these_scenarios():
    *rows, total = [[row[0].strip("`"), *map(int, row[1:])] for row in RESULTS]
    assert {row[0] for row in rows} == SCENARIOS.keys()
    for name, steps, exact, specified, deviating in rows:
        assert steps == exact + specified + deviating == len(scenario(name))
        assert specified == sum(step["spec_expect"] is not None for step in scenario(name))
    assert total[1:] == [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]


def test_deviations_are_those_of_the_suite():
    listed = [
        [", ".join(f"`{step}`" for step in each.steps) or "any", each.sends, each.ours, each.why]
        for each in deviations.DEVIATIONS
    ]
    assert listed == DEVIATIONS


#: What senders are told where nothing failed.
OTHERWISE = {
    "the oldest are dropped": "SILENCE",
    "chance decides which are dropped": "SILENCE",
    "some are dropped by chance": "SILENCE",
    "they wait": "later",
    "one a minute without content": "success",
}


@pytest.mark.parametrize("row", LIMITS, ids=lambda row: row[0].strip("`"))
def test_limit_is_that_of_the_code(row):
    name, default, failure, answer, _ = (cell.strip("`") for cell in row)
    if name.startswith("WAKUPUSH_"):
        group, field = name.removeprefix("WAKUPUSH_").lower().split("__")
        value = getattr(Settings.model_fields[group].default, field)
    else:
        value = resolve_name(name)
    assert f"{value:g}" == f"{float(default):g}"
    assert answer == (OTHERWISE[failure] if failure in OTHERWISE else BY_LABEL[failure].answer.name)


def test_every_limit_is_listed():
    listed = {row[0].strip("`") for row in LIMITS}
    assert listed >= {f"WAKUPUSH_LIMITS__{name.upper()}" for name in LimitSettings.model_fields}
