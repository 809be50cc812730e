"""The settings of every wakupush process.

They are environment variables with the prefix ``WAKUPUSH_``, nested by ``__``. The file that `FILE_VARIABLE` names may
have them too; a variable wins.
"""

import difflib
import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, LiteralString, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from wakupush.runtime.durations import MOST_DAYS, parse_duration
from wakupush.runtime.profiles import BUILT_IN, ProfileName, ProfileTable, keys_of
from wakupush.runtime.urls import is_http, is_multiaddress, node_name, peer_name
from wakupush.runtime.usage import UsageError

#: Seconds for which a worker tries to store the outcome of a post.
STORE_SECONDS = 20.0
#: Seconds of a lease that must be left for what comes before a post.
START_SECONDS = 5.0
#: The variable that names a TOML file with settings.
FILE_VARIABLE = "WAKUPUSH_CONFIG"
#: Of the variables that stand for options of ``wakupush client``: they are no settings of a server.
CLIENT_PREFIX = "WAKUPUSH_CLIENT_"
#: Of the variables that are for tests alone.
_TEST_PREFIX = "WAKUPUSH_TEST_"
#: The field of `Settings` with a table for each app.
_APPS = "apps"
#: The app of `wakupush canary`, and the topic of its devices.
CANARY = "canary"
CANARY_TOPIC = "wakupush.canary"
#: The field of `Settings` that no variable has.
_FILE_ONLY = "profiles"


def _seconds(value: object) -> object:
    """Return the seconds of a text such as ``15m``; numbers are seconds already."""
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        raise PydanticCustomError("seconds", "seconds are expected, or a time such as 30s, 15m, 2h or 30d") from None


