"""When a delivery that failed is tried again: tenacity's strategy, asked for one step without sleeping.

The wait itself is a row's ``next_attempt_at``, so it survives restarts.
"""

from tenacity import RetryCallState, Retrying, wait_random_exponential

from wakupush.model.failures import Failure, Retry
from wakupush.model.notifications import NotificationType
from wakupush.runtime.settings import DeliverySettings


def next_wait(failure: Failure, attempt: int, settings: DeliverySettings, *, at_least: float = 0.0) -> float | None:
    """Return the seconds until the next attempt of a delivery.

    The wait is random between 0 and a bound (full jitter), so that deliveries which failed together do not come back
    together. The bound doubles with each attempt, from ``first_wait`` or, where the failure asks for it,
    ``slow_first_wait``, up to ``max_wait``.

    Args:
        settings: waits in seconds and ``max_attempts``.
        at_least: seconds that gorush asked for. The random wait is added; the sum is ``max_wait`` at most.

    Returns:
        None if there is no next attempt: the failure is final, or the attempts are exhausted.
    """
    first_wait = {Retry.BACKOFF: settings.first_wait, Retry.SLOWLY: settings.slow_first_wait}.get(failure.retry)
    if first_wait is None or attempt >= settings.max_attempts:
        return None
    state = RetryCallState(Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    wait = wait_random_exponential(multiplier=first_wait, max=settings.max_wait)(state)
    return min(settings.max_wait, at_least + wait)


def times_to_live(settings: DeliverySettings) -> dict[NotificationType, float]:
    """Return the seconds after which deliveries expire, by the type of notification."""
    return {
        NotificationType.MESSAGE: settings.message_time_to_live,
        NotificationType.MENTION: settings.mention_time_to_live,
        NotificationType.REQUEST_TO_JOIN_COMMUNITY: settings.join_request_time_to_live,
        # It waits for an answer, too.
        NotificationType.CONTACT_REQUEST: settings.join_request_time_to_live,
    }
