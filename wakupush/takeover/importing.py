"""``wakupush import reference``: imports the reference server's database into ours.

Each registration is taken whole or not at all, and only if it is newer than what is stored. So a run may be ended at
any time and repeated, beside a server that writes. What is stored already is neither sealed nor sent again.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from psycopg import Connection

from wakupush.model.registrations import Change, Registration
from wakupush.postgres import registrations, requests, takeover
from wakupush.protocol import registration as rules
from wakupush.protocol.at_rest import REQUEST_ID_BYTES
from wakupush.protocol.identity import Identity
from wakupush.server.registration import loading
from wakupush.takeover import database, rows, source
from wakupush.takeover.errors import TakeoverError
from wakupush.takeover.rows import Row, RowReport


@dataclass(slots=True)
class ImportTotals:
    """The counts of a run, or of a dry run."""

    #: Registrations and unregistrations that are newer than the stored ones, or new.
    taken: int = 0
    #: Those that are stored with this version, or a higher one.
    stored_already: int = 0
    refused: int = 0
    #: Ids of handled requests: nothing is pushed or answered for these.
    requests_taken: int = 0
    requests_stored_already: int = 0
    #: Rows of that table that are not valid ids.
    requests_refused: int = 0
    #: How many rows were reported, by the reason; among them are some that were taken.
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """The source and the target of an import, and the functions that it reports to."""

    reference: sqlite3.Connection
    connection: Connection
    identity: Identity
    most_installations: int
    #: Returns the app that a registration is for; None if no app of the settings takes it.
    app_of: Callable[[Registration], str | None]
    #: Whether nothing is to be written.
    dry: bool
    tell: Callable[[RowReport], None]
    #: Called with the number of rows that are done since the last call.
    progress: Callable[[int], None]


def run(job: Import) -> ImportTotals:
    """Take over registrations, unregistrations and ids of handled requests.

    Raises:
        TakeoverError: Postgres failed; rows that were imported before stay.
    """
    totals = ImportTotals()
    is_ours = database.has_ours(job.reference)
    try:
        # Requests first, so that no handled request is pushed again to a device that is imported.
        _take_requests(job, totals)
        for batch in source.rows(
            job.reference,
            most_bytes=rules.LIMITS.registration_bytes,
            most_installations=job.most_installations,
        ):
            _take(job, batch, totals, is_ours=is_ours)
            job.progress(len(batch))
        for changes in source.unregistrations(job.reference) if is_ours else ():
            _load(job, changes, totals, is_ours=False)
            job.progress(len(changes))
    except loading.LoadError as error:
        raise TakeoverError(f"the database failed: {error}; run it again") from None
    return totals


def _take_requests(job: Import, totals: ImportTotals) -> None:
    for ids, refusals in source.requests(job.reference):
        if job.dry:
            new = len({id_[:REQUEST_ID_BYTES] for id_ in ids}) - takeover.known_requests(job.connection, ids)
        else:
            new = requests.remember_over(job.connection, ids)
        totals.requests_taken += new
        totals.requests_stored_already += len(ids) - new
        totals.requests_refused += refusals
        job.progress(len(ids) + refusals)


def _take(job: Import, batch: list[Row], totals: ImportTotals, *, is_ours: bool) -> None:
    changes: dict[int, Change] = {}
    reports: list[RowReport] = []
    for row in batch:
        reading = rows.read(row, job.identity, rules.LIMITS)
        reports += reading.reports
        if reading.change is not None:
            changes[row.rowid] = reading.change
    refusals = _load(job, list(changes.values()), totals, is_ours=is_ours)
    by_place = {change.installation for change in refusals}
    reports += [
        rows.report(row, rows.NOT_STORABLE, is_taken=False)
        for row in batch
        if row.rowid in changes and changes[row.rowid].installation in by_place
    ]
    totals.refused += sum(not row_report.taken for row_report in reports)
    for row_report in reports:
        totals.reasons[row_report.reason] = totals.reasons.get(row_report.reason, 0) + 1
        job.tell(row_report)


def _load(job: Import, changes: list[Change], totals: ImportTotals, *, is_ours: bool) -> tuple[Change, ...]:
    """Store newer changes; return those that Postgres cannot hold."""
    places = {change.installation for change in changes}
    stored_registrations = registrations.stored(job.connection, places) if places else {}
    newer = [
        _with_app(job, change)
        for change in changes
        if change.installation not in stored_registrations
        or stored_registrations[change.installation].version < change.registration.version
    ]
    if job.dry:
        outcome = loading.Loaded(len(newer))
    else:
        extra = source.extra_columns(job.reference, newer) if is_ours else None
        outcome = loading.load(job.connection, newer, job.identity.at_rest, extra)
    totals.taken += outcome.stored
    totals.stored_already += len(changes) - outcome.stored - len(outcome.refused)
    return outcome.refused


def _with_app(job: Import, change: Change) -> Change:
    """Return a change with its app; a device that no app takes is imported without one, and waits for one."""
    registration = change.registration
    app = job.app_of(registration) if isinstance(registration, Registration) else None
    return replace(change, app=app or "")
