"""The one table of metrics. Dashboards, alerts and docs are tested against it."""

from collections.abc import Iterable
from typing import Final

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus_client has no types there

# Ingest.
MESSAGES_READ: Final = Counter("wakupush_messages_read", "Messages read from a Waku node.", ["node", "pubsub_topic"])
MESSAGES_MALFORMED: Final = Counter(
    "wakupush_messages_malformed",
    "Messages from a Waku node that are not WakuMessages, or are larger than WAKUPUSH_WAKU__MAX_READ_BYTES.",
    ["node", "pubsub_topic"],
)
MESSAGES_ENQUEUED: Final = Counter("wakupush_messages_enqueued", "Messages put into a queue.", ["queue"])
MESSAGES_REPEATED: Final = Counter(
    "wakupush_messages_repeated", "Messages that another process or an earlier read had claimed.", ["queue"]
)
MESSAGES_DROPPED: Final = Counter(
    "wakupush_messages_dropped",
    "Messages that ingest dropped because Redis failed (redis; foreign ones included) or a queue is full (queue_full),"
    " and that workers dropped because the queue rest is full (rest_full).",
    ["reason"],
)
MESSAGES_AHEAD: Final = Counter(
    "wakupush_messages_ahead", "Messages for this server that ingest dropped because their time is a day ahead."
)
MESSAGES_SHORT: Final = Counter(
    "wakupush_messages_short",
    "Messages for this server that ingest dropped because they are shorter than any sealed message.",
)
CACHE_FULL: Final = Counter(
    "wakupush_node_cache_full", "Polls that found a node's cache full; the node may have dropped messages.", ["node"]
)
POLLS_FAILED: Final = Counter(
    "wakupush_polls_failed", "Reads of a Waku node, and subscriptions at it, that failed.", ["node", "reason"]
)
SUBSCRIPTIONS: Final = Counter("wakupush_subscriptions", "Times that ingest subscribed shards at a node.", ["node"])
LAST_POLL: Final = Gauge(
    "wakupush_last_poll_timestamp_seconds",
    "When ingest last read a shard; before the first read, when ingest started.",
    ["node", "pubsub_topic"],
)
LAST_MESSAGE: Final = Gauge(
    "wakupush_last_message_timestamp_seconds",
    "When a shard last had a message other than a beacon; before the first, when ingest started.",
    ["node", "pubsub_topic"],
)
NODE_FAULT: Final = Gauge(
    "wakupush_node_fault",
    "1 while answers on a shard skip a Waku node because it is unreachable, deaf or mute. Only with several nodes.",
    ["node", "pubsub_topic", "reason"],
)
RELAY_PEERS: Final = Gauge(
    "wakupush_node_relay_peers",
    "Relay peers of a Waku node on a shard; NaN while the node does not say, as a nwaku without --rest-admin.",
    ["node", "pubsub_topic"],
)
BEACONS: Final = Counter("wakupush_beacons", "Beacons that a Waku node took or refused.", ["node", "result"])
WATCHED_COMPLETE: Final = Gauge(
    "wakupush_watched_complete",
    "1 if the set of watched query topics is complete; only the value of ingest counts.",
    multiprocess_mode="max",
)

