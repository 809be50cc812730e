"""``wakupush pipeline rebuild``: rebuilds the registrations from the archive, as the workers would have made them.

Three steps, each over the rows of the one before:

1. `_open` opens every message. What clients sealed for the server stays sealed.
2. `_join` puts together what came in segments.
3. `_fold` replays the registrations of each user in the order in which they were sent, by the workers' own functions,
   and loads the resulting state of each installation.

Rows between the steps contain only ciphertext and hashes, because Spark writes them to disks and sends them over the
network. Executors read the server's key from its file; plans and logs contain only the name of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import Connection
from pydantic import SecretStr
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it
from pyspark.sql.pandas.types import from_arrow_schema
from redis import RedisError

from wakupush.model.entries import Entry
from wakupush.model.failures import Failure
from wakupush.model.registrations import Change, Installation, Registration
from wakupush.pipeline.archive.files import SCHEMA, Archive, message_of
from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.postgres import connect
from wakupush.pipeline.session import SPARK_ERRORS
from wakupush.postgres import query_topics
from wakupush.protocol import registration
from wakupush.protocol.application import Opened, Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.identity import Identity, parse
from wakupush.protocol.keys import PublicKey
from wakupush.protocol.registration import Limits, request_id
from wakupush.protocol.sealing import seal, unseal
from wakupush.protocol.segments import Segment
from wakupush.runtime import keyfile
from wakupush.runtime.connections.postgres import check_dsn, parameters, set_timeouts
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import PostgresSettings, Settings
from wakupush.server.engine.message import Part
from wakupush.server.engine.open import join, open_asymmetric
from wakupush.server.engine.segments import MESSAGE_SEGMENTS
from wakupush.server.registration import loading
from wakupush.server.registration.installations import Installations, change_of
from wakupush.server.registration.loading import LoadError
from wakupush.server.registration.read import open_registration

#: Installations, and bytes of their messages, of one transaction, which locks their rows.
LOADED_AT_ONCE: Final = 2_000
LOADED_BYTES: Final = 16_000_000
#: Messages that are put together before they are handed over: a sender can repeat the same parts again and again.
WHOLES_AT_ONCE: Final = 64
#: How many rows Spark reads, keeps and hands over at once. A payload has up to 150 KB, so a few hundred rows can be as
#: large as ten thousand elsewhere.
FEW_ROWS: Final = {
    "spark.sql.parquet.columnarReaderBatchSize": "256",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "256",
    "spark.sql.inMemoryColumnarStorage.batchSize": "256",
}

#: A registration that was opened; the fold decides its outcome.
REGISTRATION: Final = "registration"
ELSEWHERE: Final = "elsewhere"
OTHER: Final = "other"
OTHER_TYPES: Final = {Type.PUSH_NOTIFICATION_QUERY, Type.PUSH_NOTIFICATION_REQUEST}
SEGMENT: Final = "segment"
REGISTERED: Final = "registered"
UNREGISTERED: Final = "unregistered"
REPEATED: Final = "repeated"
#: The outcomes of a message. Others are labels of failures, why it is refused. For docs/operating/pipeline.md too.
MEANINGS: Final = {
    ELSEWHERE: "On another topic than the server's own.",
    OTHER: "A push request or a query.",
    SEGMENT: "A part of a message; the whole message also counts.",
    REGISTERED: "A valid registration, newer than all before it.",
    UNREGISTERED: "A valid unregistration, newer than all before it.",
    REPEATED: "A repeat of the newest registration before it.",
}

#: The content of a message, for the next step.
_CONTENT_SCHEMA: Final = pa.schema(
    [
        pa.field("outcome", pa.string()),
        pa.field("sent", pa.int64()),
        # Of a registration: who sent it, as hash and key; its request's digest; what the client sealed for the server.
        pa.field("key_hash", pa.binary()),
        pa.field("client", pa.binary()),
        # The id of the server's key that it is sealed to; a segment of it has the same.
        pa.field("server", pa.binary()),
        pa.field("digest", pa.binary()),
        # Of a segment: who signed it; of which message it is which part, of how many; its payload is sealed by us.
        pa.field("signer", pa.binary()),
        pa.field("whole", pa.binary()),
        pa.field("index", pa.int64()),
        pa.field("count", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("sealed", pa.binary()),
    ]
)
_COUNTS: Final = pa.schema([pa.field("what", pa.string()), pa.field("count", pa.int64())])
#: Counts of the fold besides outcomes.
_REGISTERED_INSTALLATIONS: Final = "registered installations"
_UNREGISTERED_INSTALLATIONS: Final = "unregistered installations"
_LOADED_COUNT: Final = "stored"

_Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The counts of a run."""

    #: How many messages there were of each outcome, or label of a failure.
    outcomes: dict[str, int]
    #: Installations that the archive knows.
    registered: int
    unregistered: int
    #: How many of them were newer than those in the database.
    stored: int
    #: True if ingest now watches the query topics of all users; False if Redis did not answer.
    watched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The settings for executors. They are pickled into tasks, and contain no secret in the clear."""

    key_file: Path
    limits: Limits
    most_installations: int
    most_segments: int
    #: The connection string, sealed under the server's key.
    sealed_dsn: bytes = field(repr=False)
    #: Of which executors need the time-outs alone: the connection string is not in it.
    postgres: PostgresSettings

    @classmethod
    def of(cls, settings: Settings) -> Job:
        """Return the job of the settings.

        Raises:
            PipelineError: there is no key file, or no key in it.
        """
        if settings.identity_key_file is None:
            raise PipelineError("WAKUPUSH_IDENTITY_KEY_FILE is missing: executors read the server's key from it")
        key_file = settings.identity_key_file.resolve()
        return cls(
            key_file=key_file,
            limits=registration.LIMITS,
            most_installations=settings.limits.installations_per_key,
            most_segments=MESSAGE_SEGMENTS,
            sealed_dsn=seal(identity_in(key_file).pipeline_key, check_dsn(settings.postgres, direct=True).encode()),
            postgres=settings.postgres.model_copy(update={"dsn": SecretStr(""), "direct_dsn": None}),
        )

    def connect(self, identity: Identity) -> Connection:
        """Connect to the database.

        Raises:
            LoadError: it does not answer.
        """
        dsn = unseal(identity.pipeline_key, self.sealed_dsn).decode()
        try:
            connection = psycopg.connect(
                dsn, autocommit=True, application_name="wakupush pipeline", **parameters(self.postgres)
            )
            set_timeouts(connection, self.postgres)
        except psycopg.Error as error:
            raise LoadError(f"{type(error).__name__}: the database does not answer") from None
        return connection


def identity_in(key_file: Path) -> Identity:
    """Return the identity of the key in a file.

    Raises:
        PipelineError: there is no key in it.
    """
    try:
        return keyfile.read(key_file, parse)
    except keyfile.KeyFileError as error:
        raise PipelineError(str(error)) from None


def run(spark: SparkSession, settings: Settings) -> Rebuilt:
    """Rebuild the registrations of the archive, and load them into the database.

    It may be killed at any time and run again, also beside a running server: newer rows in the database stay.

    Args:
        settings: with a key file that every executor has under the same path.

    Raises:
        PipelineError: the text says what to do.
    """
    job = Job.of(settings)
    # Of each key its own: what was fetched before a rotation may not be in the Stores any more.
    archives = [Archive.of(settings.pipeline, key.public_key) for key in identity_in(job.key_file).keys]
    files = [file for archive in archives for file in archive.files()]
    if not files:
        raise PipelineError(f"{settings.pipeline.archive} has nothing of this server: run fetch-archive first")
    with connect(settings.postgres) as connection:
        query_topics.count_without_key(connection)
    for name, value in FEW_ROWS.items():
        spark.conf.set(name, value)
    messages = spark.read.schema(from_arrow_schema(SCHEMA)).parquet(*map(str, files))
    try:
        counts = _rebuild(messages, job, settings.pipeline.shuffle_partitions)
    except SPARK_ERRORS as error:
        raise PipelineError(_words(str(error))) from error
    facts = {
        name: counts.pop(name, 0) for name in (_REGISTERED_INSTALLATIONS, _UNREGISTERED_INSTALLATIONS, _LOADED_COUNT)
    }
    return Rebuilt(
        outcomes=dict(sorted(counts.items())),
        registered=facts[_REGISTERED_INSTALLATIONS],
        unregistered=facts[_UNREGISTERED_INSTALLATIONS],
        stored=facts[_LOADED_COUNT],
        watched=_watch(settings),
    )


def describe(rebuilt: Rebuilt) -> str:
    """Return the counts of a run, for people."""
    width = max(map(len, rebuilt.outcomes), default=0)
    lines = [f"  {outcome:<{width}}  {count}" for outcome, count in rebuilt.outcomes.items()]
    return "\n".join(
        [
            "Messages of the archive:",
            *lines,
            f"Installations in it: {rebuilt.registered} registered, {rebuilt.unregistered} unregistered.",
            f"Newer than what the database had: {rebuilt.stored}.",
        ]
    )


def _rebuild(messages: DataFrame, job: Job, partitions: int) -> Counter[str]:
    contents = messages.mapInArrow(partial(_open, job), from_arrow_schema(_CONTENT_SCHEMA)).persist(
        StorageLevel.DISK_ONLY
    )
    outcomes = _count(contents)
    registrations = contents
    if outcomes[SEGMENT]:
        parts = _in_order(contents.where(F.col("outcome") == SEGMENT), partitions, ("signer", "whole"), "sent", "index")
        wholes = parts.mapInArrow(partial(_join, job), from_arrow_schema(_CONTENT_SCHEMA)).persist(
            StorageLevel.DISK_ONLY
        )
        outcomes += _count(wholes)
        registrations = contents.unionByName(wholes)
    del outcomes[REGISTRATION]
    registrations = registrations.where(F.col("outcome") == REGISTRATION)
    installation_counts = _in_order(registrations, partitions, ("key_hash",), "sent", "digest").mapInArrow(
        partial(_fold, job), from_arrow_schema(_COUNTS)
    )
    counts = installation_counts.groupBy("what").agg(F.sum("count").alias("count")).collect()
    messages.sparkSession.catalog.clearCache()
    return outcomes + Counter({row["what"]: row["count"] for row in counts})


def _in_order(frame: DataFrame, partitions: int, group: tuple[str, ...], *order: str) -> DataFrame:
    """Return rows so that those of a group follow each other, in an order that does not depend on that of the input.

    The number of partitions is given, because Spark would make one of few bytes, however expensive its rows are.
    """
    return frame.repartition(partitions, *group).sortWithinPartitions(*group, *order)


def _count(frame: DataFrame) -> Counter[str]:
    return Counter({row["outcome"]: row["count"] for row in frame.groupBy("outcome").count().collect()})


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        yield from batch.to_pylist()


def _open(job: Job, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    identity = identity_in(job.key_file)
    for batch in batches:
        yield pa.RecordBatch.from_pylist([_content_row(row, identity) for row in batch.to_pylist()], _CONTENT_SCHEMA)


def _content_row(row: _Row, identity: Identity) -> _Row:
    if row["content_topic"] not in identity.by_topic:
        return {"outcome": ELSEWHERE}
    entry = Entry(row["pubsub_topic"], row["hash"], 0.0, message_of(row))
    try:
        content = open_asymmetric(entry, identity)
    except Exception:  # noqa: BLE001 - the workers would put this message aside, and so does a rebuild
        content = Failure.QUARANTINED
    if isinstance(content, Part):
        segment = content.segment
        return {
            "outcome": SEGMENT,
            "sent": row["timestamp"],
            "server": content.recipient and identity.id_of(content.recipient),
            "signer": content.transport_signer.uncompressed if content.transport_signer else b"",
            "whole": segment.entire_message_hash,
            "index": segment.index,
            "count": segment.count,
            "length": segment.original_length,
            "sealed": seal(identity.segment_key, segment.payload),
        }
    return _row_of(content, row["timestamp"], identity)


def _row_of(content: Opened | Failure, timestamp: int, identity: Identity) -> _Row:
    """Return the row for the content of a whole message."""
    if isinstance(content, Failure):
        return {"outcome": content.label}
    if content.type != Type.PUSH_NOTIFICATION_REGISTRATION:
        return {"outcome": OTHER if content.type in OTHER_TYPES else Failure.TYPE_UNSUPPORTED.label}
    return {
        "outcome": REGISTRATION,
        "sent": timestamp,
        "key_hash": content.signer.key_hash,
        "client": content.signer.uncompressed,
        "server": content.recipient and identity.id_of(content.recipient),
        "digest": identity.request_digest(request_id(content.inner)),
        "sealed": content.inner,
    }


def _join(job: Job, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put together the parts of messages in segments, as `wakupush.server.engine.segments.put_together` does."""
    identity = identity_in(job.key_file)
    groups = groupby(_rows(batches), itemgetter("signer", "whole"))
    wholes = (whole for _, rows in groups for whole in _wholes(rows, identity, job.most_segments))
    while some := list(islice(wholes, WHOLES_AT_ONCE)):
        yield pa.RecordBatch.from_pylist(some, _CONTENT_SCHEMA)


