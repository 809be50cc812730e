"""The settings of every wakupush process: environment variables with the prefix ``WAKUPUSH_``, nested by ``__``."""

from __future__ import annotations

import difflib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from wakupush.runtime.urls import is_http, node_name
from wakupush.runtime.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic_core import ErrorDetails

#: Seconds for which a worker tries to store the outcome of a post.
STORE_SECONDS = 20.0

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=0, le=65_535)]
#: That of `wakupush.model.waku_message.PUBSUB_TOPIC`, which is above this package.
_PUBSUB_TOPIC = re.compile(r"/waku/2/(rs/\d{1,5}/\d{1,5}|[\w-]+/proto)", re.ASCII)
#: -1 opens none.
PortOrNone = Annotated[int, Field(ge=-1, le=65_535)]


def _parsed(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise PydanticCustomError("json", "a list in JSON is expected") from None


#: With `NoDecode`: pydantic-settings would not say which variable is not JSON.
_FROM_JSON = BeforeValidator(_parsed)


def _http_url(url: str) -> str:
    if not is_http(url):
        raise PydanticCustomError("url", "a URL is expected that begins with http:// or https://")
    return url


def _pubsub_topic(topic: str) -> str:
    if not _PUBSUB_TOPIC.fullmatch(topic):
        raise PydanticCustomError("shard", "shards are expected such as /waku/2/rs/16/32")
    return topic


def _sentinel(address: str) -> str:
    if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@;]+):\d{1,5}", address):
        raise PydanticCustomError("sentinel", "addresses are expected such as sentinel-0:26379")
    return address


