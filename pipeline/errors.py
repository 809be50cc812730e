"""What an operator has to change before a job can run."""

from __future__ import annotations


class PipelineError(Exception):
    """A job cannot run; the text says what to do, and holds no secret."""
