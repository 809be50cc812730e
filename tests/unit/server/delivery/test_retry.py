import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakupush.model.failures import Failure, Retry
from wakupush.runtime.settings import DeliverySettings
from wakupush.server.delivery.retry import next_wait

SETTINGS = DeliverySettings(max_attempts=10, first_wait=2.0, slow_first_wait=30.0, max_wait=900.0)
FIRST_WAITS = {Retry.BACKOFF: 2.0, Retry.SLOWLY: 30.0}

again = st.sampled_from([failure for failure in Failure if failure.retry is not Retry.NEVER])


@given(again, st.integers(1, 9))
def test_waits_double_up_to_the_largest(failure, attempt):
    wait = next_wait(failure, attempt, SETTINGS)
    assert wait is not None
    assert 0 <= wait <= min(FIRST_WAITS[failure.retry] * 2 ** (attempt - 1), 900.0)


@given(again, st.integers(10, 10**6))
def test_attempts_are_exhausted(failure, attempt):
    assert next_wait(failure, attempt, SETTINGS) is None


@pytest.mark.parametrize("failure", [failure for failure in Failure if failure.retry is Retry.NEVER])
def test_what_is_final_is_not_tried_again(failure):
    assert next_wait(failure, 1, SETTINGS) is None


def test_waits_are_spread():
    waits = [next_wait(Failure.PLATFORM_UNAVAILABLE, 9, SETTINGS) for _ in range(200)]
    assert min(waits) < 100
    assert max(waits) > 400


def test_many_attempts_do_not_overflow():
    patient = DeliverySettings(max_attempts=10**6)
    assert 0 <= next_wait(Failure.RATE_LIMITED, 10**5, patient) <= patient.max_wait


@given(again, st.integers(1, 9), st.floats(0, 1e9))
def test_retry_after_is_kept_up_to_the_largest_wait(failure, attempt, at_least):
    wait = next_wait(failure, attempt, SETTINGS, at_least=at_least)
    assert min(at_least, 900.0) <= wait <= 900.0


def test_who_was_asked_to_wait_does_not_come_back_together():
    waits = {next_wait(Failure.GORUSH_THROTTLED, 1, SETTINGS, at_least=60.0) for _ in range(50)}
    assert len(waits) > 1
    assert max(waits) <= 90.0
