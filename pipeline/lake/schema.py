"""The columns of the events in the lake, and what each means."""

from typing import Final

#: The schema version of the events in Postgres that `wakupush.pipeline.lake.export` understands.
EVENT_VERSION: Final = 5

#: The columns with their types in Spark's SQL.
EVENTS: Final = {
    "day": "date",
    "kind": "string",
    "time": "timestamp",
    "queue": "string",
    "platform": "string",
    "failure": "string",
    "reason": "string",
    "attempt": "int",
    "batch_size": "int",
    "worker": "string",
    "trace": "binary",
    "user": "binary",
    "installation": "binary",
    "queue_wait_ms": "bigint",
    "latency_ms": "bigint",
    "count": "int",
    "app": "string",
    "push_type": "string",
    "shard": "int",
    "age_ms": "bigint",
}

#: What each column means, for the table itself and docs/operating/pipeline.md.
MEANINGS: Final = {
    "day": "The day of `time`, UTC; a partition.",
    "kind": "The kind of event; files are in its order.",
    "time": "When it happened: received and foreign to the second, all others to the hour.",
    "queue": "The queue that the message came through.",
    "platform": "ios or android.",
    "failure": "The label of a failure.",
    "reason": "Why a notification was filtered.",
    "attempt": "Which attempt of a delivery, from 1.",
    "batch_size": "Messages in the task; only in events that name no user.",
    "worker": "Which worker process; only in events that name no user.",
    "trace": "Pseudonym of the message, 16 bytes, of this period; not in events that name a user, nor in foreign ones.",
    "user": "Pseudonym of the user, 16 bytes, of this period.",
    "installation": "Pseudonym of the installation, 16 bytes, of this period.",
    "queue_wait_ms": "Milliseconds between ingest seeing the message and a worker taking it.",
    "latency_ms": "Milliseconds between ingest seeing the message and this event: answered, delivered and foreign.",
    "count": "How many messages, or notifications of a message, the event stands for; waits are the longest of them.",
    "app": "The name of the app; empty if the server does not tell apps apart.",
    "push_type": "message, mention, join_request or contact_request.",
    "shard": "The shard that the message came from; only in received, and not of messages that are not for us.",
    "age_ms": "Milliseconds between the time of the sender and ingest seeing the message; only where there is a shard.",
}


def milliseconds(seconds: str) -> str:
    """Return the SQL that makes whole milliseconds of a column of seconds."""
    return f"CAST(round(CAST({seconds} AS DOUBLE) * 1000) AS BIGINT)"
