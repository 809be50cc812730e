"""Structured logs: an event name that never changes, and facts as keywords. Never a secret or a message's content."""

import logging
import sys
from typing import Any

import structlog

from wakupush.runtime import tracing
from wakupush.runtime.settings import Settings
from wakupush.runtime.tracebacks import places

#: Loggers of libraries that would log each request or task.
_QUIET = ("httpx2", "httpcore2", "kombu", "amqp", "celery.worker.strategy", "celery.app.trace")


def configure(settings: Settings, **context: Any) -> None:
    """Send every log line of this process to standard error, also those of libraries.

    Args:
        settings: say in which form and from which level on.
        context: facts that every line carries, for example ``process="ingest live"``.
    """
    level = logging.getLevelNamesMapping()[settings.log_level]

    def add_context(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {**context, **event}

    processors: list[structlog.typing.Processor] = [
        add_context,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_values,
        _with_trace_id_of_spans,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[*processors, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=processors,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def is_logged(failures: int) -> bool:
    """Return whether to log a failure, by its number among failures of its kind in a row."""
    return failures in {1, 5, 25} or failures % 100 == 0


def _with_trace_id_of_spans(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if trace_id := event.get("trace_id"):
        event["trace_id"] = tracing.of_spans(trace_id)
    return event


def _without_values(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Replace an exception by its type and place: texts of exceptions can hold rows, tokens or messages."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()
    if isinstance(error, tuple):
        error = error[1]
    if isinstance(error, BaseException):
        event["error"] = type(error).__name__
        event["at"] = places(error)
    return event
