"""The checker, tested on servers that are broken on purpose: it must find each of them guilty."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from chaos.checker import Kind
from chaos.faults import FAULTS
from chaos.run import Options, open_directory, run


@dataclass(frozen=True)
class Broken:
    """A net that is missing, and what then happens to messages that it would have caught."""

    finds: Kind
    #: Faults that need the net, by parts of their names.
    faults: tuple[str, ...]
    worker: str = "chaos.broken_worker"
    settings: dict[str, str] = field(default_factory=dict)
    #: Of the load and its faults.
    seconds: float = 12.0
    #: Of each load process.
    users: int = 12
    #: Seconds until all has to be quiet; less where the server never is.
    patience: float = 10.0


SERVERS = {
    # The node hands envelopes out again that it has forgotten, and nobody claims them for long.
    "ledger": Broken(
        Kind.HANDLED_TWICE, ("the node forgets", "the node is killed"), settings={"WAKUPUSH_INGEST__CLAIM_TTL": "1"}
    ),
    "early ledger": Broken(Kind.LOST, ("a child of", "worker")),
    "lease": Broken(Kind.LEASE_CUT_SHORT, ("gorush is slow",)),
    "later lease": Broken(Kind.LEASE_CUT_SHORT, ("gorush is slow",)),
    "fence": Broken(
        Kind.PUSHED_TWICE,
        ("gorush answers 429",),
        settings={"WAKUPUSH_DELIVERY__SLOW_FIRST_WAIT": "0.5", "WAKUPUSH_BREAKER__FAULTS": "1000"},
    ),
    "held answers": Broken(Kind.ANSWERED_INCONSISTENTLY, ("gorush is slow",)),
    # A token is found dead once. Where that is after the answer, the request comes again when all is quiet.
    "second look": Broken(Kind.FALSE_SUCCESS, ("gorush is killed",), users=60, patience=240.0),
    "outcome events": Broken(Kind.UNACCOUNTED, ("gorush is slow",)),
    "forgotten attempts": Broken(Kind.LEFT_OVER, ("a child of",)),
    "outbox": Broken(Kind.UNANSWERED, ("the node refuses every other",)),
    "reconcile": Broken(
        Kind.LOST,
        ("Redis is wiped", "ingest is killed", "the node cuts", "ingest stalls"),
        worker="wakupush",
        settings={"WAKUPUSH_RECONCILE__PAUSE": "86400", "WAKUPUSH_RECONCILE__OVERLAP": "86400"},
    ),
}


#: Runs in which a server may be lucky: what meets what is the machine's.
RUNS = 3


@pytest.mark.long
@pytest.mark.timeout(600 * RUNS)
@pytest.mark.parametrize("name", SERVERS)
def test_checker_convicts_a_broken_server(name: str) -> None:
    broken = SERVERS[name]
    kinds: set[Kind] = set()
    for number in range(RUNS):
        options = Options(
            seed=f"broken {name} {number}",
            messages=int(25 * broken.seconds),
            seconds=broken.seconds,
            pause=1.0,
            patience=broken.patience,
            users=broken.users,
            concurrency=1,
            faults=tuple(fault for fault in FAULTS if fault.name.startswith(broken.faults)),
            settings={"CHAOS_BREAK": name, **broken.settings},
            worker_module=broken.worker,
        )
        with open_directory() as directory:
            outcome = run(options, directory)
        kinds |= {violation.kind for violation in outcome.violations}
        if broken.finds in kinds:
            return
    pytest.fail(f"not found in {RUNS} runs, but {sorted(kinds)}")
