"""What docs/internals/security.md names exists: metrics, failures, limits."""

import re
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram

from wakupush.model import limits
from wakupush.model.failures import BY_LABEL
from wakupush.runtime import metrics

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "internals" / "security.md").read_text()
METRICS = {
    f"{each._name}_total" if each._type == "counter" else each._name
    for each in vars(metrics).values()
    if isinstance(each, Counter | Gauge | Histogram)
}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"wakupush_[a-z_]+", TEXT))))
def test_a_metric_exists(name):
    assert name in METRICS


@pytest.mark.parametrize("label", sorted(set(re.findall(r'failure="(\w+)"', TEXT))))
def test_a_failure_exists(label):
    assert label in BY_LABEL


@pytest.mark.parametrize("name", sorted(set(re.findall(r'limit="(\w+)"', TEXT))))
def test_a_limit_exists(name):
    assert name in {value for value in vars(limits).values() if isinstance(value, str)}
