"""The figures of a run: a table for people, and JSON."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

from rich.table import Table

from chaos.case import Case, copies
from chaos.evidence import Window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.evidence import Evidence
    from chaos.run import Outcome

#: Seconds after the end of a fault for which it is still felt.
AFTERMATH = 5.0
#: Seconds within which an answer comes where no fault is felt.
PROMPT = 2.0
#: Seconds for which a client waits before it tries another server.
PATIENCE = 3.0


def of(outcome: Outcome) -> dict[str, object]:
    """Return the figures of a run."""
    evidence = outcome.evidence
    case = Case(evidence)
    killed = {fault.name: 0 for fault in sorted(evidence.faults, key=lambda fault: fault.name)}
    for fault in evidence.faults:
        killed[fault.name] += 1
    waits = _waits(case, case.messages)
    undisturbed = _undisturbed(case)
    prompt = _waits(case, undisturbed)
    return {
        "seed": outcome.options.seed,
        "seconds under faults": round(outcome.ran),
        "seconds until all was quiet": round(outcome.settled),
        "envelopes sent": len({message.envelope for message in evidence.sent}),
        "application messages": len(case.messages),
        "registrations": _count(case, "registration"),
        "queries": _count(case, "query"),
        "push requests": _count(case, "request"),
        "answered": sum(id_ in case.answers for id_ in case.messages),
        "answers that left more than once": sum(
            len(each) > copies(case.messages[id_]) for id_, each in case.answers.items() if id_ in case.messages
        ),
        "notifications asked for": sum(1 for _ in case.notifications()),
        "notifications delivered": sum(bool(case.delivered(item)) for _, _, item in case.notifications()),
        "delivered again after an unknown outcome": sum(doubled(case).values()),
        "of these by reason": dict(doubled(case)),
        "failures that gorush kept to itself": sum(case.log_lost(item) for _, _, item in case.notifications()),
        "enqueued by reconcile": evidence.healed,
        "faults": len(evidence.faults),
        "kills": sum(fault.kills for fault in evidence.faults),
        "faults by kind": killed,
        "processes that ended by themselves": dict(evidence.died),
        "seconds to an answer, median": round(median(waits), 2) if waits else None,
        "seconds to an answer, p99": round(quantiles(waits, n=100)[98], 1) if len(waits) > 1 else None,
        "seconds to an answer, longest": round(max(waits), 1) if waits else None,
        "answers where no fault was felt": len(prompt),
        "their seconds, p99": round(quantiles(prompt, n=100)[98], 2) if len(prompt) > 1 else None,
        "late ones of these, by the fault before": dict(_late(case, undisturbed)),
        "MB of memory, first and last minute": _memory(case),
        "violations": dict(Counter(violation.kind.name for violation in outcome.violations)),
    }


def table(outcome: Outcome) -> Table:
    """Return the figures as a table."""
    rows = Table("what", "how much", title=f"chaos run {outcome.options.seed}")
    for name, value in of(outcome).items():
        if isinstance(value, dict):
            rows.add_row(name, "" if value else "none")
            for key, each in value.items():
                rows.add_row(f"  {key}", str(each))
        else:
            rows.add_row(name, str(value))
    return rows


def doubled(case: Case) -> Counter[str]:
    """Return how many deliveries were repeated, by the unknown outcome before."""
    return Counter(
        reason or "not recorded"
        for envelopes, _, item in case.notifications()
        for reason in case.doubled(envelopes, item)
    )


def by_phase(evidence: Evidence) -> Table:
    """Return how long answers took, by the phase in which a message was first sent."""
    case = Case(evidence)
    rows = Table("phase", *("seconds", "messages", "p50 s", "p99 s", "longest s", "over 3 s"), title="answers")
    everything = Window(name="all", began=evidence.faults[0].began, ended=evidence.faults[-1].ended)
    for phase in (*evidence.faults, everything):
        waits = _waits(case, [id_ for id_ in case.messages if phase.began <= _sent_at(case, id_) < phase.ended])
        figures = (
            f"{median(waits):.3f}" if waits else "",
            f"{quantiles(waits, n=100)[98]:.3f}" if len(waits) > 1 else "",
            f"{max(waits):.3f}" if waits else "",
        )
        late = sum(wait > PATIENCE for wait in waits)
        rows.add_row(phase.name, f"{phase.ended - phase.began:.0f}", str(len(waits)), *figures, str(late))
    return rows


def slowest(evidence: Evidence, count: int = 5) -> list[str]:
    """Return which messages waited longest for their answer: seconds, kind and name in delivery events."""
    case = Case(evidence)
    longest = sorted(((wait, id_) for id_ in case.messages for wait in _waits(case, [id_])), reverse=True)[:count]
    return [f"{wait:.1f} s {case.messages[id_][0].kind} {case.messages[id_][0].trace_id}" for wait, id_ in longest]


def write(outcome: Outcome, path: Path) -> None:
    """Write the figures, and what was found against the server."""
    content = of(outcome) | {"found": [str(violation) for violation in outcome.violations]}
    path.write_text(json.dumps(content, indent=1) + "\n")


def _count(case: Case, kind: str) -> int:
    return sum(envelopes[0].kind == kind for envelopes in case.messages.values())


def _waits(case: Case, ids: Iterable[str]) -> list[float]:
    """Return the seconds from each of these messages to its first answer.

    A query is asked again under the same id. While nobody is registered it is met with silence, so the last one before
    the answer counts.
    """
    waits = []
    for id_ in ids:
        if id_ in case.answers:
            answered = min(answer.at for answer in case.answers[id_])
            send_times = [each.at for each in case.messages[id_] if each.at <= answered]
            last = case.messages[id_][0].kind == "query" and len(send_times) > 1
            waits.append(max(0.0, answered - (max(send_times) if last else _sent_at(case, id_))))
    return waits


def _sent_at(case: Case, id_: str) -> float:
    return min(message.at for message in case.messages[id_])


def _undisturbed(case: Case) -> list[str]:
    """Return the messages under load whose prompt answer no fault could hold up.

    What is sent before the first fault, and after the last, is made at once and sent one by one.
    """
    faults = case.evidence.faults
    if not faults:
        return []
    felt = [(fault.began - PROMPT, fault.ended + AFTERMATH) for fault in faults]
    first, last = min(fault.began for fault in faults), max(fault.ended for fault in faults)
    return [
        id_
        for id_ in case.messages
        if first <= (at := _sent_at(case, id_)) <= last and not any(begin <= at <= end for begin, end in felt)
    ]


def _late(case: Case, ids: Iterable[str]) -> Counter[str]:
    """Return how many of these messages were answered late, by the last fault that had ended before."""
    ended = sorted((fault.ended, fault.name) for fault in case.evidence.faults)
    return Counter(
        max(((at, name) for at, name in ended if at < _sent_at(case, id_)), default=(0.0, "none"))[1]
        for id_ in ids
        for wait in _waits(case, [id_])
        if wait > PROMPT
    )


def _memory(case: Case) -> dict[str, str]:
    """Return the medians of the resident memory in the first and the last minute, by part."""
    samples = sorted(case.evidence.memory, key=lambda sample: sample.at)
    if not samples:
        return {}
    begin, end = samples[0].at, samples[-1].at
    first, last = defaultdict(list), defaultdict(list)
    for sample in samples:
        if sample.at <= begin + 60:
            first[sample.name].append(sample.rss)
        if sample.at >= end - 60:
            last[sample.name].append(sample.rss)
    return {
        name: f"{median(first[name]) / 2**20:.0f} → {median(last[name]) / 2**20:.0f}" for name in first if name in last
    }