class _Duration:
    """Marks a number of seconds that may be written with a unit, for pydantic and for the schema of the chart."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_seconds, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        number = handler(schema)
        return {**number, "type": [number["type"], "string"], "pattern": "^[0-9]+[smhd]$"}


_FROM_DURATION = _Duration()
#: As far as all times in our code can go back.
_MOST_SECONDS = MOST_DAYS * 86_400
Seconds = Annotated[float, Field(gt=0, le=_MOST_SECONDS), _FROM_DURATION]
Count = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=0, le=65_535)]
#: That of `wakupush.model.waku_message.PUBSUB_TOPIC`, which is above this package.
_PUBSUB_TOPIC = re.compile(r"/waku/2/(rs/\d{1,5}/\d{1,5}|[\w-]+/proto)", re.ASCII)
#: -1 opens none.
PortOrNone = Annotated[int, Field(ge=-1, le=65_535)]


def _parse(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise PydanticCustomError("json", "a list in JSON is expected") from None


#: With `NoDecode`: pydantic-settings would not say which variable is not JSON.
_FROM_JSON = BeforeValidator(_parse)


def _split(value: object) -> object:
    if isinstance(value, str) and not value.startswith("["):
        return (value,)
    return _parse(value)


def _checked(check: Callable[[Any], object], kind: LiteralString, text: LiteralString) -> AfterValidator:
    """Return a validator that refuses a value which does not pass a check; the text says what is expected."""

    def validate(value: object) -> object:
        if not check(value):
            raise PydanticCustomError(kind, text)
        return value

    return AfterValidator(validate)


def _differ(name_of: Callable[[str], str], text: LiteralString) -> AfterValidator:
    """Return a validator that refuses addresses of which two have the same name."""
    return _checked(lambda addresses: len(set(map(name_of, addresses))) == len(addresses), "names", text)


def _is_sentinel(address: str) -> bool:
    return re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@;]+):\d{1,5}", address) is not None


def _is_feedback_secret(secret: SecretStr) -> bool:
    # gorush drops a header with a second colon, and trims spaces.
    return re.fullmatch("[!-9;-~]{16,}", secret.get_secret_value()) is not None


SentinelAddress = Annotated[str, _checked(_is_sentinel, "sentinel", "addresses are expected such as sentinel-0:26379")]
HttpUrl = Annotated[str, _checked(is_http, "url", "a URL is expected that begins with http:// or https://")]
HttpUrls = Annotated[tuple[HttpUrl, ...], Field(min_length=1), NoDecode, BeforeValidator(_split)]
FeedbackSecret = Annotated[
    SecretStr,
    _checked(_is_feedback_secret, "secret", "16 or more visible ASCII characters are expected, none a colon"),
]
#: A bundle id, in full: patterns would let strangers choose the app.
Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,255}$")]
AppName = Annotated[str, Field(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$", max_length=40)]
Multiaddress = Annotated[
    str,
    _checked(
        is_multiaddress,
        "multiaddress",
        "multiaddresses are expected such as /dns4/store.example.org/tcp/30303/p2p/16Uiu2HAm…",
    ),
]
#: Without these checks, s3a://bucket would be a folder of that name.
Place = Annotated[
    str,
    _checked(
        re.compile("s3://[^/]+.*|(?![a-z][a-z0-9+.-]*:/).+").fullmatch,
        "place",
        "a folder or s3://BUCKET/PATH is expected",
    ),
]
Folder = Annotated[
    Path,
    _checked(
        lambda folder: not re.match("[a-z][a-z0-9+.-]*:/", str(folder)),
        "folder",
        "a folder is expected; only the lake and reports can be in a store",
    ),
]
PubsubTopic = Annotated[str, _checked(_PUBSUB_TOPIC.fullmatch, "shard", "shards are expected such as /waku/2/rs/16/32")]


class Group(BaseModel):
    """A nested group of settings; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WakuSettings(Group):
    """The Waku nodes."""

    url: Annotated[HttpUrls, _differ(node_name, "a node is named twice")] = ("http://127.0.0.1:8645",)
    """URL of the REST API of a nwaku or go-waku relay node, or a JSON list of several: ingest reads all of them, and
    each answer goes to two of them."""
    shards: Annotated[tuple[PubsubTopic, ...], Field(min_length=1), NoDecode, _FROM_JSON] = (
        "/waku/2/rs/16/32",
        "/waku/2/rs/16/64",
    )
    """Static shards to read (pubsub topics), as a JSON list."""
    cache_capacity: Count = 1000
    """Messages that the node caches for ingest: the value of its option `--rest-relay-cache-capacity`."""
    timeout: Seconds = 10.0
    """Time-out of a request to the node, in seconds."""
    max_message_bytes: Annotated[int, Field(ge=10_000)] = 150_000
    """Largest WakuMessage that the server sends, in bytes of protobuf; larger answers go in segments."""
    max_read_bytes: Annotated[int, Field(ge=150_000, le=3 * 2**20)] = 2**20
    """Largest payload that the server reads, live and from Stores, in bytes; larger ones count as malformed.
    The nodes of the Status network relay 1 MiB if their option `--max-msg-size` allows it."""

    @property
    def nodes(self) -> dict[str, str]:
        """The URLs of all nodes, by their names."""
        return {node_name(url): url for url in self.url}

    @field_validator("shards")
    @classmethod
    def _hashes_tell_shards_apart(cls, shards: tuple[str, ...]) -> tuple[str, ...]:
        # A message's hash is that of its parts one after the other, shard and payload first: on /waku/2/rs/16/3 a
        # payload that begins with a 2 could take the hash of a message on /waku/2/rs/16/32.
        for shard in shards:
            if any(other != shard and other.startswith(shard) for other in shards):
                raise PydanticCustomError("shard", "no shard may be a prefix of another")
        return shards


class RedisSettings(Group):
    """Redis: queues, claims, watched query topics."""

    url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    """URL of the Redis database; with Sentinels its host is the name of their primary, for example
    `redis://user:password@mymaster/0`."""
    sentinels: Annotated[tuple[SentinelAddress, ...], NoDecode, _FROM_JSON] = ()
    """Addresses of all Sentinels, `HOST:PORT`, as a JSON list. They speak TLS if the URL begins with `rediss://`."""
    sentinel_user: str | None = None
    """User at the Sentinels, if they have ACLs."""
    sentinel_password: SecretStr | None = None
    """Password at the Sentinels."""
    timeout: Seconds = 5.0
    """Time-out of connecting and of a command, in seconds; Celery's own commands have 15."""

    @property
    def min_other_sentinels(self) -> int:
        """How many other Sentinels a Sentinel must know to be believed: together they are a majority."""
        return len(self.sentinels) // 2


class PostgresSettings(Group):
    """Postgres: the shared state."""

    dsn: SecretStr = SecretStr("postgresql://wakupush@127.0.0.1:5432/wakupush")
    """Connection string (libpq), with the role of the process; the owner of the tables for `wakupush migrate`."""
    direct_dsn: SecretStr | None = None
    """Connection string past a pooler, for `wakupush migrate`, `pipeline …`, and `import` and `export reference`; by
    default they use the other one."""
    prepared_statements: bool = True
    """Whether connections prepare statements that they repeat. Switch it off behind a PgBouncer older than 1.21 that
    pools transactions."""
    pool_size: Count = 4
    """Most connections of one process (of a worker pool, reconcile, beat or feedback)."""
    timeout: Seconds = 10.0
    """Seconds to wait for a connection."""
    statement_timeout: Seconds = 20.0
    """Time-out of a statement, in seconds. Behind a pooler the role has it, as `wakupush migrate` sets it."""


