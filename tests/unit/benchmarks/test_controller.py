"""The simulation of autoscaling decides as KEDA and the HorizontalPodAutoscaler do."""

import pytest

from benchmarks.controller import Autoscaler, Behaviour

BEHAVIOUR = Behaviour(
    least=1, most=10, stabilisation=300, up_period=15, up_percent=100, up_pods=2, down_period=60, down_pods=1
)


@pytest.mark.parametrize(
    ("current", "triggers", "replicas"),
    [
        (2, [(400, 200)], 2),
        (2, [(430, 200)], 2),  # within the tolerance
        (2, [(450, 200)], 3),
        (2, [(0, 200), (500, 200)], 3),  # the largest counts
        (2, [(10_000, 200)], 4),  # at most doubled in one period
        (1, [(10_000, 200)], 3),  # or two more
        (8, [(10_000, 200)], 10),  # at most
    ],
)
def test_up(current, triggers, replicas):
    assert Autoscaler(BEHAVIOUR).decide(0, current, triggers) == replicas


def test_up_again_in_the_next_period():
    scaler = Autoscaler(BEHAVIOUR)
    assert scaler.decide(0, 2, [(10_000, 200)]) == 4
    assert scaler.decide(14, 4, [(10_000, 200)]) == 4
    assert scaler.decide(15, 4, [(10_000, 200)]) == 8


def test_down_after_the_window_and_one_at_a_time():
    scaler = Autoscaler(BEHAVIOUR)
    assert scaler.decide(0, 5, [(1000, 200)]) == 5
    assert scaler.decide(100, 5, [(0, 200)]) == 5
    assert scaler.decide(300, 5, [(0, 200)]) == 5
    assert scaler.decide(301, 5, [(0, 200)]) == 4
    assert scaler.decide(316, 4, [(0, 200)]) == 4
    assert scaler.decide(361, 4, [(0, 200)]) == 3


def test_a_peak_within_the_window_holds_the_replicas():
    scaler = Autoscaler(BEHAVIOUR)
    assert scaler.decide(0, 4, [(0, 200)]) == 3  # nothing is known of before, as after a restart of the controller
    assert scaler.decide(200, 3, [(800, 200)]) == 4
    assert scaler.decide(400, 4, [(0, 200)]) == 4
    assert scaler.decide(501, 4, [(0, 200)]) == 3


def test_never_below_the_least():
    assert Autoscaler(BEHAVIOUR).decide(0, 1, [(0, 200)]) == 1