SentinelAddress = Annotated[str, AfterValidator(_sentinel)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
PubsubTopic = Annotated[str, AfterValidator(_pubsub_topic)]


class Group(BaseModel):
    """A nested group of settings; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WakuSettings(Group):
    """The Waku nodes."""

    url: HttpUrl = "http://127.0.0.1:8645"
    """URL of the REST API of a nwaku or go-waku relay node."""
    urls: Annotated[tuple[HttpUrl, ...], NoDecode, _FROM_JSON] = ()
    """The same of several nodes, as a JSON list: all are read, and each answer goes to two of them."""
    shards: Annotated[tuple[PubsubTopic, ...], Field(min_length=1), NoDecode, _FROM_JSON] = (
        "/waku/2/rs/16/32",
        "/waku/2/rs/16/64",
    )
    """Static shards to read (pubsub topics), as a JSON list."""
    cache_capacity: Count = 1000
    """Messages that the node keeps for ingest: the value of its option `--rest-relay-cache-capacity`."""
    timeout: Seconds = 10.0
    """Seconds after which a request to the node has failed."""
    max_message_bytes: Annotated[int, Field(ge=10_000)] = 150_000
    """Largest WakuMessage that is sent, in bytes of protobuf; larger answers are sent in segments."""
    max_read_bytes: Annotated[int, Field(ge=150_000, le=3 * 2**20)] = 2**20
    """Largest payload that is read, live and from Stores, in bytes; a message with a larger one counts as malformed.
    The nodes of the Status network relay 1 MiB, if their option `--max-msg-size` says so."""
    publish_timeout: Seconds = 2.0
    """Seconds after which publishing an answer has failed this time."""

    @property
    def nodes(self) -> dict[str, str]:
        """The URLs of all nodes, by their names."""
        return {node_name(url): url for url in self.urls or (self.url,)}

    @model_validator(mode="after")
    def _says_once_which_nodes(self) -> Self:
        if self.urls and "url" in self.model_fields_set:
            raise PydanticCustomError(
                "nodes", "WAKUPUSH_WAKU__URL and WAKUPUSH_WAKU__URLS are both set; name all nodes in the latter"
            )
        if len(self.nodes) < len(self.urls):
            raise PydanticCustomError("nodes", "WAKUPUSH_WAKU__URLS names a node twice")
        return self

    @field_validator("shards")
    @classmethod
    def _hashes_tell_shards_apart(cls, shards: tuple[str, ...]) -> tuple[str, ...]:
        # A message's hash is that of its parts one after the other, shard and payload first: on /waku/2/rs/16/3 a
        # payload that begins with a 2 could take the hash of a message on /waku/2/rs/16/32.
        for shard in shards:
            if any(other != shard and other.startswith(shard) for other in shards):
                raise PydanticCustomError("shard", "shards are expected of which none begins as another one is called")
        return shards


class RedisSettings(Group):
    """Redis: queues, claims, watched query topics."""

    url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    """URL of the Redis database; with Sentinels its host is the name of the primary that they watch, for example
    `redis://user:password@mymaster/0`."""
    sentinels: Annotated[tuple[SentinelAddress, ...], NoDecode, _FROM_JSON] = ()
    """Addresses of all Sentinels, `HOST:PORT`, as a JSON list. They speak TLS if the URL begins with `rediss://`."""
    sentinel_user: str | None = None
    """User at the Sentinels, if they have ACLs."""
    sentinel_password: SecretStr | None = None
    """Password at the Sentinels."""
    timeout: Seconds = 5.0
    """Seconds after which connecting or a command has failed; Celery's own commands have 15."""

    @property
    def min_other_sentinels(self) -> int:
        """How many other Sentinels a Sentinel must know to be believed: together they are a majority."""
        return len(self.sentinels) // 2


class PostgresSettings(Group):
    """Postgres: the shared state."""

    dsn: SecretStr = SecretStr("postgresql://wakupush@127.0.0.1:5432/wakupush")
    """Connection string (libpq), with the role of the process; the owner of the tables for `wakupush migrate`."""
    pool_size: Count = 4
    """Connections of one process at most (of a worker pool, reconcile, beat or feedback)."""
    timeout: Seconds = 10.0
    """Seconds to wait for a connection."""
    statement_timeout: Seconds = 20.0
    """Seconds after which a statement has failed."""


class GorushSettings(Group):
    """gorush, in sync mode with the local queue engine and max_retry 0."""

    url: HttpUrl = "http://127.0.0.1:8088"
    """URL of gorush."""
    urls: Annotated[tuple[HttpUrl, ...], NoDecode, _FROM_JSON] = ()
    """URLs of several instances, as a JSON list: posts go to those that listen, in turn."""
    dialect: Literal["spec", "status", "status-2024", "both"] = "spec"
    """Texts, data and iOS fields: the specification's, Status' of 2026 or of 2024, or `spec` and `status` together."""
    batch_size: Annotated[int, Field(ge=1, le=100)] = 64
    """Notifications in one post at most: those of a task (gorush refuses more than its max_notification, 100)."""
    connect_timeout: Seconds = 5.0
    """Seconds to wait for a connection."""
    timeout: Seconds = 75.0
    """Seconds after which the outcome of a post is unknown; giving up earlier would double pushes."""
    concurrency: Count = 16
    """Posts that one worker process keeps open at the same time; when all are taken, deliveries wait as rows."""
    feedback_secret: SecretStr | None = None
    """What gorush sends as `X-Wakupush-Secret` with its feedback; 16 or more visible ASCII characters, no colon."""

    @property
    def instances(self) -> dict[str, str]:
        """The URLs of all instances, by their names."""
        return {node_name(url): url for url in self.urls or (self.url,)}

    @property
    def tries(self) -> int:
        """Instances that a post is sent to at most, one after the other, as long as none took anything of it."""
        return min(2, len(self.instances))

    @property
    def longest_post(self) -> float:
        """Seconds that a post takes at most, until its outcome is stored."""
        return self.timeout + self.tries * self.connect_timeout + STORE_SECONDS

    @model_validator(mode="after")
    def _says_once_which_instances(self) -> Self:
        if self.urls and "url" in self.model_fields_set:
            raise PydanticCustomError(
                "instances",
                "WAKUPUSH_GORUSH__URL and WAKUPUSH_GORUSH__URLS are both set; name all instances in the latter",
            )
        return self

    @field_validator("feedback_secret")
    @classmethod
    def _travels_in_a_header_of_gorush(cls, secret: SecretStr | None) -> SecretStr | None:
        # gorush drops a header with a second colon, and trims spaces.
        if secret is not None and not re.fullmatch("[!-9;-~]{16,}", secret.get_secret_value()):
            raise PydanticCustomError("secret", "16 or more visible ASCII characters are expected, none a colon")
        return secret


class IngestSettings(Group):
    """`wakupush ingest live`, and how `ingest reconcile` enqueues."""

    poll_interval: Seconds = 0.05
    """Seconds between polls of a shard: messages of this time share a task. After a poll that filled one, the next
    follows at once."""
    batch_size: Annotated[int, Field(ge=1, le=1000)] = 64
    """Messages in one task at most."""
    queue_bytes: Count | None = None
    """Bytes of a queue in Redis at which all new messages are left to `ingest reconcile`; from half as many on, some
    are. Unless given, a quarter of Redis' `maxmemory`; 160 MiB if it has none."""
    claim_ttl: Count = 120
    """Seconds for which a claimed message is not enqueued again."""
    topic_messages_per_minute: Annotated[int, Field(ge=2)] = 1000
    """Messages a minute that are taken from a query topic on which most messages cannot be opened with our keys; chance
    decides which. A user's topic has such messages only if somebody makes them up, or if a busy topic has its hash."""
    http_port: PortOrNone = 9100
    """Port of /healthz, /readyz and /metrics; 0 picks a free one, -1 opens none."""


class ReconcileSettings(Group):
    """`wakupush ingest reconcile`."""

    stores: Annotated[tuple[HttpUrl, ...], NoDecode, _FROM_JSON] = ()
    """URLs of the REST APIs of nodes with a Store, as a JSON list; if empty, all of `WAKUPUSH_WAKU__URLS`."""
    pause: Seconds = 3.0
    """Seconds between looks for recent messages; each reads what is new and the 5 s before it once more."""
    window: Seconds = 86_400.0
    """Seconds back to which the server's own topics are walked at start, and every `FULL_INTERVAL`, in slices."""
    full_interval: Seconds = 3600.0
    """Seconds between walks over the whole window: a message's time is its sender's, so it can come late."""
    overlap: Seconds = 120.0
    """Seconds by which messages may be late. Twice in this time a look goes back this far behind the watermark."""
    query_window: Seconds = 300.0
    """Seconds back to which whole shards are walked for queries; no client waits for the answer to an older one. At
    least twice `WAKUPUSH_INGEST__CLAIM_TTL`, or a query whose claim outlives its place in the queue is lost."""
    backlog_age: Seconds = 60.0
    """Age in seconds of a queue's oldest message above which nothing is added to it: a backlog is not a loss."""
    http_port: PortOrNone = 9101
    """Port of /healthz, /readyz and /metrics; 0 picks a free one, -1 opens none."""


class WorkerSettings(Group):
    """Celery workers."""

    answer_within: Seconds = 1.5
    """Seconds after ingest saw a push request within which its answer leaves."""
    repeat_answers_after: Annotated[float, Field(ge=0, le=3)] = 1.2
    """Seconds after which answers to queries and push requests are published once more, for light clients whose
    subscription was late; 0: never."""
    max_attempts: Count = 3
    """Times that a message which fails by itself is handled before it is put into quarantine."""
    key_derivation_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of a core that a process of the schedule spends on keys of query topics at most (12-25 ms each): 0.2 is
    enough for ten new users a second."""
    bytes_per_task: Count = 16_000_000
    """Bytes of answers to queries and of segments that one task loads; what is beyond goes into the queue again."""
    http_port: PortOrNone = -1
    """Port of /healthz, /readyz and /metrics of a worker or beat; 0 picks a free one, -1 opens none."""


class TracingSettings(Group):
    """OpenTelemetry."""

    endpoint: str | None = None
    """URL that takes spans by OTLP over HTTP, for example `http://127.0.0.1:4318/v1/traces`; needs the extra `otel`."""


class ExporterSettings(Group):
    """`wakupush exporter`."""

    http_port: Port = 9103
    """Port of /healthz, /readyz and /metrics; 0 picks a free one."""


class DeliverySettings(Group):
    """Retries of deliveries that failed for the time being."""

    max_attempts: Count = 10
    """Attempts after which a delivery is a dead letter."""
    first_wait: Seconds = 2.0
    """Largest wait in seconds before the second attempt; it doubles with each further one."""
    slow_first_wait: Seconds = 30.0
    """The same if the platform asked for less, or an operator has to act."""
    max_wait: Seconds = 900.0
    """Largest wait in seconds."""
    lease: Seconds = 120.0
    """Seconds for which a worker holds a delivery; a post and storing its outcome must fit in."""
    claim: Seconds = 60.0
    """Seconds after which a due delivery is enqueued again if no worker began its task."""
    message_time_to_live: Seconds = 86_400.0
    """Seconds after which a notification of a message that is still undelivered has expired."""
    mention_time_to_live: Seconds = 2 * 86_400.0
    """The same for a mention."""
    join_request_time_to_live: Seconds = 7 * 86_400.0
    """The same for a request to join a community and for a contact request, which wait for an answer."""
    request_max_age: Seconds = 600.0
    """Seconds after ingest first saw a push request after which it is neither pushed nor answered."""
    claim_queue: Count = 2
    """Tasks in the dispatch queue up to which due deliveries are added, so that they do not hold up new requests."""


class BreakerSettings(Group):
    """The circuit breaker of each platform, shared by all workers."""

    faults: Count = 5
    """Posts in a row, of all workers, that found the route to a platform broken, after which no post is begun."""
    pause: Seconds = 30.0
    """Seconds for which no post is begun; after that come probes."""
    probes: Count = 3
    """Deliveries that are posted as probes, each in a post of its own; the first that gets through ends the pause."""


class TokenSettings(Group):
    """When reports of the platforms that device tokens are dead are believed."""

    brake_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of bad tokens among those tried on a platform above which none is marked dead; 1 marks always."""
    brake_minimum: Count = 50
    """Tokens that must have been tried before that share counts."""


class FeedbackSettings(Group):
    """`wakupush feedback`."""

    http_port: Port = 9102
    """Port of gorush's feedback webhook, /healthz, /readyz and /metrics; 0 picks a free one."""


class LimitSettings(Group):
    """Limits on what strangers may send."""

    query_keys: Annotated[int, Field(ge=1000)] = 1000
    """Keys in a query."""
    answer_bytes: Count = 4_000_000
    """Bytes of what is known of the users that a query asks for."""
    request_items: Annotated[int, Field(ge=100)] = 200
    """Items in a push request."""
    installations_per_key: Count = 50
    """Installations of one key."""
    list_items: Count = 10_000
    """Items in a list of a registration."""
    list_item_bytes: Count = 128
    """Bytes of an item in a list of a registration, a chat id or an author in a push request; clients have 64."""
    registration_bytes: Count = 1_000_000
    """Bytes of a registration, as protobuf: 15,000 contacts and chats in all."""
    text_bytes: Count = 4096
    """Bytes of a device token, an APN topic or an access token; of APNs a token has at most 200, a topic 255."""
    segments: Count = 100
    """Segments of one message."""
    segments_per_signer: Count = 200
    """Segments that are kept of one signer, whose messages are not complete yet; above it the oldest are dropped."""
    segment_bytes_per_signer: Count = 8_000_000
    """Bytes of these segments, and of one message in segments."""
    segments_kept: Count = 10_000
    """Segments that are kept of everybody; above it the oldest are dropped."""
    segment_bytes_kept: Count = 256_000_000
    """Bytes of these segments."""
    first_registrations_per_hour: Count = 100_000
    """Registrations of unknown installations an hour in all, each of which leaves a row for ever. The default is 2.4
    million a day. For a server that gains more users than that in a day, set it to several times what is expected."""
    installations_per_key_per_hour: Count = 20
    """The same for one key: a user who sets up five devices and installs each app anew needs ten."""
    repeats_per_minute: Count = 3
    """Answers to repeats of the same message a minute. They all go to the same client, which needs one."""
    pushes_per_device_per_minute: Count = 60
    """Notifications a minute for one device; a busy group chat brings one a second. Those beyond become one a minute
    without content."""
    answer_bytes_per_user_per_minute: Count = 8_000_000
    """Bytes of answers about one user a minute; queries beyond wait. A user with 1,000 contacts on five devices, all of
    whom ask within the same hour, needs 6 million."""
    answer_bytes_per_minute: Count = 150_000_000
    """Bytes of all answers to queries a minute, about what two shards carry; queries beyond wait. 100,000 users with
    100 contacts and two devices each, who all ask every day, need 100 million."""
    queries_waiting: Count = 10_000
    """Queries that wait, for the key of their topic or for their turn; beyond that chance decides which to drop."""
    query_bytes_waiting: Count = 64_000_000
    """Bytes of these queries; most have 400."""
    quarantine_bytes: Count = 256_000_000
    """Bytes of messages in quarantine; beyond that chance decides which to drop."""


class RetentionSettings(Group):
    """How long what is stored is kept."""

    ledger: Seconds = 2 * 86_400.0
    """Seconds for which hashes of processed messages are kept."""
    segments: Seconds = 86_400.0
    """The same for segments of messages that are not complete; one that reconcile brings later completes none."""
    admitted_requests: Annotated[float, Field(ge=86_400)] = 30 * 86_400.0
    """Seconds after which an earlier release packed the ids of admitted push requests. Packed ones are looked up for a
    device whose access token is older than this. Ids that are not packed are not deleted."""
    packed_requests: Annotated[float, Field(ge=86_400)] = 400 * 86_400.0
    """Seconds for which packed ids are kept, in whole months."""
    deliveries: Seconds = 86_400.0
    """The same for deliveries that are done. A request that comes again is told of those that failed."""
    dead_letters: Seconds = 7 * 86_400.0
    """The same for dead letters, deliveries that expired, and quarantined messages."""
    events: Seconds = 30 * 86_400.0
    """The same for delivery events in Postgres."""
    queries: Seconds = 3600.0
    """The same for queries that wait; clients use what comes within an hour."""
    answers: Seconds = 600.0
    """The same for answers that could not be published."""
    lake: Seconds = 400 * 86_400.0
    """The same for the event lake and the reports made of it, in whole days."""
    registrations: Annotated[float, Field(ge=90 * 86_400.0)] | None = None
    """The same for registrations from the death of their device token on, 90 days at least; unless given, for ever."""


class PipelineSettings(Group):
    """`wakupush pipeline`, which needs the extra `pipeline` and Java 17."""

    warehouse: str = "lake"
    """Where the tables of the lake lie: a folder that every Spark process reaches under this path, or `s3://BUCKET/PATH`."""
    catalog: Annotated[dict[str, SecretStr], NoDecode, _FROM_JSON] = Field(default={})
    """Properties of Iceberg's catalog. Unless `type` or `catalog-impl` is among them, it is our Postgres."""
    keys: Path = Path("lake-keys")
    """Folder of the keys of the lake's pseudonyms, outside of the lake."""
    archive: Path = Path("archive")
    """Folder of messages out of Stores, which every Spark process reaches under this path."""
    archive_connections: Count = 4
    """Time ranges that are fetched from a Store at the same time."""
    pseudonym_days: Count = 28
    """Days after which the lake's pseudonyms begin anew."""
    reports: Path = Path("reports")
    """Folder that reports are written to."""
    report_dsn: SecretStr | None = None
    """Connection string of a Postgres database that reports are written to, in the schema `wakupush_reports`."""
    smallest_cell: Annotated[int, Field(ge=2)] = 5
    """The least number of people that a row of a report is about; rows about fewer lose their values."""
    master: str = "local[*]"
    """Where Spark runs: `local[*]`, or the URL of a cluster."""
    memory: str = "2g"
    """Memory of Spark's driver, as Java writes it."""
    jars: Path | None = None
    """Folder with the jars of Iceberg and Postgres's JDBC driver; unless given, Spark resolves them by itself."""
    slices: Count = 4
    """Connections to Postgres that an export reads over at the same time."""
    step_rows: Count = 1_000_000
    """About how many events an export commits at once."""
    shuffle_partitions: Count = 8
    """Number of Spark's shuffle partitions; four for each core of a large cluster."""

    @property
    def warehouse_is_remote(self) -> bool:
        """Whether the tables lie in an object store."""
        return self.warehouse.startswith("s3://")

    # Without these two, s3a://bucket would be a folder of that name.
    @field_validator("warehouse")
    @classmethod
    def _is_a_folder_or_s3(cls, warehouse: str) -> str:
        if not re.fullmatch("s3://[^/]+.*|(?![a-z][a-z0-9+.-]*:/).+", warehouse):
            raise PydanticCustomError("warehouse", "a folder or s3://BUCKET/PATH is expected")
        return warehouse

    @field_validator("keys", "archive", "reports")
    @classmethod
    def _is_a_folder(cls, folder: Path) -> Path:
        if re.match("[a-z][a-z0-9+.-]*:/", str(folder)):
            raise PydanticCustomError("folder", "a folder is expected; only the lake can be in a store")
        return folder


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
    identity_key_file: Path | None = None
    """File with the server's private key, 64 hex digits (`wakupush keygen` writes one). For workers and `rebuild`."""
    identity_key: SecretStr | None = None
    """The private key itself, instead of a file. For workers; `rebuild` needs the file."""
    log_format: Literal["json", "console"] = "json"
    """One JSON object a line, or text for people."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least level that is logged."""
    waku: WakuSettings = WakuSettings()
    redis: RedisSettings = RedisSettings()
    postgres: PostgresSettings = PostgresSettings()
    gorush: GorushSettings = GorushSettings()
    ingest: IngestSettings = IngestSettings()
    reconcile: ReconcileSettings = ReconcileSettings()
    worker: WorkerSettings = WorkerSettings()
    exporter: ExporterSettings = ExporterSettings()
    tracing: TracingSettings = TracingSettings()
    delivery: DeliverySettings = DeliverySettings()
    breaker: BreakerSettings = BreakerSettings()
    tokens: TokenSettings = TokenSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    limits: LimitSettings = LimitSettings()
    retention: RetentionSettings = RetentionSettings()
    pipeline: PipelineSettings = PipelineSettings()

    @property
    def stores(self) -> dict[str, str]:
        """The URLs of the nodes whose Stores are walked, by their names."""
        return {node_name(url): url for url in self.reconcile.stores} or self.waku.nodes

    @model_validator(mode="after")
    def _lease_covers_a_post(self) -> Self:
        needed = self.gorush.longest_post
        if self.delivery.lease < needed:
            raise PydanticCustomError(
                "lease",
                "WAKUPUSH_DELIVERY__LEASE must be at least {needed} s, or pushes double: WAKUPUSH_GORUSH__TIMEOUT,"
                " WAKUPUSH_GORUSH__CONNECT_TIMEOUT and {store} s",
                {"needed": needed, "store": STORE_SECONDS},
            )
        return self

    @model_validator(mode="after")
    def _ledger_outlasts_the_window(self) -> Self:
        needed = self.reconcile.window + self.reconcile.overlap
        if self.retention.ledger < needed:
            raise PydanticCustomError(
                "ledger",
                "WAKUPUSH_RETENTION__LEDGER must be at least {needed} s, or what reconcile finds is handled again:"
                " WAKUPUSH_RECONCILE__WINDOW and WAKUPUSH_RECONCILE__OVERLAP",
                {"needed": needed},
            )
        return self


class SettingsError(UsageError):
    """A setting is wrong; the text names the variable and says what is expected, never its value."""


def load_settings() -> Settings:
    """Read the settings from the environment.

    Raises:
        SettingsError: a variable is unknown, or its value is not valid.
    """
    ours = [name for name in sorted(os.environ) if name.upper().startswith("WAKUPUSH_")]
    unknown = [name for name in ours if not _is_known(name.upper())]
    if unknown:
        raise SettingsError("unknown settings: " + ", ".join(map(_meant, unknown)))
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError("; ".join(map(_problem, error.errors(include_input=False, include_url=False)))) from None


def _problem(error: ErrorDetails) -> str:
    """Return what pydantic says; an error of several settings names them itself."""
    variable = "__".join(part.upper() for part in error["loc"] if isinstance(part, str))
    return f"WAKUPUSH_{variable}: {error['msg']}" if variable else error["msg"]


def _meant(unknown: str) -> str:
    """Return the name of an unknown variable, and the most similar known one if there is one."""
    like = difflib.get_close_matches(unknown.upper(), _VARIABLES, 1, 0.9)
    return f"{unknown} (did you mean {like[0]}?)" if like else unknown


def _variables() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        inner = [f"__{each}" for each in type(field.default).model_fields] if isinstance(field.default, Group) else [""]
        yield from (f"WAKUPUSH_{name}{each}".upper() for each in inner)


#: The names of all variables.
_VARIABLES = frozenset(_variables())
#: The same names with one underscore missing: WAKUPUSH_WORKER_HTTP_PORT looks like a variable of a Service.
_MISSPELT = frozenset(name.replace("__", "_") for name in _VARIABLES) - _VARIABLES
#: What Kubernetes puts into a pod for each Service.
_SERVICE_LINK = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT$|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?$")


def _is_known(name: str) -> bool:
    """Say whether a variable with our prefix is a setting, is for tests, or is set by Kubernetes for a Service."""
    if name in _VARIABLES or name.startswith("WAKUPUSH_TEST_"):
        return True
    return "__" not in name and name not in _MISSPELT and _SERVICE_LINK.search(name) is not None