class GorushSettings(Group):
    """gorush, in sync mode with the local queue engine and max_retry 0."""

    url: HttpUrls = ("http://127.0.0.1:8088",)
    """URL of gorush, or a JSON list of several instances: posts go to those that listen, in turn."""
    dialect: Annotated[str, Field(pattern="^[a-z0-9_-]+$")] = "spec"
    """Profile of the notifications, their texts, data and fields: the specification's (`spec`), Status' of 2026 or of
    2024 (`status`, `status-2024`), `spec` and `status` together (`both`), or one of your own (`[profiles.NAME]`)."""
    batch_size: Annotated[int, Field(ge=1, le=100)] = 64
    """Most notifications in one post, all from one task (gorush refuses more than its max_notification, 100)."""
    connect_timeout: Seconds = 5.0
    """Seconds to wait for a connection."""
    timeout: Seconds = 75.0
    """Seconds after which the outcome of a post is unknown; giving up earlier would double pushes."""
    concurrency: Count = 16
    """Posts that one worker process keeps open at the same time, in equal shares for each app and platform, at least
    one; when no slot is free, deliveries wait as rows."""
    feedback_secret: FeedbackSecret | None = None
    """Secret that gorush sends as `X-Wakupush-Secret` with its feedback: 16 or more visible ASCII characters, no
    colon."""

    @property
    def instances(self) -> dict[str, str]:
        """The URLs of all instances, by their names."""
        return {node_name(url): url for url in self.url}

    @property
    def tries(self) -> int:
        """Most instances that get a post, one after the other, as long as none took any of it."""
        return min(2, len(self.instances))

    @property
    def longest_post(self) -> float:
        """Seconds that a post takes at most, until its outcome is stored."""
        return self.timeout + self.tries * self.connect_timeout + STORE_SECONDS


class AppSettings(Group):
    """An app that the server pushes to, with gorush instances that have its credentials.

    Without any, the server does not tell apps apart: all devices go to `WAKUPUSH_GORUSH__URL`.
    """

    topics: Annotated[tuple[Topic, ...], NoDecode, _FROM_JSON] = ()
    """Bundle ids of the app NAME, in full, as a JSON list: devices that register with one belong to the app. No other
    app may list them."""
    firebase: bool = False
    """Whether this app also has the Firebase devices whose topic no app lists. At most one app has this."""
    profile: str | None = None
    """Its profile; default: `WAKUPUSH_GORUSH__DIALECT`."""
    gorush_urls: Annotated[tuple[HttpUrl, ...], NoDecode, BeforeValidator(_split)] = ()
    """URL of its gorush, or a JSON list of several instances; default: `WAKUPUSH_GORUSH__URL`."""
    feedback_secret: FeedbackSecret | None = None
    """The secret that its gorush sends with its feedback; default: `WAKUPUSH_GORUSH__FEEDBACK_SECRET`."""


class CanarySettings(Group):
    """`wakupush canary`, which registers devices of its own and asks for pushes to them."""

    gorush_url: HttpUrl | None = None
    """URL of `wakupush canary`, for workers: it takes the pushes to its own devices as their gorush would. Without it
    there is no app `canary`, and the process needs a real device."""
    nodes: Annotated[tuple[HttpUrl, ...], NoDecode, BeforeValidator(_split)] = ()
    """URL of the REST API of a node that serves light clients, or a JSON list of several, in turn. Default:
    `WAKUPUSH_WAKU__URL`."""
    device_token: Annotated[SecretStr, Field(min_length=1)] | None = None
    """Token of a real device that gets the pushes instead. It gets about one a minute."""
    apn_topic: Topic | None = None
    """Bundle id of the real device's app. Without it, the token is Firebase's."""


