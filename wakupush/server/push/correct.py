"""Correcting the answer to a push request whose deliveries failed before it left."""

from dataclasses import replace

from wakupush.model.events import EventKind, message_event
from wakupush.server.delivery.posting import Failed
from wakupush.server.engine.kind import Context
from wakupush.server.engine.outcome import Outcome
from wakupush.server.push.decide import AnsweredRequest, first_failure, reply


def correct(outcome: Outcome, failed: Failed, context: Context) -> Outcome | None:
    """Return the new outcome of a request if some of its deliveries failed for good since; None if none did.

    Args:
        failed: by delivery key.
    """
    request = outcome.effect
    if not isinstance(request, AnsweredRequest):
        return None
    items = zip(request.delivery_keys, request.failures, strict=True)
    failures = tuple(failed.get(key, failure) if key else failure for key, failure in items)
    if failures == request.failures:
        return None
    request = replace(request, failures=failures, is_correction=True)
    failure = first_failure(request)
    answered = message_event(context.task, outcome.entry, EventKind.ANSWERED, context.now, failure=failure)
    return Outcome(entry=outcome.entry, events=(answered,), replies=(reply(request),), effect=request)
