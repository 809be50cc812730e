"""With an endpoint every step of a push is a span at a collector, which learns no secret."""

import http.server
import os
import re
import subprocess
import sys
import threading
from contextlib import closing
from importlib.util import find_spec

import pytest

from e2e.users import User
from wakupush.devnet.stack import SHARDS
from wakupush.protocol.hashing import message_hash
from wakupush.runtime import tracing
from wakupush.runtime.settings import SettingsError, TracingSettings
from wakupush.waku.node import WakuNode

MISSING = None if find_spec("opentelemetry") else "OpenTelemetry is not installed: pip install wakupush[otel]"


def test_an_endpoint_without_the_extra_is_refused(monkeypatch):
    monkeypatch.setattr("wakupush.runtime.tracing.find_spec", lambda _: None)
    tracing.check(TracingSettings())
    with pytest.raises(SettingsError, match="otel"):
        tracing.check(TracingSettings(endpoint="http://127.0.0.1:4318/v1/traces"))


def test_variables_of_opentelemetry_need_the_extra_too(monkeypatch):
    monkeypatch.setattr("wakupush.runtime.tracing.find_spec", lambda _: None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    with pytest.raises(SettingsError, match="otel"):
        tracing.check(TracingSettings())
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    tracing.check(TracingSettings())


def test_processes_start_without_opentelemetry():
    program = "import sys; sys.modules['opentelemetry'] = None; import wakupush.runtime.tracing, wakupush.workers.run"
    subprocess.run([sys.executable, "-c", program], check=True)


class Collector(http.server.ThreadingHTTPServer):
    """Takes what exporters post."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies, self.headers = [], []

    @property
    def spans(self):
        """Each span as its trace id, name, process and attributes."""
        return [
            (
                span.trace_id.hex(),
                span.name,
                _attributes(resource)["wakupush.process"],
                {each.key for each in span.attributes},
                span.end_time_unix_nano - span.start_time_unix_nano,
            )
            for resource in self._resource_spans()
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resources(self):
        """The attributes of each resource."""
        return [_attributes(resource) for resource in self._resource_spans()]

    def _resource_spans(self):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: PLC0415 - an extra

        requests = map(ExportTraceServiceRequest.FromString, list(self.bodies))
        return [resource for request in requests for resource in request.resource_spans]


def _attributes(resource):
    return {each.key: each.value.string_value for each in resource.resource.attributes}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(body)
        self.server.headers.append(dict(self.headers))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def collector():
    if MISSING and os.environ.get("CI") != "true":
        pytest.skip(MISSING)  # on CI nothing is skipped in silence
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        yield collector
        collector.shutdown()
        thread.join()


@pytest.fixture
def record(collector, monkeypatch):
    """Record a span of each of these traces under some variables, and return what arrived."""

    def record(trace_ids, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        before = len(collector.spans)
        collector.headers.clear()
        tracing.start(TracingSettings(), "a process")
        for trace_id in trace_ids:
            tracing.record("a step", trace_id, 1.0, 2.0, {"queue": "dispatch", "failure": None})
        tracing.stop()
        return [span[0] for span in collector.spans[before:]]

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    return record


IDS = [f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" for number in range(1, 101)]


def test_variables_name_collector_headers_and_resource(record, collector):
    trace_ids = record(
        IDS[:2],
        OTEL_EXPORTER_OTLP_HEADERS="api-key=planted",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test,service.name=push",
    )
    assert trace_ids == [2 * trace_id for trace_id in IDS[:2]]
    assert collector.headers[0]["api-key"] == "planted"
    attributes = collector.resources[-1]
    assert attributes["deployment.environment"] == "test"
    assert (attributes["service.name"], attributes["wakupush.process"]) == ("push", "a process")


def test_sampler_takes_the_same_traces_everywhere(record):
    ratio = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    here, there = record(IDS, **ratio), record(IDS, **ratio)
    assert here == there
    assert 25 < len(here) < 75
    assert record(IDS, OTEL_TRACES_SAMPLER="always_off") == []


def test_a_push_is_a_trace(collector, start_stack):
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    stack = start_stack(settings={"WAKUPUSH_TRACING__ENDPOINT": endpoint})
    with WakuNode(stack.node_url) as node:
        user = User(stack, node)
        with closing(user.observer):
            user.register()
            user.wait(replies=1)
            request = user.ask_for_push()
            user.wait(replies=2, delivered=1)
    stack.stop()  # what is left is sent
    trace_id = message_hash(SHARDS[0], request)[:8].hex()
    spans = [span for span in collector.spans if span[0] == trace_id * 2]
    # On a busy machine reconcile may be first.
    steps = {(name, process.replace("reconcile", "live")) for _, name, process, _, _ in spans}
    assert steps == {
        ("enqueued", "ingest live"),
        *((name, "worker dispatch") for name in ("received", "opened", "admitted", "answered")),
        *((name, "worker dispatch") for name in ("post", "attempt", "delivered")),
    }
    assert all(0 <= nanoseconds < 60e9 for *_, nanoseconds in spans)
    attributes = set().union(*(names for _, _, _, names, _ in spans))
    assert attributes <= {f"wakupush.{name}" for name in ("queue", "platform", "failure", "reason", "attempt", "count")}
    everything = b"".join(collector.bodies)
    for secret in (user.registered.device_token, user.registered.access_token, stack.key.secret.hex()):
        assert secret.encode() not in everything
    assert not re.search(rb"[0-9a-f]{64}", everything)
