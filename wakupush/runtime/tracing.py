"""Delivery events and posts as spans of OpenTelemetry, if a variable names a collector.

`WAKUPUSH_TRACING__ENDPOINT` does, and so do OpenTelemetry's own `OTEL_EXPORTER_OTLP_ENDPOINT` and
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`; its other variables (headers, resource, sampler, batches) hold too.

Each span is the first of its trace, whose id is that of the message in logs. So processes need not hand a context on,
and a sampler decides by the id alone, the same in all of them. The spans of delivery events begin when ingest saw the
message, so that a trace reads as a timeline; those of enqueueing and of posts when these do. Attributes are fields of
events, without the pseudonyms.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from threading import local
from typing import TYPE_CHECKING, Final

from wakupush.runtime.settings import SettingsError, TracingSettings

if TYPE_CHECKING:  # the extra may not be installed
    from opentelemetry.sdk.trace import TracerProvider

# ruff: noqa: PLC0415 - the extra may not be installed

#: Attributes of a span; those that are None are left out.
Attributes = dict[str, str | int | None]
#: Variables of OpenTelemetry's that name a collector.
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class _Tracing:
    """The provider that a process opened after its fork."""

    provider: TracerProvider | None = None
    #: Of the span that a thread begins.
    trace = local()


def _is_wanted(settings: TracingSettings) -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return settings.endpoint is not None or any(map(os.environ.get, ENDPOINTS))


def check(settings: TracingSettings) -> None:
    """Fail at start if recording would fail later.

    Raises:
        SettingsError: the extra ``otel`` is not installed.
    """
    if _is_wanted(settings) and find_spec("opentelemetry") is None:
        raise SettingsError("a collector is named (WAKUPUSH_TRACING__ENDPOINT or OTEL_…): install wakupush[otel]")


def start(settings: TracingSettings, process: str) -> None:
    """Send spans from now on, in batches, by a thread: to be called after the fork.

    Args:
        settings: if neither they nor OpenTelemetry's variables name a collector, nothing is ever imported or sent.
        process: the resource attribute `wakupush.process`.

    Raises:
        SettingsError: the extra ``otel`` is not installed.
    """
    check(settings)
    if not _is_wanted(settings):
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Ids(RandomIdGenerator):
        """Gives a span the trace id of its message."""

        def generate_trace_id(self) -> int:
            trace_id: int = _Tracing.trace.id
            return trace_id

    own = Resource({"service.version": version("wakupush"), "wakupush.process": process})
    # Variables win over our name for the service.
    resource = Resource.create({"service.name": "wakupush"}).merge(OTELResourceDetector().detect()).merge(own)
    provider = TracerProvider(resource=resource, id_generator=Ids())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.endpoint)))
    _Tracing.provider = provider


def stop() -> None:
    """Send the remaining spans."""
    if _Tracing.provider is not None:
        _Tracing.provider.shutdown()
        _Tracing.provider = None


def is_on() -> bool:
    """Return whether spans are sent."""
    return _Tracing.provider is not None


def of_spans(trace_id: str) -> str:
    """Return a message's trace id (16 hex digits) as spans and logs have it: twice, because a span's has 32."""
    return trace_id * 2


def record(name: str, trace_id: str, start: float, end: float, attributes: Attributes) -> None:
    """Record a span that is over, if spans are sent and the sampler takes its trace.

    Args:
        name: of the operation, one of few.
        trace_id: of the message, 16 hex digits.
        start: seconds since the epoch.
        end: seconds since the epoch.
        attributes: never a secret.
    """
    if _Tracing.provider is None:
        return
    from opentelemetry.context import Context

    _Tracing.trace.id = int(of_spans(trace_id), 16)
    span = _Tracing.provider.get_tracer("wakupush").start_span(
        name,
        context=Context(),
        attributes={f"wakupush.{key}": value for key, value in attributes.items() if value is not None},
        start_time=int(start * 1e9),
    )
    span.end(int(end * 1e9))
