"""A short run; the full one is ``make chaos``."""

from __future__ import annotations

from random import Random

import pytest

from chaos.faults import FAULTS, LOSSY_FAULTS, OUTLASTING_FAULT, Fault, schedule
from chaos.run import Options, open_directory, run

#: A run of a minute has no time for faults that are longer.
SHORT = tuple(fault for fault in FAULTS if fault.seconds[1] <= 10)
#: Shorter than those of a full run; a lease covers a post, storing its outcome (20 s), and some work.
SETTINGS = {
    "WAKUPUSH_GORUSH__CONNECT_TIMEOUT": "1",
    "WAKUPUSH_GORUSH__TIMEOUT": "3",
    "WAKUPUSH_DELIVERY__LEASE": "30",
    "WAKUPUSH_DELIVERY__MAX_WAIT": "2",
    "WAKUPUSH_DELIVERY__MAX_ATTEMPTS": "20",
    "WAKUPUSH_DELIVERY__CLAIM": "5",
    "WAKUPUSH_INGEST__CLAIM_TTL": "10",
}


def test_no_message_is_lost_or_doubled() -> None:
    options = Options(
        seed="make test",
        messages=500,
        seconds=28,
        pause=1.2,
        patience=240,
        users=15,
        concurrency=1,
        faults=SHORT,
        settings=SETTINGS,
        worker_module="chaos.brisk_worker",
    )
    with open_directory() as directory:
        outcome = run(options, directory)
    assert sum(fault.kills for fault in outcome.evidence.faults) >= 5
    assert len(outcome.evidence.sent) >= 500
    assert [str(violation) for violation in outcome.violations] == []


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", LOSSY_FAULTS, ids=lambda fault: fault.name)
def test_what_postgres_forgot_is_made_up_for(fault: Fault) -> None:
    with open_directory() as directory:
        outcome = run(_alone(fault), directory)
    lost = [each for each in outcome.evidence.faults if each.loses]
    assert len(lost) == 1
    # Others were sent before and after.
    assert any(lost[0].began < message.at < lost[0].ended for message in outcome.evidence.sent)
    assert [str(violation) for violation in outcome.violations] == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_notifications_expire_while_gorush_is_away() -> None:
    settings = {"WAKUPUSH_DELIVERY__MESSAGE_TIME_TO_LIVE": "20", "WAKUPUSH_DELIVERY__MENTION_TIME_TO_LIVE": "20"}
    with open_directory() as directory:
        outcome = run(_alone(OUTLASTING_FAULT, settings), directory)
    assert any(delivery.state == "expired" for delivery in outcome.evidence.deliveries.values())
    assert [str(violation) for violation in outcome.violations] == []


def _alone(fault: Fault, settings: dict[str, str] | None = None) -> Options:
    """Return a run in which only this fault happens, once."""
    return Options(
        seed=fault.name,
        messages=600,
        seconds=60,
        pause=60,
        patience=240,
        users=15,
        faults=(fault,),
        alone=True,
        settings=SETTINGS | (settings or {}),
        worker_module="chaos.brisk_worker",
    )


def test_full_run_plans_every_fault() -> None:
    for seed in range(5):
        planned = schedule(Random(seed), FAULTS, 720, pause=2.5, alone=True)
        assert {each.fault for each in planned} == set(FAULTS)
        assert sum(each.fault.kills for each in planned) >= 50
