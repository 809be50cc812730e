"""`python -m chaos.broken_worker`: wakupush without one of its nets, as CHAOS_BREAK says. The checker has to notice."""

import os
import time
from collections.abc import Callable
from types import ModuleType

from wakupush.cli import main
from wakupush.postgres import answers, deliveries, events, ledger, requests
from wakupush.server.delivery import next_attempts
from wakupush.server.engine import store

_add_to_ledger = ledger.add
_add_events = events.add
_take = deliveries.take
_take_on = requests.take_on
_withdraw_answers = answers.withdraw
_attempt_due = next_attempts.attempt_due


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


def no_later_lease() -> None:
    """The lease of every attempt after the first is over when it begins."""
    _replace(
        deliveries,
        "take",
        lambda connection, attempts, *, seconds, at_rest: _take(
            connection, attempts, seconds=0 * seconds, at_rest=at_rest
        ),
    )


def early_ledger() -> None:
    """A message counts as handled before its effects are committed."""

    def add(connection, entries):
        new = _add_to_ledger(connection, entries)
        connection.commit()
        time.sleep(0.1)
        return new

    _replace(ledger, "add", add)


def no_held_answers() -> None:
    """A correction is answered although the answer that it corrects has left, and beat does not wait for it."""
    _replace(store, "HOLD_SECONDS", 0.0)
    _replace(answers, "withdraw", lambda connection, ids, hold: {*_withdraw_answers(connection, ids, hold), *ids})


def no_second_look() -> None:
    """A repeat is told what its first envelope was told, though the notification failed since."""
    _replace(requests, "failed", lambda *_: set())


def no_outcome_events() -> None:
    """Of some deliveries the event of their end is lost."""

    def add(connection, new_events, identity):
        _add_events(connection, [it for it in new_events if it.kind != "delivered" or it.trace_id[0] != "0"], identity)

    _replace(events, "add", add)


def no_forgotten_attempts() -> None:
    """The attempts of a message that was handled alone stay."""
    _replace(ledger, "forget_attempts", lambda *_: None)


def no_fence() -> None:
    """Who is told to make an attempt makes it, whoever made it before; what is delivered keeps what that needs.

    All are told twice.
    """
    _change("take", "ANY (%(delivery_key)b) AND state = 'pending'", "ANY (%(delivery_key)b)")
    _change("take", " AND state = 'pending' AND attempt = claimed.begun", "")
    _change("take", "next_attempt_at = NULL", "next_attempt_at = NULL, finished_at = NULL")
    _change("settle", "WHEN new.forget THEN NULL", "WHEN false THEN NULL")

    def attempt_due(*task):
        _attempt_due(*task)
        return _attempt_due(*task)

    _replace(next_attempts, "attempt_due", attempt_due)


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


BREAKS = {
    "ledger": no_ledger,
    "early ledger": early_ledger,
    "lease": no_lease,
    "later lease": no_later_lease,
    "fence": no_fence,
    "outbox": no_outbox,
    "held answers": no_held_answers,
    "second look": no_second_look,
    "outcome events": no_outcome_events,
    "forgotten attempts": no_forgotten_attempts,
}

if __name__ == "__main__":
    BREAKS[os.environ["CHAOS_BREAK"]]()
    main()