# Reconciliation.
STORE_EXAMINED: Final = Counter("wakupush_reconcile_messages_examined", "Messages that walks read in Stores.", ["walk"])
STORE_MALFORMED: Final = Counter(
    "wakupush_reconcile_messages_malformed",
    "Messages in Stores that are malformed, or outside the query.",
    ["walk"],
)
STORE_MISSING: Final = Counter(
    "wakupush_reconcile_messages_missing",
    "Messages for this server that were in a Store and not in the ledger; counted in each walk.",
    ["walk"],
)
STORE_ENQUEUED: Final = Counter(
    "wakupush_reconcile_messages_enqueued", "Messages that reconciliation put into a queue.", ["walk"]
)
STORE_WALKS: Final = Counter(
    "wakupush_reconcile_walks",
    "Walks of a shard of a Store, by result: finished, or the error that ended it.",
    ["walk", "result"],
)
STORE_OLDEST: Final = Gauge(
    "wakupush_store_oldest_message_seconds",
    "Age of the oldest message that a Store has of a shard, 0 if it has none.",
    ["store", "pubsub_topic"],
)
STORE_WINDOW: Final = Gauge(
    "wakupush_reconcile_window_seconds",
    "How far back walks over the whole window go.",
    ["store", "pubsub_topic"],
)
STORES_COMPARED: Final = Counter(
    "wakupush_store_messages_compared",
    "Messages of the server's own topics that at least one of several Stores had, at a comparison of this Store.",
    ["store"],
)
STORE_LACKS: Final = Counter(
    "wakupush_store_messages_lacking", "Compared messages that a Store did not have.", ["store"]
)
STORE_WATERMARK: Final = Gauge(
    "wakupush_reconcile_watermark_timestamp_seconds",
    "Up to when the ledger has everything that the Store has; before the first walk, when reconcile started.",
    ["store", "pubsub_topic", "walk"],
)
RECONCILE_RESTING: Final = Gauge(
    "wakupush_reconcile_resting",
    "1 while walks pause because this queue has a backlog.",
    ["queue"],
)
RECONCILE_RESTS: Final = Counter("wakupush_reconcile_rests", "Times that walks paused because of a backlog.", ["queue"])