class IngestSettings(Group):
    """`wakupush ingest live`, and how `ingest reconcile` enqueues."""

    poll_interval: Annotated[float, Field(gt=0, le=2), _FROM_DURATION] = 0.05
    """Seconds between polls of a shard, at most 2: a node without a read for 5 s counts as unreachable. Messages of one
    poll share a task. After a poll that filled a task, the next follows at once. While all queues in use are long,
    ingest polls every 0.2 s."""
    batch_size: Annotated[int, Field(ge=1, le=1000)] = 64
    """Most messages in one task; four times as many if one read of the node brings more than that."""
    queue_bytes: Count | None = None
    """Bytes of a queue in Redis at which ingest leaves all new messages to `ingest reconcile`; from half as many on, it
    leaves some. Default: a quarter of Redis' `maxmemory`, or 160 MiB if it has none."""
    claim_ttl: Annotated[int, Field(ge=1, le=_MOST_SECONDS), _FROM_DURATION] = 120
    """Seconds for which nobody enqueues a claimed message again."""
    topic_messages_per_minute: Annotated[int, Field(ge=2)] = 1000
    """Most messages a minute that ingest takes from a query topic on which our keys open only few; chance decides
    which. A user's topic has such messages only if somebody makes them up, or if a busy topic has its hash."""


class ReconcileSettings(Group):
    """`wakupush ingest reconcile`."""

    stores: Annotated[tuple[HttpUrl, ...], NoDecode, _FROM_JSON] = ()
    """URLs of the REST APIs of nodes with a Store, as a JSON list; if empty, all of `WAKUPUSH_WAKU__URL`."""
    store_peers: Annotated[
        tuple[Multiaddress, ...], NoDecode, _FROM_JSON, _differ(peer_name, "a host and port is named twice")
    ] = ()
    """Multiaddresses of other people's Stores, as a JSON list, for example those of the network's fleet. A node of
    `WAKUPUSH_WAKU__URL` asks them for the server's own topics: every few minutes, and every hour for the window."""
    store_peer_pause: Annotated[float, Field(gt=0, le=10), _FROM_DURATION] = 1.0
    """Least seconds between two requests to one of them."""
    pause: Seconds = 3.0
    """Seconds between reads of recent messages; each reads new messages, and the 5 s before them again."""
    window: Seconds = 86_400.0
    """How far back reconcile walks the server's own topics at start, and every hour, in slices; seconds."""
    overlap: Seconds = 120.0
    """Seconds by which messages may be late. Twice in this time, a read begins this far before the watermark."""
    query_window: Seconds = 300.0
    """How far back reconcile walks whole shards for queries, in seconds; no client waits for the answer to an older
    one. At least twice `WAKUPUSH_INGEST__CLAIM_TTL`, or a query whose claim outlives its place in the queue is lost."""

    @property
    def peers(self) -> dict[str, str]:
        """The multiaddresses of all Store peers, by their names."""
        return {peer_name(address): address for address in self.store_peers}


class WorkerSettings(Group):
    """Celery workers."""

    answer_within: Seconds = 1.5
    """The answer to a push request leaves within so many seconds after ingest saw the request, earlier if pushes take
    less: 0.25, 0.5 or 1 s."""
    repeat_answers_after: Annotated[float, Field(ge=0, le=3), _FROM_DURATION] = 1.2
    """Seconds after which the server publishes answers of one part to queries and push requests once more, the same
    ciphertext, for light clients whose subscription was late; 0: never."""
    key_derivation_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Largest share of a core that a beat process spends on keys of query topics (12-25 ms each): 0.2 is enough for
    ten new users a second."""


class TracingSettings(Group):
    """OpenTelemetry."""

    endpoint: str | None = None
    """URL that accepts spans by OTLP over HTTP, for example `http://127.0.0.1:4318/v1/traces`; needs the extra
    `otel`. OpenTelemetry's own variables (`OTEL_…`) do the same, and set headers, resource and sampler."""


class DeliverySettings(Group):
    """Retries of deliveries that failed for the time being."""

    max_attempts: Count = 10
    """Attempts after which a delivery is a dead letter."""
    first_wait: Seconds = 2.0
    """Longest backoff before the second attempt, in seconds; it doubles with each further one."""
    slow_first_wait: Seconds = 30.0
    """The same if the platform asked for fewer pushes, or an operator has to act."""
    max_wait: Seconds = 900.0
    """Longest backoff, in seconds."""
    lease: Seconds = 120.0
    """Seconds for which a worker holds a delivery; a post and storing its outcome must fit into it, or it is put
    back."""
    claim: Seconds = 60.0
    """Seconds after which beat enqueues a due delivery again if no worker has begun its task."""
    message_time_to_live: Seconds = 86_400.0
    """Seconds after which an undelivered notification of a message expires."""
    mention_time_to_live: Seconds = 2 * 86_400.0
    """The same for a mention."""
    join_request_time_to_live: Seconds = 7 * 86_400.0
    """The same for a request to join a community and for a contact request, which wait for an answer."""
    request_max_age: Seconds = 600.0
    """The server neither pushes nor answers a push request that ingest saw more than so many seconds ago."""


