"""The error of a job that cannot run until an operator has changed something."""

from wakupush.runtime.usage import UsageError


class PipelineError(UsageError):
    """A job cannot run; the text says what to do, and contains no secret."""