# Workers.
PROCESSES: Final = Gauge(
    "wakupush_pool_processes", "Processes of a worker, which take one task each.", ["queue"], multiprocess_mode="max"
)
FOLLOW_UPS: Final = Gauge(
    "wakupush_follow_ups", "Batches with posts or answers in progress.", multiprocess_mode="livesum"
)
EVENTS: Final = Counter("wakupush_events", "Delivery events.", ["kind", "queue", "app", "platform", "failure"])
QUEUE_WAIT: Final = Histogram(
    "wakupush_queue_wait_seconds",
    "Time between ingest seeing a message and a worker taking it.",
    ["queue"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
ANSWER_SECONDS: Final = Histogram(
    "wakupush_answer_seconds",
    "Time between ingest seeing a message and a Waku node taking its answer, or a request expiring unanswered. Of"
    " answers that beat publishes or drops, the time since they were ready; they have no queue.",
    ["queue"],
    buckets=(0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 300, 600),
)
DELIVERY_SECONDS: Final = Histogram(
    "wakupush_delivery_seconds",
    "Time between ingest seeing a push request and gorush taking a notification of it, whichever attempt that is.",
    ["app", "platform"],
    buckets=(0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30, 60, 300, 1800, 7200, 28800),
)
MESSAGES_KNOWN: Final = Counter(
    "wakupush_messages_known", "Messages that workers skipped because they were in the ledger: old copies."
)
MESSAGES_TO_REST: Final = Counter(
    "wakupush_messages_to_rest",
    "Messages that workers left to the pool rest, by the queue of their kind.",
    ["queue"],
)
BATCH_SIZE: Final = Histogram(
    "wakupush_batch_size", "Messages in a task.", ["queue"], buckets=(1, 2, 4, 8, 16, 32, 64, 128)
)
POST_SECONDS: Final = Histogram(
    "wakupush_gorush_post_seconds",
    "Time that gorush took to answer a post.",
    ["app", "platform"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 75),
)
GORUSH_LISTENS: Final = Gauge(
    "wakupush_gorush_listens",
    "1 if an instance of gorush listens, 0 if workers skip it. Only with several instances.",
    ["gorush"],
    multiprocess_mode="livemin",
)
DELIVERIES_DEFERRED: Final = Counter(
    "wakupush_deliveries_deferred",
    "Deliveries deferred without an attempt: no slot was free, or the breaker is open.",
    ["app", "platform"],
)
RETRIES: Final = Counter(
    "wakupush_delivery_retries",
    "Deliveries that went back to pending after an attempt; Flower gets a task-retried for each.",
    ["app", "platform", "failure"],
)
TASK_EVENTS_LOST: Final = Counter(
    "wakupush_task_events_lost", "Celery events of deliveries that could not be sent; Flower lacks them."
)
BREAKER_STATE: Final = Gauge(
    "wakupush_breaker_state",
    "The circuit breaker of an app and platform, as beat last read it: 0 closed, 1 probing, 2 open.",
    ["app", "platform"],
)
BREAKER_OPENED: Final = Counter("wakupush_breaker_opened", "Times that a circuit breaker opened.", ["app", "platform"])
BREAKER_FAILED: Final = Counter(
    "wakupush_breaker_failed",
    "Reads and changes of circuit breakers that failed because of Redis; posts then go out without a check.",
)
TASKS_RETURNED: Final = Counter(
    "wakupush_tasks_returned", "Tasks that went back to their queue, by reason.", ["queue", "reason"]
)
ANSWERS_PUBLISHED: Final = Counter("wakupush_answers_published", "Answers that a Waku node took.")
ANSWERS_FAILED: Final = Counter(
    "wakupush_answers_failed", "Attempts to publish an answer that no Waku node took.", ["reason"]
)
PUBLICATIONS: Final = Counter(
    "wakupush_publications",
    "Answers handed to a Waku node, by result: taken, refused, unreachable, not_published if it reached nobody on the"
    " shard, or late if another node took it.",
    ["node", "result"],
)
ANSWERS_EXPIRED: Final = Counter(
    "wakupush_answers_expired", "Answers that beat dropped because no client waits for them any more."
)
QUARANTINED: Final = Counter("wakupush_messages_quarantined", "Messages put into quarantine.", ["queue"])
QUARANTINE_DROPPED: Final = Counter(
    "wakupush_quarantine_dropped", "Messages that beat deleted because the quarantine was full."
)
EVENT_DAYS_LOST: Final = Counter(
    "wakupush_event_days_lost", "Days of delivery events that beat dropped before the export had taken all of them."
)
LIMITED: Final = Counter(
    "wakupush_limited",
    "Requests, notifications or bytes under a limit; chance decides the result: let_through or held_back.",
    ["limit", "result"],
)
LIMITER_FAILED: Final = Counter(
    "wakupush_limiter_failed", "Limits that workers and ingest could not check because Redis failed."
)

# Beat.
DEAD_LETTERS: Final = Gauge(
    "wakupush_dead_letters",
    "Stored dead letters and expired deliveries; at most 100,000 of each reason.",
    ["app", "platform", "reason"],
)
TOKEN_MARKING_STOPPED: Final = Gauge(
    "wakupush_token_marking_stopped",
    "1 while so many device tokens of an app and platform are bad that the server marks none dead.",
    ["app", "platform"],
)
KEYS_DERIVED: Final = Counter("wakupush_query_keys_derived", "Keys of query topics derived.")
QUERIES_WAITING: Final = Gauge(
    "wakupush_queries_waiting", "Queries that wait for the key of their topic, or for their turn.", ["wait"]
)
QUERIES_DROPPED: Final = Counter(
    "wakupush_queries_dropped",
    "Waiting queries that beat dropped unanswered: too old (expired), or too many (full).",
    ["reason"],
)
JOBS_FAILED: Final = Counter("wakupush_jobs_failed", "Failed runs of a job of beat.", ["work"])

# The receiver of gorush's webhook.
FEEDBACK: Final = Counter("wakupush_feedback", "Calls of gorush's feedback webhook, by result.", ["result"])

# The exporter. It looks when it is asked; a gauge whose source does not answer has no series.
EXPORTER_UP: Final = Gauge("wakupush_exporter_up", "1 if this source answered the exporter.", ["source"])
QUEUE_TASKS: Final = Gauge("wakupush_queue_tasks", "Tasks in a queue.", ["queue"])
QUEUE_BYTES: Final = Gauge("wakupush_queue_bytes", "Bytes of Redis' memory that the tasks in a queue take.", ["queue"])
QUEUE_MESSAGES: Final = Gauge(
    "wakupush_queue_messages", "Messages in the tasks of a queue; estimated above 64 tasks.", ["queue"]
)
QUEUE_AGE: Final = Gauge(
    "wakupush_queue_oldest_seconds", "Age of the oldest message in a queue, 0 if there is none.", ["queue"]
)
TASKS_IN_FLIGHT: Final = Gauge(
    "wakupush_in_flight_tasks", "Tasks of a queue that workers took and have not acknowledged.", ["queue"]
)
MESSAGES_IN_FLIGHT: Final = Gauge("wakupush_in_flight_messages", "Messages in the tasks in flight.", ["queue"])
DELIVERIES_PENDING: Final = Gauge(
    "wakupush_deliveries_pending", "Deliveries that wait for their next attempt, 100,000 at most.", ["app", "platform"]
)
DELIVERIES_DUE: Final = Gauge(
    "wakupush_deliveries_due", "Pending deliveries whose time has come, 100,000 at most.", ["app", "platform"]
)
DELIVERIES_DUE_AGE: Final = Gauge(
    "wakupush_deliveries_due_oldest_seconds", "Time since the longest due delivery became due.", ["app", "platform"]
)
DELIVERIES_POSTING: Final = Gauge(
    "wakupush_deliveries_posting", "Deliveries under a lease, 100,000 at most.", ["app", "platform"]
)
EXPORT_LAG_SECONDS: Final = Gauge(
    "wakupush_export_lag_seconds",
    "Time since the first event that `wakupush pipeline export` has yet to take.",
    ["table"],
)
EXPORT_LAG_ROWS: Final = Gauge(
    "wakupush_export_lag_rows", "Events that `wakupush pipeline export` has yet to take, 100,000 at most.", ["table"]
)
PIPELINE_RUN_TIME: Final = Gauge(
    "wakupush_pipeline_run_timestamp_seconds",
    "When the last run of `wakupush pipeline` that succeeded ended, seconds since 1970.",
    ["command"],
)
PIPELINE_RUN_SECONDS: Final = Gauge(
    "wakupush_pipeline_run_seconds", "How long the last run of `wakupush pipeline` that succeeded took.", ["command"]
)
CLOCK_OFFSET: Final = Gauge(
    "wakupush_clock_offset_seconds",
    "How far the clock of a process is off that of Redis, at most, by command.",
    ["command"],
)
CANARY_PUSHES: Final = Counter(
    "wakupush_canary_pushes",
    "Pushes that the canary asked for, by the first part of the way that failed; `arrived` if none did.",
    ["node", "pubsub_topic", "outcome"],
)
CANARY_SECONDS: Final = Histogram(
    "wakupush_canary_seconds",
    "Time that a query and a request of the canary took, and the whole way from the query to the push.",
    ["part"],
    buckets=(0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0),
)
DATA_BYTES: Final = Gauge("wakupush_data_bytes", "Memory that Redis uses, disk that the database does.", ["source"])
DATA_LIMIT_BYTES: Final = Gauge("wakupush_data_limit_bytes", "Memory that Redis may use, if limited.", ["source"])
CONNECTIONS: Final = Gauge(
    "wakupush_connections", "Open connections to Redis and to Postgres, with all its databases.", ["source"]
)
CONNECTIONS_LIMIT: Final = Gauge(
    "wakupush_connections_limit", "Connections that Redis allows, and Postgres without superusers.", ["source"]
)
EXPORTER: Final = (
    EXPORTER_UP,
    QUEUE_TASKS,
    QUEUE_BYTES,
    QUEUE_MESSAGES,
    QUEUE_AGE,
    TASKS_IN_FLIGHT,
    MESSAGES_IN_FLIGHT,
    DELIVERIES_PENDING,
    DELIVERIES_DUE,
    DELIVERIES_DUE_AGE,
    DELIVERIES_POSTING,
    EXPORT_LAG_SECONDS,
    EXPORT_LAG_ROWS,
    PIPELINE_RUN_TIME,
    PIPELINE_RUN_SECONDS,
    CLOCK_OFFSET,
    DATA_BYTES,
    DATA_LIMIT_BYTES,
    CONNECTIONS,
    CONNECTIONS_LIMIT,
)


def observe(histogram: Histogram, labels: Iterable[str], values: Iterable[float]) -> None:
    """Put values into the series of a histogram that has these labels, which are looked up once."""
    series = histogram.labels(*labels)
    for value in values:
        series.observe(value)