class BreakerSettings(Group):
    """The circuit breaker of each platform, shared by all workers."""

    faults: Count = 5
    """The breaker opens after so many posts in a row, of all workers, that found the route to a platform broken."""
    pause: Seconds = 30.0
    """Seconds for which an open breaker lets no post through; then it lets probes through."""


class TokenSettings(Group):
    """When the server believes reports of the platforms that device tokens are dead."""

    brake_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """If the share of bad tokens among those tried on a platform is larger, the server marks none dead; 1: always
    mark."""


class FeedbackSettings(Group):
    """`wakupush feedback`."""

    http_port: Port = 9102
    """Port of gorush's feedback webhook, /healthz, /readyz and /metrics; 0 picks a free one."""


class LimitSettings(Group):
    """Limits on what strangers may send."""

    installations_per_key: Count = 50
    """Most installations of one key."""
    first_registrations_per_hour: Count = 100_000
    """Most registrations of unknown installations an hour in all; each leaves a row for ever. The default is 2.4
    million a day. For a server that gains more users than that in a day, set it to several times the number that you
    expect."""
    installations_per_key_per_hour: Count = 20
    """The same for one key: a user who sets up five devices and reinstalls each app needs ten."""
    pushes_per_device_per_minute: Count = 60
    """Most notifications a minute for one device; a busy group chat brings one a second. Further ones become one a
    minute without content."""
    answer_bytes_per_user_per_minute: Count = 8_000_000
    """Most bytes of answers about one user a minute. An answer counts each time it is sent, one of up to 10 kB never.
    Beyond the limit queries wait, except five a minute. A user with 1,000 contacts on five devices, all of whom ask
    within the same hour, needs 6 million."""
    answer_bytes_per_minute: Count = 150_000_000
    """Most bytes of all answers to queries a minute, each as often as it leaves, about what two shards carry; further
    queries wait. 100,000 users with 100 contacts and two devices each, who all ask every day for all of them at once,
    need 100 million."""


class RetentionSettings(Group):
    """How long the server keeps its data."""

    ledger: Seconds = 2 * 86_400.0
    """Retention of hashes of processed messages, in seconds."""
    admitted_requests: Annotated[float, Field(ge=86_400, le=_MOST_SECONDS), _FROM_DURATION] = 30 * 86_400.0
    """The same for ids of admitted push requests, in whole weeks. A request recorded longer ago can push once more,
    within the limits of its device."""
    deliveries: Seconds = 86_400.0
    """The same for finished deliveries. The answer to a repeated request reports those that failed."""
    dead_letters: Seconds = 7 * 86_400.0
    """The same for dead letters, expired deliveries, and quarantined messages."""
    events: Seconds = 7 * 86_400.0
    """The same for delivery events in Postgres, where `wakupush pipeline export` does not run."""
    exported_events: Seconds = 3 * 86_400.0
    """The same for delivery events that the lake has."""
    missing_events: Seconds = 14 * 86_400.0
    """The same for delivery events that the export has yet to take; then the lake never gets them."""
    event_bytes: Count = 10_000_000_000
    """Size of all delivery events, with indexes, above which those that the export has yet to take are kept no longer
    than the others: a tenth of the disk of Postgres."""
    lake: Seconds = 400 * 86_400.0
    """The same for the event lake and the reports made of it, in whole days."""
    registrations: Annotated[float, Field(ge=90 * 86_400.0, le=_MOST_SECONDS), _FROM_DURATION] | None = None
    """The same for registrations, from the death of their device token on; at least 90 days. Default: for ever."""


def is_remote(place: str) -> bool:
    """Return whether a place is in an object store, and no folder."""
    return place.startswith("s3://")


