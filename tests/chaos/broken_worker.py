"""`python -m chaos.broken_worker`: wakupush without one of its nets, as CHAOS_BREAK says. The checker has to notice."""

import os
from collections.abc import Callable
from types import ModuleType

from wakupush.cli import main
from wakupush.postgres import answers, deliveries, ledger, requests

_add_to_ledger = ledger.add
_take_on = requests.take_on


def no_ledger() -> None:
    """Every message is new, also the second time."""

    def add(connection, entries):
        _add_to_ledger(connection, entries)
        return {entry.hash for entry in entries}

    _replace(ledger, "add", add)
    _replace(ledger, "known", lambda *_: set())


def no_lease() -> None:
    """The lease of a first attempt is over when it begins."""

    def take_on(connection, deliveries, succeeded, *, lease, **options):
        return _take_on(connection, deliveries, succeeded, lease=0 * lease, **options)

    _replace(requests, "take_on", take_on)


def no_fence() -> None:
    """Who is told to make an attempt makes it, whoever made it before; what is delivered keeps what that needs."""
    _change("take", " AND state = 'pending' AND attempt = claimed.begun", "")
    _change("take", "next_attempt_at = NULL", "next_attempt_at = NULL, finished_at = NULL")
    _change("settle", "WHEN new.forget THEN NULL", "WHEN false THEN NULL")


def _change(query: str, text: str, other: str) -> None:
    if text not in deliveries._SQL[query]:
        raise RuntimeError(f"the query {query} has changed: this fault is none any more")
    deliveries._SQL[query] = deliveries._SQL[query].replace(text, other)


def _replace(module: ModuleType, name: str, function: Callable[..., object]) -> None:
    if not hasattr(module, name):
        raise RuntimeError(f"{module.__name__}.{name} is gone: this fault is none any more")
    setattr(module, name, function)


def no_outbox() -> None:
    """Answers that the node does not take are forgotten."""
    _replace(answers, "postpone", lambda connection, ids, _: answers.remove(connection, ids))


BREAKS = {"ledger": no_ledger, "lease": no_lease, "fence": no_fence, "outbox": no_outbox}

if __name__ == "__main__":
    BREAKS[os.environ["CHAOS_BREAK"]]()
    main()
