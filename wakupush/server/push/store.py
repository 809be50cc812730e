"""Storing push requests: deliveries under a lease, and what is remembered of the requests."""

from collections.abc import Iterable, Sequence

from psycopg import Connection

from wakupush.model.deliveries import RememberedRequest
from wakupush.postgres import requests
from wakupush.server.delivery.posting import Posting
from wakupush.server.engine.kind import Context, Stored
from wakupush.server.engine.outcome import Outcome
from wakupush.server.push.decide import AnsweredRequest, ExpiredRequest


def store(connection: Connection, outcomes: Sequence[Outcome], context: Context) -> Stored:
    """Store push requests, or corrections of some that were stored before; return the new deliveries."""
    effects = [outcome.effect for outcome in outcomes]
    answered = [effect for effect in effects if isinstance(effect, AnsweredRequest) and not effect.is_correction]
    corrected = [effect for effect in effects if isinstance(effect, AnsweredRequest) and effect.is_correction]
    expired = [effect for effect in effects if isinstance(effect, ExpiredRequest)]
    admissions = [admission for request in answered for admission in request.admissions]
    new_keys = requests.take_on(
        connection,
        [admission.delivery for admission in admissions],
        # What failed wholly is remembered only in the place of an earlier success.
        {
            message_id: request
            for message_id, request in _remembered(answered).items()
            if any(request.succeeded) or request.week is not None
        },
        lease=context.settings.delivery.lease,
        at_rest=context.identity.at_rest,
    )
    if expired:
        requests.remember_over(connection, [request.message_id for request in expired])
    requests.correct(connection, _remembered(corrected))
    new = [admission for admission in admissions if admission.delivery.delivery_key in new_keys]
    return Stored(
        postings=[Posting(admission.delivery, admission.target) for admission in new],
        events=[admission.event for admission in new],
    )


def _remembered(answered: Iterable[AnsweredRequest]) -> dict[bytes, RememberedRequest]:
    return {
        request.opened.message_id: RememberedRequest(
            [failure is None for failure in request.failures], request.before.week if request.before else None
        )
        for request in answered
    }