class PipelineSettings(Group):
    """`wakupush pipeline`, which needs the extra `pipeline` and Java 17."""

    warehouse: Place = "lake"
    """Place of the lake's tables: a folder that every Spark process reaches under this path, or `s3://BUCKET/PATH`."""
    catalog: Annotated[dict[str, SecretStr], NoDecode, _FROM_JSON] = Field(default={})
    """Properties of Iceberg's catalog. Unless `type` or `catalog-impl` is among them, it is our Postgres."""
    keys: Folder = Path("lake-keys")
    """Folder of the keys of the lake's pseudonyms, outside of the lake."""
    archive: Folder = Path("archive")
    """Folder of messages from Stores, which every Spark process reaches under this path."""
    pseudonym_days: Count = 28
    """Days after which the pseudonyms of events, and those of the lake, change: the same for workers and pipeline."""
    reports: Place = "reports"
    """Folder for reports, or `s3://BUCKET/PATH` in the store of the lake."""
    report_dsn: SecretStr | None = None
    """Connection string of a Postgres database for reports, in the schema `wakupush_reports`."""
    smallest_cell: Count = 5
    """Rows of a report about fewer people lose their values. With 1 it has every row, and says that it is internal."""
    master: str = "local[*]"
    """Where Spark runs: `local[*]`, or the URL of a cluster."""
    memory: str = "2g"
    """Memory of Spark's driver, as Java writes it."""
    jars: Path | None = None
    """Folder with the jars of Iceberg and Postgres's JDBC driver; by default, Spark resolves them itself."""
    step_rows: Count = 1_000_000
    """Approximate number of events in one commit of an export."""
    shuffle_partitions: Count = 8
    """Number of Spark's shuffle partitions; four for each core of a large cluster."""


class Settings(BaseSettings):
    """All settings; see `load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix="WAKUPUSH_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    public_key: str | None = None
    """The server's public key, 0x04…, which names its topics. ingest needs it; workers refuse a wrong one."""
    previous_public_keys: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = ()
    """Public keys of before that are not retired yet, one or a JSON list (`wakupush identity rotate` prints them)."""
    identity_key_file: Path | None = None
    """File with the server's private key, 64 hex digits (`wakupush keygen` writes one). For workers and `rebuild`."""
    identity_key: SecretStr | None = None
    """The private key itself, instead of a file. For workers; `rebuild` needs the file."""
    log_format: Literal["json", "console"] = "json"
    """One JSON object a line, or text for people."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Lowest level of log lines."""
    http_host: str = ""
    """IPv4 address on which all processes serve HTTP: probes, metrics and gorush's webhook. Empty: all addresses of the
    machine."""
    http_port: PortOrNone | None = None
    """Port of /healthz, /readyz and /metrics; 0 picks a free one, -1 opens none. Default: 9100 for `ingest live`, 9101
    for `ingest reconcile`, 9103 for `exporter`, 9104 for `canary`, none for workers and beat; feedback has a separate
    setting."""
    waku: WakuSettings = WakuSettings()
    redis: RedisSettings = RedisSettings()
    postgres: PostgresSettings = PostgresSettings()
    gorush: GorushSettings = GorushSettings()
    apps: dict[AppName, AppSettings] = Field(default={})
    """The apps that the server tells apart, by their names."""
    ingest: IngestSettings = IngestSettings()
    reconcile: ReconcileSettings = ReconcileSettings()
    worker: WorkerSettings = WorkerSettings()
    tracing: TracingSettings = TracingSettings()
    delivery: DeliverySettings = DeliverySettings()
    breaker: BreakerSettings = BreakerSettings()
    canary: CanarySettings = CanarySettings()
    tokens: TokenSettings = TokenSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    limits: LimitSettings = LimitSettings()
    retention: RetentionSettings = RetentionSettings()
    pipeline: PipelineSettings = PipelineSettings()
    #: Only the file can have them.
    profiles: dict[ProfileName, ProfileTable] = Field(default={})

    @property
    def app_names(self) -> tuple[str, ...]:
        """The names of all apps; one that is empty if the server does not tell apps apart."""
        return (*(self.apps or ("",)), *([CANARY] if self.canary.gorush_url else []))

    def app_of(self, topic: str, *, firebase: bool) -> str | None:
        """Return the name of the app that a device belongs to; None if no app of the settings takes it.

        Args:
            topic: of its registration.
            firebase: whether it is reached through Firebase.
        """
        if self.canary.gorush_url and topic == CANARY_TOPIC and not firebase:
            return CANARY
        if not self.apps:
            return ""
        return self._app_by_topic.get(topic, self._firebase_app if firebase else None)

    def gorush_of(self, app: str) -> GorushSettings:
        """Return how gorush is reached for an app; for one that is not in the settings, as without apps."""
        return self._gorush_by_app.get(app, self.gorush)

    @property
    def longest_post(self) -> float:
        """Seconds that a post of any app takes at most, until its outcome is stored."""
        return max(self.gorush_of(app).longest_post for app in self.app_names)

    @cached_property
    def _app_by_topic(self) -> dict[str, str]:
        return {topic: name for name, app in self.apps.items() for topic in app.topics}

    @cached_property
    def _firebase_app(self) -> str | None:
        return next((name for name, app in self.apps.items() if app.firebase), None)

    @cached_property
    def _gorush_by_app(self) -> dict[str, GorushSettings]:
        own = {
            name: {"url": app.gorush_urls, "dialect": app.profile, "feedback_secret": app.feedback_secret}
            for name, app in self.apps.items()
        }
        if self.canary.gorush_url:
            own[CANARY] = {"url": (self.canary.gorush_url,)}
        return {
            name: self.gorush.model_copy(update={field: value for field, value in values.items() if value})
            for name, values in own.items()
        }

    def port_or(self, default: int) -> int:
        """Return the port of the probes, or the default of the process; -1 is none."""
        return default if self.http_port is None else self.http_port

    @property
    def profile_names(self) -> tuple[str, ...]:
        """All profiles that there are."""
        return (*BUILT_IN, *self.profiles)

    @property
    def stores(self) -> dict[str, str]:
        """The URLs of the nodes whose Stores are walked, by their names."""
        return {node_name(url): url for url in self.reconcile.stores} or self.waku.nodes

    @model_validator(mode="after")
    def _each_device_has_one_app(self) -> Self:
        if CANARY in self.apps:
            raise PydanticCustomError("apps", "apps: canary is the app of `wakupush canary`; choose another name")
        topics = Counter(topic for app in self.apps.values() for topic in app.topics)
        if shared := [topic for topic, apps in topics.items() if apps > 1]:
            raise PydanticCustomError("apps", "apps: {topic} is in two apps", {"topic": shared[0]})
        if sum(app.firebase for app in self.apps.values()) > 1:
            raise PydanticCustomError("apps", "apps: only one app may have firebase = true")
        return self

    @model_validator(mode="after")
    def _profile_exists(self) -> Self:
        names = {"WAKUPUSH_GORUSH__DIALECT": self.gorush.dialect}
        names |= {_variable(_APPS, name, "profile"): app.profile for name, app in self.apps.items() if app.profile}
        for variable, profile in names.items():
            if profile not in self.profile_names:
                expected = ", ".join(self.profile_names)
                raise PydanticCustomError(
                    "profile",
                    "{variable}: a profile is expected: {expected}",
                    {"variable": variable, "expected": expected},
                )
        return self

    @model_validator(mode="after")
    def _lease_covers_a_post(self) -> Self:
        least = self.longest_post + START_SECONDS
        if self.delivery.lease < least:
            raise PydanticCustomError(
                "lease",
                "WAKUPUSH_DELIVERY__LEASE must be at least {needed} s, or pushes double: WAKUPUSH_GORUSH__TIMEOUT,"
                " WAKUPUSH_GORUSH__CONNECT_TIMEOUT and {rest} s",
                {"needed": least, "rest": STORE_SECONDS + START_SECONDS},
            )
        return self

    @model_validator(mode="after")
    def _ledger_outlasts_the_window(self) -> Self:
        least = self.reconcile.window + self.reconcile.overlap
        if self.retention.ledger < least:
            raise PydanticCustomError(
                "ledger",
                "WAKUPUSH_RETENTION__LEDGER must be at least {needed} s, or what reconcile finds is handled again:"
                " WAKUPUSH_RECONCILE__WINDOW and WAKUPUSH_RECONCILE__OVERLAP",
                {"needed": least},
            )
        return self


