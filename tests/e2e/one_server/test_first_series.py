"""From its start on, each process shows the series that alerts need, also beside nodes that are dead."""

import re
from contextlib import ExitStack

import httpx2
import pytest

from deploy.monitoring.rules import ALERTS, COMPONENTS
from wakupush.devnet.processes import free_port, wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.model.queues import POOLS

#: Nobody listens there.
NOWHERE = "http://127.0.0.1:1"
DEAD_NODE = {
    "WAKUPUSH_WAKU__URL": NOWHERE,
    "WAKUPUSH_RECONCILE__STORES": f'["{NOWHERE}"]',
    "WAKUPUSH_CANARY__GORUSH_URL": NOWHERE,
}
#: The arguments of each component, and the setting of its port.
COMMANDS = {
    "ingest": (("ingest", "live"), "WAKUPUSH_HTTP_PORT"),
    "reconcile": (("ingest", "reconcile"), "WAKUPUSH_HTTP_PORT"),
    **{pool: (("worker", pool), "WAKUPUSH_HTTP_PORT") for pool in POOLS},
    "beat": (("beat",), "WAKUPUSH_HTTP_PORT"),
    "feedback": (("feedback",), "WAKUPUSH_FEEDBACK__HTTP_PORT"),
    "exporter": (("exporter",), "WAKUPUSH_HTTP_PORT"),
    "canary": (("canary",), "WAKUPUSH_HTTP_PORT"),
}


@pytest.fixture(scope="module")
def metrics_of(stack):
    """What a process of each component shows that has just started, by series without its value."""
    texts = {}
    with ExitStack() as running:
        for component, (arguments, setting) in COMMANDS.items():
            settings = {**DEAD_NODE, setting: str(port := free_port())}
            process = stack._wakupush(f"fresh {component}", *arguments, settings=settings)
            running.enter_context(process)

            def text(url=f"http://127.0.0.1:{port}/metrics"):
                try:
                    return httpx2.get(url, trust_env=False).text
                except httpx2.TransportError:
                    return ""

            wait_until(text, timeout=120, what=f"{component} answers")
            texts[component] = text()
    line = re.compile(r"^(wakupush_.*) (\S+)$", re.MULTILINE)
    return {component: dict(line.findall(text)) for component, text in texts.items()}


def matches(series, name, labels):
    return re.match(rf"{name}(\{{|$)", series) and all(label in series for label in labels)


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_alone_shows_its_series(metrics_of, component):
    name, labels = re.fullmatch(r"(\w+)\{%s(?:, (.*))?\}", COMPONENTS[component][0]).groups()
    assert {
        each
        for each, series_list in metrics_of.items()
        if any(matches(one, name, [labels] if labels else []) for one in series_list)
    } == {component}


def test_a_node_that_is_down_since_the_start_is_shown(metrics_of):
    """Before, the series began with the first read."""
    for name in ("wakupush_last_poll_timestamp_seconds", "wakupush_last_message_timestamp_seconds"):
        values = {series: float(value) for series, value in metrics_of["ingest"].items() if series.startswith(name)}
        assert len(values) == len(SHARDS)
        assert min(values.values()) > 1.7e9


@pytest.mark.parametrize(
    "name", sorted({name for alert in ALERTS for name in re.findall(r"wakupush_\w+_total", alert.expr)})
)
def test_a_counter_of_an_alert_is_zero_at_the_start(metrics_of, name):
    values = [
        float(value)
        for component in metrics_of.values()
        for series, value in component.items()
        if matches(series, name, [])
    ]
    assert values
    assert 0 in values
