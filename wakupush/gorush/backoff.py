"""When a delivery that failed is tried again: tenacity's strategies, asked for one step without sleeping.

The wait itself is a row's ``next_attempt_at``, so it survives restarts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_random_exponential

from wakupush.failures import Failure, Retry

if TYPE_CHECKING:
    from wakupush.settings import DeliverySettings


def next_wait(failure: Failure, attempt: int, settings: DeliverySettings, *, at_least: float = 0.0) -> float | None:
    """Return the seconds until the next attempt of a delivery.

    The wait is random between 0 and a bound (full jitter), so that deliveries which failed together do not come back
    together. The bound doubles with each attempt, from ``first_wait`` or, where the failure asks for it,
    ``slow_first_wait``, up to ``max_wait``.

    Args:
        failure: of the attempt.
        attempt: its number, from 1.
        settings: waits in seconds and ``max_attempts``.
        at_least: seconds that gorush asked for; the random wait comes on top, ``max_wait`` is the most all the same.

    Returns:
        None if there is no next attempt: the failure is final, or the attempts are exhausted.
    """
    first_wait = {Retry.BACKOFF: settings.first_wait, Retry.SLOWLY: settings.slow_first_wait}.get(failure.retry)
    state = RetryCallState(Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    if first_wait is None or stop_after_attempt(settings.max_attempts)(state):
        return None
    return min(
        settings.max_wait, at_least + wait_random_exponential(multiplier=first_wait, max=settings.max_wait)(state)
    )