class SettingsError(UsageError):
    """A setting is wrong.

    The text names the variable, or the key in the file, and says what is expected, never its value.
    """


def load_settings() -> Settings:
    """Read the settings from the environment, and from the file that `FILE_VARIABLE` names.

    Raises:
        SettingsError: a setting is unknown, or its value is not valid, or the file cannot be read.
    """
    settings, _ = load_with_sources()
    return settings


def load_with_sources() -> tuple[Settings, dict[str, str]]:
    """Read the settings, and where each that is set comes from: ``environment``, or the path of the file.

    Raises:
        SettingsError: as `load_settings`.
    """
    ours = {
        name.upper(): name
        for name in sorted(os.environ)
        if name.upper().startswith("WAKUPUSH_") and not name.upper().startswith((CLIENT_PREFIX, _TEST_PREFIX))
    }
    unknown = [name for upper, name in ours.items() if upper != FILE_VARIABLE and not _is_setting(upper)]
    if unknown:
        raise SettingsError("unknown settings: " + ", ".join(map(_suggest, unknown)))
    path = os.environ[ours[FILE_VARIABLE]] if FILE_VARIABLE in ours else None
    values = {} if path is None else {name: value for name, value in _in_file(path).items() if name not in ours}
    sources = dict.fromkeys(ours, "environment") | dict.fromkeys(values, path or "")
    try:
        return Settings(**_nest(values)), sources
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)
        raise SettingsError("; ".join(_problem(problem, values.keys(), path) for problem in problems)) from None