def _wholes(parts: Iterable[_Row], identity: Identity, most_segments: int) -> Iterator[_Row]:
    """Yield the rows for the parts of one message, which can be complete several times, or none."""
    payloads: dict[int, bytes] = {}
    for row in parts:
        if row["count"] > most_segments:
            yield {"outcome": Failure.SEGMENT_LIMIT.label}
            continue
        payloads.setdefault(row["index"], row["sealed"])
        if len(payloads) < row["count"]:
            continue
        segments = [
            Segment(row["whole"], index, row["count"], unseal(identity.segment_key, ciphertext), row["length"])
            for index, ciphertext in payloads.items()
        ]
        signer = PublicKey(row["signer"]) if row["signer"] else None
        payloads.clear()
        server = identity.by_id[row["server"]]
        yield _row_of(join(Part(segments[-1], signer, server), segments), row["sent"], identity)


def _fold(job: Job, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decide on the registrations of each user in the order in which they were sent, and load the results."""
    identity = identity_in(job.key_file)
    counts: Counter[str] = Counter()
    changes: dict[Installation, Change] = {}
    size = 0
    with job.connect(identity) as connection:
        for _, rows in groupby(_rows(batches), itemgetter("key_hash")):
            installations = Installations()
            for row in rows:
                outcome, change = _decide(row, installations, identity, job)
                counts[outcome] += 1
                if change is None:
                    continue
                installations.take(change.installation, change.row)
                changes[change.installation] = change
                size += len(row["sealed"])
                if len(changes) >= LOADED_AT_ONCE or size >= LOADED_BYTES:
                    counts += _load(connection, changes, identity)
                    changes, size = {}, 0
            registered_count = sum(installation.registered for installation in installations.stored.values())
            counts[_REGISTERED_INSTALLATIONS] += registered_count
            counts[_UNREGISTERED_INSTALLATIONS] += len(installations.stored) - registered_count
        counts += _load(connection, changes, identity)
    yield pa.RecordBatch.from_pylist([{"what": what, "count": count} for what, count in counts.items()], _COUNTS)


def _load(connection: Connection, changes: dict[Installation, Change], identity: Identity) -> Counter[str]:
    outcome = loading.load(connection, list(changes.values()), identity.at_rest)
    return Counter({_LOADED_COUNT: outcome.stored, Failure.QUARANTINED.label: len(outcome.refused)})


def _decide(row: _Row, installations: Installations, identity: Identity, job: Job) -> tuple[str, Change | None]:
    """Return the outcome of a registration, and the change to store."""
    try:
        request = open_registration(
            identity,
            PublicKey(row["client"]),
            identity.by_id[row["server"]],
            row["sealed"],
            most_bytes=job.limits.registration_bytes,
        )
        change = change_of(
            identity, request, installations, most_installations=job.most_installations, limits=job.limits
        )
    except Refused as refused:
        return refused.failure.label, None
    except Exception:  # noqa: BLE001 - the workers would put this message aside, and so does a rebuild
        return Failure.QUARANTINED.label, None
    if change is None:
        return REPEATED, None
    return REGISTERED if isinstance(change.registration, Registration) else UNREGISTERED, change


def _watch(settings: Settings) -> bool:
    """Let ingest watch all query topics of the database; return whether Redis took them."""
    try:
        with connect(settings.postgres) as connection, closing(open_redis(settings.redis)) as redis:
            loading.watch(connection, redis)
    except RedisError:
        return False
    return True


def _words(text: str) -> str:
    """Return an error text for a failure of Spark, with what to do about it if that is known."""
    if match := re.search(r"(?:LoadError|PipelineError|ModuleNotFoundError): [^\n]+", text):
        return f"an executor failed: {match[0]}"
    if path := re.search(r"[^\s:?*]+\.parquet", text):
        return f"{path[0]} cannot be read: delete it, and run fetch-archive again"
    return f"Spark failed: {text.splitlines()[0]}"
