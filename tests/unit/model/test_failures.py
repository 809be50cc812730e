"""What the one table of failures must hold, whatever is added to it."""

import pytest

from wakupush.model.failures import OF_DELIVERIES, Answer, Failure, Retry, Route, Token, route_state

each_failure = pytest.mark.parametrize("failure", Failure, ids=lambda failure: failure.label)


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
def test_route_state(failure):
    assert route_state(failure, proven=True) is failure.route
    believed = failure.route if failure.of_server else Route.UNTOLD
    assert route_state(failure, proven=False) is believed, "a stranger may have made up the device"
    assert failure.of_server == (failure.route is Route.BROKEN and failure.label.startswith(("gorush_", "app_")))


def test_a_success_shows_that_the_route_works():
    assert route_state(None, proven=False) is route_state(None, proven=True) is Route.WORKS


@each_failure
def test_answer(failure):
    if failure.token is Token.DEAD:
        assert failure.answer is Answer.NOT_REGISTERED
    errors = failure.answer.value
    assert (failure.answer is Answer.SILENCE) == (errors.registration is None and errors.report is None)
    assert errors.registration != 0
    assert errors.report != 0
