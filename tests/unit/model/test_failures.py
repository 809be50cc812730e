"""What the one table of failures must hold, whatever is added to it."""

import pytest

from wakupush.model.failures import BY_LABEL, OF_DELIVERIES, Answer, Failure, Retry, Route, Token, route_told

each_failure = pytest.mark.parametrize("failure", Failure, ids=lambda failure: failure.label)


def test_no_two_are_one():
    # An Enum makes members of equal values one.
    for enum in (Failure, Answer, Retry, Route, Token):
        assert len(enum) == len(enum.__members__)
    assert len(BY_LABEL) == len(Failure)


@each_failure
def test_label(failure):
    assert failure.label == failure.name.lower()
    assert BY_LABEL[failure.label] is failure


@each_failure
def test_retry(failure):
    if failure.retry is not Retry.NEVER:
        assert failure.answer is Answer.INTERNAL_ERROR, "what is tried again is a delivery, and nobody's fault"
    if failure.token is not Token.UNTOUCHED:
        assert failure.retry is Retry.NEVER, "the platform has judged the token"
        assert not failure.unknown
    if failure.unknown:
        assert failure.retry is not Retry.NEVER


@each_failure
def test_what_concerns_a_delivery_is_of_deliveries(failure):
    facts = (failure.retry, failure.token, failure.route)
    if facts != (Retry.NEVER, Token.UNTOUCHED, Route.UNTOLD) or failure.unknown:
        assert failure in OF_DELIVERIES
    if failure.answer is Answer.SILENCE:
        assert failure not in OF_DELIVERIES


@each_failure
def test_route(failure):
    if failure.route is Route.BROKEN:
        assert failure.token is Token.UNTOUCHED, "a broken route says nothing about a device"
        assert failure.retry is not Retry.NEVER, "the breaker waits for the route, so must the delivery"
    if failure.route is Route.WORKS:
        assert not failure.unknown
    if failure.token is not Token.UNTOUCHED:
        assert failure.route is Route.WORKS, "only the platform can judge a token"


@each_failure
def test_route_told(failure):
    assert route_told(failure, proven=True) is failure.route
    believed = failure.route if failure.of_gorush else Route.UNTOLD
    assert route_told(failure, proven=False) is believed, "a stranger may have made up the device"
    assert failure.of_gorush == (failure.route is Route.BROKEN and failure.label.startswith("gorush_"))


def test_a_success_shows_that_the_route_works():
    assert route_told(None, proven=False) is route_told(None, proven=True) is Route.WORKS


@each_failure
def test_answer(failure):
    if failure.token is Token.DEAD:
        assert failure.answer is Answer.NOT_REGISTERED
    errors = failure.answer.value
    assert (failure.answer is Answer.SILENCE) == (errors.registration is None and errors.report is None)
    assert errors.registration != 0
    assert errors.report != 0


#: Raised before anything is known of the sender's intent, or by what must not be answered.
SILENT = {
    Failure.NOT_FOR_US,
    Failure.PAYLOAD_MALFORMED,
    Failure.SIGNATURE_INVALID,
    Failure.SIGNATURE_MISSING,
    Failure.METADATA_MALFORMED,
    Failure.SEGMENT_INCOMPLETE,
    Failure.SEGMENT_LIMIT,
    Failure.TYPE_UNSUPPORTED,
    Failure.INNER_MALFORMED,
    Failure.REGISTRATION_UNDECRYPTABLE,
    Failure.QUERY_WITHOUT_KEYS,
    Failure.QUERY_LIMIT,
    Failure.NOTHING_KNOWN,
    Failure.MESSAGE_ID_MISSING,
    Failure.REQUEST_EXPIRED,
    Failure.REQUEST_OVER,
    Failure.REPEATED_TOO_OFTEN,
    Failure.QUARANTINED,
}


def test_what_is_met_with_silence():
    assert {failure for failure in Failure if failure.answer is Answer.SILENCE} == SILENT


def test_dead_tokens():
    assert {failure for failure in Failure if failure.token is Token.DEAD} == {Failure.TOKEN_UNREGISTERED}
