"""The roles of Postgres, one for each process, and the table of what each may do there.

`wakupush migrate` makes the grants out of it (`wakupush.postgres.roles`), and `wakupush doctor` compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

#: Columns of a table by name.
Columns = tuple[str, ...]
#: All columns, also those that are added later.
ALL: Final[Columns] = ("",)


class Role(StrEnum):
    """A role, by its name in Postgres."""

    REGISTRATION = "wakupush_registration"
    QUERY = "wakupush_query"
    DISPATCH = "wakupush_dispatch"
    SCHEDULE = "wakupush_schedule"
    RECONCILE = "wakupush_reconcile"
    EXPORTER = "wakupush_exporter"
    FEEDBACK = "wakupush_feedback"
    #: For operators: `wakupush dead-letters`, `wakupush quarantine` and `wakupush doctor`.
    OPERATOR = "wakupush_operator"
    #: For the pipeline's export, which reads the events.
    PIPELINE = "wakupush_pipeline"
    #: For the pipeline's jobs over the lake, which use its catalog and nothing else.
    LAKE = "wakupush_lake"
    #: For operators who move registrations from or to another place: the pipeline's `rebuild` and `warm-topics`,
    #: `wakupush import` and `wakupush export`.
    REBUILD = "wakupush_rebuild"


#: The role of each command that reaches Postgres, by its first words; `wakupush migrate` connects as the owner.
ROLE_OF: Final[Mapping[tuple[str, ...], Role]] = {
    ("worker", "registration"): Role.REGISTRATION,
    ("worker", "query"): Role.QUERY,
    ("worker", "dispatch"): Role.DISPATCH,
    ("beat",): Role.SCHEDULE,
    ("ingest", "reconcile"): Role.RECONCILE,
    ("exporter",): Role.EXPORTER,
    ("feedback",): Role.FEEDBACK,
    ("dead-letters",): Role.OPERATOR,
    ("quarantine",): Role.OPERATOR,
    ("doctor",): Role.OPERATOR,
    ("pipeline", "export"): Role.PIPELINE,
    ("pipeline", "tidy"): Role.LAKE,
    ("pipeline", "report"): Role.LAKE,
    ("pipeline", "capacity"): Role.LAKE,
    ("pipeline", "rebuild"): Role.REBUILD,
    ("pipeline", "warm-topics"): Role.REBUILD,
    ("import", "reference"): Role.REBUILD,
    ("export", "reference"): Role.REBUILD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What a role may do with a table: with `ALL` columns, or with some.

    UPDATE and DELETE also need SELECT on the columns by which they find rows. Locking a row counts as an UPDATE.
    """

    select: Columns = ()
    insert: Columns = ()
    update: Columns = ()
    delete: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One grant."""

    role: Role
    #: A table, a function with the types of its arguments in brackets, or the schema.
    on: str
    #: As Postgres calls it.
    privilege: str
    #: Empty for the whole table.
    column: str = ""


@dataclass(frozen=True, slots=True)
class Login:
    """A login that has the rights of a role, and how its rights differ from those that the role should have."""

    name: str
    role: Role
    #: It is a superuser or owns the tables: no grant bounds it.
    is_unbounded: bool
    #: In words, each like ``SELECT on deliveries (state)``.
    lacks: tuple[str, ...]
    exceeds: tuple[str, ...]


#: What an unregistration leaves empty.
_SECRETS: Final[Columns] = (
    *("token_type", "enabled", "allow_from_contacts_only", "block_mentions", "sealed_device"),
    *("sealed_allowed_key_list", "access_token_digest", "access_token_since", "blocked_chat_digests"),
    *("muted_chat_digests", "allowed_mentions_chat_digests"),
)
#: Says which code may run on the schema: every process that keeps a connection asks.
_MIGRATIONS: Final[Mapping[str, Rights]] = {"schema_migrations": Rights(select=("name",))}

#: What is updated of a message that is put into quarantine again.
_QUARANTINED: Final[Columns] = ("reason", "attempts", "retried_at")
#: What every pool of workers needs for messages of any kind.
_POOL: Final[Mapping[str, Rights]] = {
    "ledger": Rights(select=("message_hash",), insert=ALL, delete=True),
    "message_attempts": Rights(select=("message_hash", "attempts"), insert=ALL, update=ALL, delete=True),
    # All but the messages themselves.
    "quarantine": Rights(
        select=("message_hash", *_QUARANTINED, "key_hash", "installation_hash"),
        insert=ALL,
        update=(*_QUARANTINED, "quarantined_at", "key_hash", "installation_hash"),
        delete=True,
    ),
    "message_segments": Rights(select=ALL, insert=ALL, update=("received_at",), delete=True),
    "answers": Rights(select=("id",), insert=ALL, update=("publish_at",), delete=True),
    "delivery_events": Rights(insert=ALL),
}

RIGHTS: Final[Mapping[Role, Mapping[str, Rights]]] = {
    Role.REGISTRATION: {
        **_POOL,
        # A row that replaces another one has to be readable, too: Postgres asks for it with ON CONFLICT.
        "registrations": Rights(select=ALL, insert=ALL, update=ALL),
        "query_topics": Rights(insert=ALL),
        # Unregistering takes both along.
        "deliveries": Rights(select=("key_hash", "installation_hash"), delete=True),
        **_MIGRATIONS,
    },
    Role.QUERY: {
        **_MIGRATIONS,
        **_POOL,
        "registrations": Rights(
            select=(
                *("key_hash", "installation_hash", "registered", "version", "token_died_at"),
                *("allow_from_contacts_only", "sealed_device", "sealed_allowed_key_list"),
            )
        ),
        "query_topics": Rights(select=ALL),
        "waiting_queries": Rights(insert=ALL),
    },
    Role.DISPATCH: {
        **_POOL,
        "registrations": Rights(
            select=(
                *("key_hash", "installation_hash", "registered", "version", "token_type", "enabled", "block_mentions"),
                *("allow_from_contacts_only", "token_died_at", "suspected_at", "proven", "sealed_device"),
                *("access_token_digest", "access_token_since", "blocked_chat_digests", "muted_chat_digests"),
                "allowed_mentions_chat_digests",
            ),
            update=("token_died_at", "suspected_at", "proven"),
        ),
        "admitted_requests": Rights(select=("message_id", "succeeded", "expired"), insert=ALL, update=("succeeded",)),
        "packed_requests": Rights(select=ALL),
        "packed_months": Rights(select=ALL),
        "deliveries": Rights(select=ALL, insert=ALL, update=ALL),
        "token_trials": Rights(select=ALL, insert=ALL, update=("tried", "bad")),
        **_MIGRATIONS,
    },
    Role.SCHEDULE: {
        "registrations": Rights(
            select=("key_hash", "installation_hash", "registered", "token_died_at"),
            # What had a dead token for long goes.
            update=(*_SECRETS, "registered", "request_digest", "token_died_at", "suspected_at"),
        ),
        "query_topics": Rights(select=ALL, update=("symmetric_key",), delete=True),
        # What waited is taken out of the ledger again when it is enqueued.
        "waiting_queries": Rights(select=ALL, update=("due_at",), delete=True),
        "ledger": Rights(select=("message_hash",), delete=True),
        "deliveries": Rights(
            select=(
                *("delivery_key", "platform", "state", "attempt", "failure", "feedback", "feedback_due_at"),
                *("next_attempt_at", "lease_until", "finished_at", "task_id", "key_hash"),
                "installation_hash",
            ),
            update=("state", "failure", "lease", "lease_until", "next_attempt_at", "feedback_due_at"),
            delete=True,
        ),
        "answers": Rights(select=ALL, update=("publish_at",), delete=True),
        "token_trials": Rights(select=ALL, delete=True),
        **_MIGRATIONS,
        # What is past its retention.
        "message_segments": Rights(select=ALL, update=("received_at",), delete=True),
        "ledger_default": Rights(select=("ctid", "received_at"), delete=True),
        "delivery_events_default": Rights(select=("ctid", "time"), delete=True),
        "message_attempts": Rights(select=("ctid", "updated_at"), delete=True),
        "packed_requests": Rights(select=("month",), delete=True),
        "packed_months": Rights(select=("month",), delete=True),
        "quarantine": Rights(
            select=("ctid", "message_hash", "payload", "quarantined_at", "key_hash", "installation_hash"), delete=True
        ),
    },
    Role.RECONCILE: {
        **_MIGRATIONS,
        "ledger": Rights(select=("message_hash",)),
        "message_attempts": Rights(select=("message_hash", "updated_at")),
        "watermarks": Rights(select=ALL, insert=ALL, update=("walked_to", "updated_at")),
    },
    Role.EXPORTER: {
        **_MIGRATIONS,
        "deliveries": Rights(select=("platform", "state", "next_attempt_at")),
    },
    Role.FEEDBACK: {
        **_MIGRATIONS,
        "deliveries": Rights(
            select=("delivery_key", "attempt", "state", "feedback"), update=("feedback", "feedback_due_at")
        ),
    },
    Role.OPERATOR: {
        "quarantine": Rights(select=ALL, update=("retried_at",), delete=True),
        "ledger": Rights(select=("message_hash",), delete=True),
        "message_attempts": Rights(select=("message_hash",), delete=True),
        "registrations": Rights(
            select=("key_hash", "installation_hash", "registered", "version", "token_died_at", "suspected_at")
        ),
        "deliveries": Rights(
            select=(
                *("delivery_key", "key_hash", "installation_hash", "platform", "notification_type", "state"),
                *("attempt", "version", "failure", "seen_at", "expires_at", "finished_at", "trace_id"),
            ),
            update=("state", "attempt", "failure", "next_attempt_at", "expires_at", "finished_at"),
            delete=True,
        ),
        "delivery_history": Rights(select=ALL),
        # Forgetting a fault of the platforms: docs/operating/dead-letters.md.
        "token_trials": Rights(select=("platform",), delete=True),
        "schema_migrations": Rights(select=("name", "checksum")),
    },
    Role.PIPELINE: {
        "delivery_history": Rights(select=ALL),
    },
    Role.LAKE: {},
    Role.REBUILD: {
        "registrations": Rights(select=ALL, insert=ALL, update=ALL),
        "query_topics": Rights(select=ALL, insert=ALL, update=("symmetric_key",)),
        "deliveries": Rights(select=("key_hash", "installation_hash"), delete=True),
        "quarantine": Rights(select=("key_hash", "installation_hash"), delete=True),
        "admitted_requests": Rights(select=("message_id",), insert=("message_id", "succeeded", "expired")),
        **_MIGRATIONS,
    },
}

#: Who has all rights on the rows of the lake's catalog, the schema `wakupush_lake`. So a role that reads the lake may
#: also replace it.
OF_THE_CATALOG: Final = (Role.PIPELINE, Role.LAKE)

#: Which role may call which functions. They do for their caller what only the owner of the tables may do.
CALLS: Final[Mapping[Role, tuple[str, ...]]] = {
    Role.SCHEDULE: ("create_partition(text, date, text)", "drop_partition(text, date, double precision)"),
}


def declared() -> Iterator[Right]:
    """Yield every right of the tables above."""
    for role, tables in RIGHTS.items():
        for table, rights in tables.items():
            for column in rights.select:
                yield Right(role, table, "SELECT", column)
            for column in rights.insert:
                yield Right(role, table, "INSERT", column)
            for column in rights.update:
                yield Right(role, table, "UPDATE", column)
            if rights.delete:
                yield Right(role, table, "DELETE")
    for role, functions in CALLS.items():
        for function in functions:
            yield Right(role, function, "EXECUTE")
