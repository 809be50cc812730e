"""Delivery events and posts as spans of OpenTelemetry, if `WAKUPUSH_TRACING__ENDPOINT` names a collector.

A span needs no parent to be found: its trace id is the trace id of logs and events, twice. The spans of delivery events
begin when ingest saw the message, so that a trace reads as a timeline; those of enqueueing and of posts when these do.
Attributes are fields of events, without the pseudonyms.
"""

from importlib.util import find_spec

from opentelemetry.sdk.trace import TracerProvider

from wakupush.runtime.settings import SettingsError, TracingSettings

#: Attributes of a span; those that are None are left out.
Attributes = dict[str, str | int | None]


class _Tracing:
    """The provider that a process opened after its fork."""

    provider: TracerProvider | None = None


def check(settings: TracingSettings) -> None:
    """Fail at start if recording would fail later.

    Raises:
        SettingsError: the extra ``otel`` is not installed.
    """
    if settings.endpoint is not None and find_spec("opentelemetry") is None:
        raise SettingsError("WAKUPUSH_TRACING__ENDPOINT needs OpenTelemetry: install wakupush[otel]")


def start(settings: TracingSettings, process: str) -> None:
    """Send spans from now on, in batches, by a thread: to be called after the fork.

    Args:
        settings: without an endpoint nothing is ever imported or sent.

    Raises:
        SettingsError: the extra ``otel`` is not installed.
    """
    check(settings)
    if settings.endpoint is None:
        return
    # ruff: noqa: PLC0415 - the extra may not be installed
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource({"service.name": "wakupush", "wakupush.process": process}))
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


def record(name: str, trace_id: str, begun: float, ended: float, attributes: Attributes) -> None:
    """Record a span that is over, if spans are sent.

    Args:
        name: of the operation, one of few.
        trace_id: of the message, 16 hex digits.
        begun: seconds since the epoch.
        ended: seconds since the epoch.
        attributes: never a secret.
    """
    if _Tracing.provider is None:
        return
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    flags = TraceFlags(TraceFlags.SAMPLED)
    parent = SpanContext(int(trace_id * 2, 16), int(trace_id, 16), is_remote=True, trace_flags=flags)
    span = _Tracing.provider.get_tracer("wakupush").start_span(
        name,
        context=set_span_in_context(NonRecordingSpan(parent)),
        attributes={f"wakupush.{key}": value for key, value in attributes.items() if value is not None},
        start_time=int(begun * 1e9),
    )
    span.end(int(ended * 1e9))
