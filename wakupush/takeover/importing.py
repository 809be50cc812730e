"""``wakupush import reference``: imports the reference server's database into ours.

Each registration is taken whole or not at all, and only if it is newer than what is stored. So a run may be ended at
any time and repeated, beside a server that writes. What is stored already is neither sealed nor sent again.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field

from psycopg import Connection

from wakupush.model.registrations import Change
from wakupush.postgres import registrations, requests, takeover
from wakupush.protocol import registration as rules
from wakupush.protocol.at_rest import REQUEST_ID_BYTES
from wakupush.protocol.identity import Identity
from wakupush.server.registration import loading
from wakupush.takeover import database, rows, source
from wakupush.takeover.errors import TakeoverError
from wakupush.takeover.rows import Row, RowReport


@dataclass(slots=True)
class Imported:
    """What a run did, or would do in the case of a dry run."""

    #: Registrations and unregistrations that are newer than what was stored, or new.
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
    #: Whether nothing is to be written.
    dry: bool
    tell: Callable[[RowReport], None]
    #: Called with the number of rows that are done since the last call.
    progress: Callable[[int], None]


def run(job: Import) -> Imported:
    """Take over registrations, unregistrations and ids of handled requests.

    Raises:
        TakeoverError: Postgres failed; what was taken until then stays.
    """
    done = Imported()
    is_ours = database.has_ours(job.reference)
    try:
        # Requests first, so that no handled request is pushed again to a device that is imported.
        _take_requests(job, done)
        for batch in source.rows(
            job.reference,
            most_bytes=rules.LIMITS.registration_bytes,
            most_installations=job.most_installations,
        ):
            _take(job, batch, done, is_ours=is_ours)
            job.progress(len(batch))
        for changes in source.gone(job.reference) if is_ours else ():
            _load(job, changes, done, is_ours=False)
            job.progress(len(changes))
    except loading.LoadError as error:
        raise TakeoverError(f"the database failed: {error}; run it again") from None
    return done


def _take_requests(job: Import, done: Imported) -> None:
    for ids, refused in source.requests(job.reference):
        if job.dry:
            new = len({each[:REQUEST_ID_BYTES] for each in ids}) - takeover.known_requests(job.connection, ids)
        else:
            new = requests.remember_over(job.connection, ids)
        done.requests_taken += new
        done.requests_stored_already += len(ids) - new
        done.requests_refused += refused
        job.progress(len(ids) + refused)


def _take(job: Import, batch: list[Row], done: Imported, *, is_ours: bool) -> None:
    changes: dict[int, Change] = {}
    reports: list[RowReport] = []
    for row in batch:
        reading = rows.read(row, job.identity, rules.LIMITS)
        reports += reading.reports
        if reading.change is not None:
            changes[row.rowid] = reading.change
    refused = _load(job, list(changes.values()), done, is_ours=is_ours)
    by_place = {change.installation for change in refused}
    reports += [
        rows.report(row, rows.NOT_STORABLE, taken=False)
        for row in batch
        if row.rowid in changes and changes[row.rowid].installation in by_place
    ]
    done.refused += sum(not each.taken for each in reports)
    for each in reports:
        done.reasons[each.reason] = done.reasons.get(each.reason, 0) + 1
        job.tell(each)


def _load(job: Import, changes: list[Change], done: Imported, *, is_ours: bool) -> tuple[Change, ...]:
    """Store what is newer; return what Postgres cannot hold."""
    places = {change.installation for change in changes}
    stored = registrations.stored(job.connection, places) if places else {}
    newer = [
        change
        for change in changes
        if change.installation not in stored or stored[change.installation].version < change.registration.version
    ]
    if job.dry:
        loaded = loading.Loaded(len(newer))
    else:
        extra = source.known(job.reference, newer) if is_ours else None
        loaded = loading.load(job.connection, newer, job.identity.at_rest, extra)
    done.taken += loaded.stored
    done.stored_already += len(changes) - loaded.stored - len(loaded.refused)
    return loaded.refused