def _in_file(path: str) -> dict[str, object]:
    """Return what a file of settings says, by the names of variables.

    Raises:
        SettingsError: it cannot be read, is not TOML, or has a key that is no setting.
    """
    if not path:
        raise SettingsError(f"{FILE_VARIABLE}: the path of a file is expected")
    try:
        tables = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{FILE_VARIABLE}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{FILE_VARIABLE}: {path} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        # The rest of its text may quote the file.
        place = re.search(r"\((at [\w ,]+)\)$", str(error))
        raise SettingsError(f"{FILE_VARIABLE}: {path} is not TOML{f' ({place[1]})' if place else ''}") from None
    groups = {name for name, field in Settings.model_fields.items() if isinstance(field.default, Group)}
    values: dict[str, object] = {}
    for name, value in tables.items():
        if name == _APPS and isinstance(value, dict) and all(isinstance(app, dict) for app in value.values()):
            values |= {_variable(name, app, key): inner for app, keys in value.items() for key, inner in keys.items()}
            # One without a key is an app all the same.
            values |= {_variable(name, app): {} for app, keys in value.items() if not keys}
        elif name not in groups:
            values[_variable(name)] = value
        elif isinstance(value, dict):
            values |= {_variable(name, key): inner for key, inner in value.items()}
        else:
            raise SettingsError(f"{name} in {path}: a table is expected")
    unknown = [name for name in values if not _is_setting(name) and name != _variable(_FILE_ONLY)]
    if unknown:
        keys = ", ".join(_suggest(name, _key) for name in unknown)
        raise SettingsError(f"unknown settings in {path}: {keys}")
    # Pydantic takes true for 1.
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items()}


def _nest(values: dict[str, object]) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for name, value in values.items():
        *tables, key = name.removeprefix("WAKUPUSH_").lower().split("__")
        place = groups
        for table in tables:
            place = place.setdefault(table, {})
        place[key] = value
    return groups


def _problem(error: ErrorDetails, in_file: Collection[str], path: str | None) -> str:
    """Return what pydantic says; an error of several settings names them itself."""
    parts = [part for part in error["loc"] if isinstance(part, str) and part != "[key]"]
    if parts and parts[0] == _FILE_ONLY:
        return _profile_problem(error, parts, path)
    variable = _variable(*parts[: 3 if parts[0] == _APPS else 2]) if parts else ""
    if variable in in_file:
        return f"{_key(variable)} in {path}: {error['msg']}"
    return f"{variable}: {error['msg']}" if variable else error["msg"]


def _profile_problem(error: ErrorDetails, parts: Sequence[str], path: str | None) -> str:
    key = ".".join(parts)
    if error["type"] == "extra_forbidden":
        like = difflib.get_close_matches(parts[-1], keys_of(parts[:-1]), 1)
        suggestion = f" (did you mean {'.'.join([*parts[:-1], *like])}?)" if like else ""
        return f"unknown settings in {path}: {key}{suggestion}"
    is_table = error["type"] in {"model_type", "dict_type", "model_attributes_type"}
    return f"{key} in {path}: {'a table is expected' if is_table else error['msg']}"


def _variable(*names: str) -> str:
    return "WAKUPUSH_" + "__".join(names).upper()


def _key(variable: str) -> str:
    return variable.removeprefix("WAKUPUSH_").lower().replace("__", ".")


def _suggest(unknown: str, spell: Callable[[str], str] = str) -> str:
    like = difflib.get_close_matches(unknown.upper(), _VARIABLES, 1, 0.9)
    return f"{spell(unknown)} (did you mean {spell(like[0])}?)" if like else spell(unknown)


def _variables() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, Group):
            yield from (_variable(name, inner) for inner in type(field.default).model_fields)
        elif name != _FILE_ONLY:
            yield _variable(name)


#: The names of all variables that are settings, but for those of apps.
_VARIABLES = frozenset(_variables())
_OF_AN_APP = re.compile(f"WAKUPUSH_APPS__[A-Z0-9]+(_[A-Z0-9]+)*(__({'|'.join(AppSettings.model_fields).upper()}))?")


def _is_setting(name: str) -> bool:
    return name in _VARIABLES or _OF_AN_APP.fullmatch(name) is not None
