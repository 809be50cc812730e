"""What probes answer, whoever serves them."""

from email.message import Message
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry, Gauge

from wakupush.runtime.http_server import Answer, Request
from wakupush.runtime.probes import PATHS, Probes


def request(path, accept=""):
    headers = Message()
    headers["Accept"] = accept
    return Request("GET", path, headers, lambda _: b"")


@pytest.fixture
def registry():
    registry = CollectorRegistry()
    Gauge("queued", "Messages.", registry=registry).set(3)
    return registry


@pytest.mark.parametrize(
    ("path", "checks", "status"),
    [
        ("/healthz", {}, HTTPStatus.OK),
        ("/healthz", {"loop": True, "consumer": True}, HTTPStatus.OK),
        ("/healthz", {"loop": True, "consumer": False}, HTTPStatus.SERVICE_UNAVAILABLE),
        ("/readyz", {"Postgres": False}, HTTPStatus.SERVICE_UNAVAILABLE),
    ],
)
def test_all_that_is_checked_has_to_be_well(path, checks, status, registry):
    others = dict.fromkeys(("healthy", "ready"), lambda: {"other": not all(checks.values())})
    probed = {"/healthz": "healthy", "/readyz": "ready"}[path]
    probes = Probes(**others | {probed: lambda: checks}, registry=registry)
    body = "{" + ", ".join(f'"{name}": {str(well).lower()}' for name, well in checks.items()) + "}\n"
    assert probes.answer(request(path)) == Answer(status, "application/json", body.encode())


@pytest.mark.parametrize(
    ("accept", "format_"),
    [
        ("", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text"),
    ],
)
def test_metrics_have_the_format_that_is_asked_for(accept, format_, registry):
    answer = Probes(healthy=dict, ready=dict, registry=registry).answer(request("/metrics", accept))
    assert answer.status == HTTPStatus.OK
    assert answer.content_type.startswith(format_)
    assert b"queued 3.0" in answer.body


def test_another_path_is_told_those_that_there_are(registry):
    answer = Probes(healthy=dict, ready=dict, registry=registry).answer(request("/"))
    assert answer.status == HTTPStatus.NOT_FOUND
    assert answer.body.decode() == f"{', '.join(PATHS)}\n"
