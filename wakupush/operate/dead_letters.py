"""Which failures end a delivery as a dead letter."""

from wakupush.model.failures import BY_LABEL, Failure, Retry
from wakupush.runtime.usage import UsageError


def failure_of(label: str) -> Failure:
    """Return the failure with a label.

    Raises:
        UsageError: there is none, or it ends no delivery as a dead letter; the text lists those that do.
    """
    ends = {Failure.ATTEMPTS_EXHAUSTED, Failure.DELIVERY_EXPIRED}
    possible = sorted(label for label, failure in BY_LABEL.items() if failure in ends or failure.retry != Retry.NEVER)
    if label not in possible:
        what = "ends no delivery as a dead letter" if label in BY_LABEL else "is no failure"
        raise UsageError(f"--reason {label} {what}; there are {', '.join(possible)}")
    return BY_LABEL[label]
