"""Logging that a test changes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def logging_as_before() -> Iterator[None]:
    """Undo what a command sets in this process: it logs to the stderr that it finds."""
    root, before = logging.getLogger(), structlog.get_config()
    level = root.level
    try:
        yield
    finally:
        ours = structlog.stdlib.ProcessorFormatter
        root.handlers = [handler for handler in root.handlers if not isinstance(handler.formatter, ours)]
        root.setLevel(level)
        structlog.configure(**before)
