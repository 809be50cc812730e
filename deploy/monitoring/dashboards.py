"""The Grafana dashboards, as data: `generate.py` writes the files that Grafana reads.

``$n`` in an expression stands for the selector of a namespace, which `generate.py` fills in.
"""

from dataclasses import dataclass
from enum import StrEnum

from deploy.monitoring.rules import ANSWERS_LATE, DELIVERIES_LATE, DELIVERIES_LOST, Objective
from wakupush.model.objectives import BUDGET


class Source(StrEnum):
    """Where a dashboard's numbers come from; the values are Grafana's types of data sources."""

    PROMETHEUS = "prometheus"
    #: Tables of `wakupush pipeline report`.
    POSTGRES = "grafana-postgresql-datasource"


class Look(StrEnum):
    """How a panel shows its series; the values are Grafana's types of panels."""

    LINES = "timeseries"
    #: One large number, the newest one.
    NUMBER = "stat"
    #: Of the buckets of a histogram.
    HEATMAP = "heatmap"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph, a number or a table."""

    title: str
    #: A unit of Grafana: s, short, reqps, percentunit.
    unit: str
    #: Expressions of PromQL by their legends; or SQL, which has none.
    queries: dict[str, str]
    #: What a reader should know about the panel.
    description: str
    look: Look = Look.LINES
    #: A number is red below or above this.
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of graphs, in rows by their headings."""

    #: Name in its file and address.
    name: str
    title: str
    rows: dict[str, tuple[Panel, ...]]
    source: Source = Source.PROMETHEUS


def _legend(labels: str) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels.split(", "))


def _quantiles(metric: str, label: str) -> dict[str, str]:
    return {
        f"{_legend(label)} p{100 * quantile:g}": (
            f"histogram_quantile({quantile}, sum by ({label}, le) (rate({metric}_bucket{{$n}}[5m])))"
        )
        for quantile in (0.5, 0.99)
    }


def _rate(counter: str, by: str, name: str = "") -> dict[str, str]:
    """Return the query of a counter's rate for each value of some labels, which its legend has after the name."""
    return _query(f"sum by ({by}) (rate({counter}[5m]))", by, name)


def _increase(counter: str, window: str, by: str, name: str = "") -> dict[str, str]:
    return _query(f"sum by ({by}) (increase({counter}[{window}]))", by, name)


def _highest(gauge: str, by: str, name: str = "") -> dict[str, str]:
    return _query(f"max by ({by}) ({gauge})", by, name)


def _query(expression: str, by: str, name: str) -> dict[str, str]:
    return {f"{name} {_legend(by)}".lstrip(): expression}


def _events(kind: str, by: str = "app, platform") -> dict[str, str]:
    return _rate(f'wakupush_events_total{{$n, kind="{kind}"}}', by, kind)


def _share(title: str, objective: Objective, description: str) -> Panel:
    worst = f"1 - max({objective.ratio('1h')}{{$n}})"
    return Panel(title, "percentunit", {"": worst}, description, Look.NUMBER, least=1 - BUDGET)


def _number(title: str, unit: str, text: str, description: str, most: float | None = None) -> Panel:
    return Panel(title, unit, {"": text}, description, Look.NUMBER, most=most)


def _heatmap(title: str, metric: str, description: str) -> Panel:
    counts = {"{{le}}": f"sum by (le) (increase({metric}_bucket{{$n}}[5m]))"}
    return Panel(title, "s", counts, description, Look.HEATMAP)


_FIRING = 'ALERTS{$n, alertname=~"Wakupush.*", alertstate="firing"}'

OVERVIEW = Dashboard(
    "wakupush-overview",
    "wakupush: overview",
    {
        "Are we well?": (
            _number("Alerts", "short", f"count({_FIRING}) or vector(0)", "Alerts that fire now.", most=1),
            _share("Answers in time", ANSWERS_LATE, "Share of the answers within 3 s, in the last hour."),
            _share(
                "Pushes in time",
                DELIVERIES_LATE,
                "Notifications that reached gorush within 10 s, in the last hour; of the worst platform.",
            ),
            _share(
                "Pushes not lost",
                DELIVERIES_LOST,
                "Notifications that were not given up, in the last hour; of the worst platform.",
            ),
            _number(
                "Oldest message",
                "s",
                "max(wakupush_queue_oldest_seconds{$n})",
                "Age of the oldest message of all queues. Clients wait for 3 s.",
                most=10,
            ),
            _number(
                "Oldest due push",
                "s",
                "max(wakupush_deliveries_due_oldest_seconds{$n})",
                "For how long the oldest delivery has been due.",
                most=300,
            ),
            _number(
                "Shard not read for",
                "s",
                "time() - min(max by (pubsub_topic) (wakupush_last_poll_timestamp_seconds{$n}))",
                "Time since ingest read the shard that it read longest ago.",
                most=60,
            ),
            _number(
                "Pushes",
                "reqps",
                'sum(rate(wakupush_events_total{$n, kind="delivered"}[5m]))',
                "Notifications that gorush took.",
            ),
        ),
        "How long it takes, and what fails": (
            _heatmap(
                "From the node to the answer",
                "wakupush_answer_seconds",
                "Answers by the time since ingest saw the message. Clients wait for 3 s.",
            ),
            _heatmap(
                "From the node to gorush",
                "wakupush_delivery_seconds",
                "Notifications by the time since ingest saw the request, with all retries.",
            ),
            Panel(
                "Alerts that fire",
                "short",
                {"": _FIRING},
                "Each has a section in docs/operating/respond.md.",
                Look.TABLE,
            ),
            Panel(
                "Failures in the last hour",
                "short",
                {
                    "": (
                        "sum by (app, platform, kind, failure) (increase(wakupush_events_total"
                        '{$n, kind=~"failed|unknown|dead_letter|expired"}[1h])) > 0'
                    )
                },
                "Attempts that failed or have no known end, and notifications that the server gave up, by reason.",
                Look.TABLE,
            ),
            *(
                Panel(
                    title,
                    "percentunit",
                    {
                        f"{legend} {window}".lstrip(): f"max by ({by}) ({objective.ratio(window)}{{$n}})"
                        for window in ("5m", "1h", "6h")
                    },
                    "The allowed share is 1 %; an alert pages at 14.4 times that over 1 h, and 6 times over 6 h.",
                )
                for title, objective, by, legend in (
                    ("Share of late answers", ANSWERS_LATE, "namespace", ""),
                    ("Share of lost pushes", DELIVERIES_LOST, "app, platform", "{{app}} {{platform}}"),
                )
            ),
        ),
    },
)

DETAIL = Dashboard(
    "wakupush-detail",
    "wakupush: messages in detail",
    {
        "Funnel: from the Waku node to the device": (
            Panel(
                "In: messages",
                "reqps",
                {
                    "read from all nodes": "sum(rate(wakupush_messages_read_total{$n}[5m]))",
                    "enqueued {{queue}}": "sum by (queue) (rate(wakupush_messages_enqueued_total{$n}[5m]))",
                    "enqueued by reconciliation": "sum(rate(wakupush_reconcile_messages_enqueued_total{$n}[5m]))",
                    "dropped: {{reason}}": "sum by (reason) (rate(wakupush_messages_dropped_total{$n}[5m]))",
                },
                "Most messages are for others. Reconciliation recovers dropped messages.",
            ),
            Panel(
                "Outcomes of the messages",
                "reqps",
                _rate(
                    "wakupush_events_total{$n, kind=~"
                    '"foreign|refused|registered|unregistered|queried|admitted|filtered|answered"}',
                    "kind",
                ),
                "One event for each message; an admitted or filtered one for each notification.",
            ),
            Panel(
                "Out: deliveries",
                "reqps",
                _events("admitted", "kind")
                | _events("attempt")
                | _events("delivered")
                | _events("failed")
                | _events("unknown"),
                "An attempt ends as delivered, failed or unknown; temporary failures are retried.",
            ),
            Panel(
                "Refused messages",
                "reqps",
                _rate('wakupush_events_total{$n, kind="refused"}', "failure"),
                "Why the server refused messages, or notifications that they ask for.",
            ),
        ),
        "Canary: pushes to devices of our own": (
            Panel(
                "Pushes of the canary",
                "short",
                _increase("wakupush_canary_pushes_total{$n}", "10m", "outcome"),
                "In 10 minutes: about ten arrive, or the first part of the way that failed is named.",
            ),
            Panel(
                "Time of the canary, 95th percentile",
                "s",
                {
                    "{{part}}": (
                        "histogram_quantile(0.95, sum by (part, le) (rate(wakupush_canary_seconds_bucket{$n}[1h])))"
                    )
                },
                "To the answer of a query and of a request; push: from the query to the push.",
            ),
            Panel(
                "Pushes of the canary that arrived, by way",
                "short",
                _increase('wakupush_canary_pushes_total{$n, outcome="arrived"}', "1h", "node, pubsub_topic"),
                "In an hour: about 60 in all, evenly over the nodes that its clients use and the shards.",
            ),
        ),
        "Latencies": (
            Panel(
                "Wait in the queue",
                "s",
                _quantiles("wakupush_queue_wait_seconds", "queue"),
                "From ingest to a worker. Clients wait for 3 s.",
            ),
            Panel(
                "From the node to the answer",
                "s",
                _quantiles("wakupush_answer_seconds", "queue"),
                "From ingest seeing a message to a Waku node taking the answer. Without a queue: of those that beat"
                " published, since they were ready.",
            ),
            Panel(
                "From the node to gorush",
                "s",
                _quantiles("wakupush_delivery_seconds", "app, platform"),
                "From ingest seeing a push request to gorush taking a notification of it, with all its retries.",
            ),
            Panel(
                "gorush",
                "s",
                _quantiles("wakupush_gorush_post_seconds", "app, platform"),
                "A post of up to WAKUPUSH_GORUSH__BATCH_SIZE notifications.",
            ),
            Panel(
                "Instances of gorush that listen",
                "short",
                {"{{gorush}}": "min by (gorush) (wakupush_gorush_listens{$n})"},
                "0: a worker skips it. Only with several instances.",
            ),
            Panel(
                "Messages in a task",
                "short",
                {
                    "{{queue}}": (
                        "sum by (queue) (rate(wakupush_batch_size_sum{$n}[5m]))"
                        " / sum by (queue) (rate(wakupush_batch_size_count{$n}[5m]))"
                    )
                },
                "1 under little load, up to 64 under high load.",
            ),
            Panel(
                "Answers",
                "reqps",
                {
                    "published": "sum(rate(wakupush_answers_published_total{$n}[5m]))",
                    "not taken: {{reason}}": "sum by (reason) (rate(wakupush_answers_failed_total{$n}[5m]))",
                    "expired": "sum(rate(wakupush_answers_expired_total{$n}[5m]))",
                },
                "What nodes took and did not take, and what nobody waits for any more.",
            ),
        ),
    },
)

QUEUES = Dashboard(
    "wakupush-queues",
    "wakupush: queues and autoscaling",
    {
        "Queues": (
            Panel(
                "Messages that wait",
                "short",
                _highest("wakupush_queue_messages{$n}", "queue"),
                "Exact up to 64 tasks, then estimated from 64 of them.",
            ),
            Panel(
                "Age of the oldest",
                "s",
                _highest("wakupush_queue_oldest_seconds{$n}", "queue"),
                "Clients wait for 3 s. A task that came back from a dead worker is at least 2 minutes old.",
            ),
            Panel(
                "Tasks that wait",
                "short",
                _highest("wakupush_queue_tasks{$n}", "queue"),
                "A task has up to 64 messages.",
            ),
            Panel(
                "Bytes that wait",
                "bytes",
                _highest("wakupush_queue_bytes{$n}", "queue"),
                "From half of WAKUPUSH_INGEST__QUEUE_BYTES on, ingest leaves some new messages to reconciliation.",
            ),
            Panel(
                "Deliveries that are due",
                "short",
                _highest("wakupush_deliveries_due{$n}", "app, platform", "due")
                | _highest("wakupush_deliveries_pending{$n}", "app, platform", "pending")
                | _highest("wakupush_deliveries_posting{$n}", "app, platform", "being posted"),
                "The exporter counts up to 100,000.",
            ),
        ),
        "Autoscaling": (
            Panel(
                "Workers",
                "short",
                {
                    "{{queue}} pods": "count by (queue) (wakupush_pool_processes{$n} > 0)",
                    "{{queue}} processes": "sum by (queue) (wakupush_pool_processes{$n})",
                },
                "Pods of each pool, and their processes.",
            ),
            Panel(
                "Busy share of the processes",
                "percentunit",
                {
                    "{{queue}}": (
                        "max by (queue) (avg_over_time(wakupush_in_flight_tasks{$n}[1m]))"
                        " / sum by (queue) (wakupush_pool_processes{$n})"
                    )
                },
                "A process takes one task at a time.",
            ),
            Panel(
                "Batches whose posts and answers are under way",
                "short",
                {"{{pod}}": "sum by (pod) (wakupush_follow_ups{$n})"},
                "A process has at most 8; then it takes no further task.",
            ),
            Panel(
                "In flight",
                "short",
                _highest("wakupush_in_flight_messages{$n}", "queue", "messages")
                | _highest("wakupush_in_flight_tasks{$n}", "queue", "tasks"),
                "Taken but not acknowledged; tasks of a dead worker count until they come back after 2 minutes.",
            ),
            Panel(
                "Messages handled",
                "reqps",
                _rate("wakupush_batch_size_sum{$n}", "queue"),
                "Messages that workers took out of queues.",
            ),
            Panel(
                "Messages left to the pool rest",
                "reqps",
                _rate("wakupush_messages_to_rest_total{$n}", "queue"),
                "For devices that no push reached yet, and what is above a limit, by the queue of its kind.",
            ),
            Panel(
                "Tasks that went back",
                "reqps",
                {"{{queue}}: {{reason}}": "sum by (queue, reason) (rate(wakupush_tasks_returned_total{$n}[5m]))"},
                "outage: Postgres or Redis failed. message: one message failed; each gets its own task.",
            ),
            Panel(
                "What the exporter can read",
                "short",
                {"{{source}}": "min by (source) (wakupush_exporter_up{$n})"},
                "0: autoscalers have no figures from this source.",
            ),
            Panel(
                "Clocks",
                "s",
                _highest("wakupush_clock_offset_seconds{$n}", "command"),
                "How far the clock of a process is off that of Redis. Above 5 s: use NTP.",
            ),
            Panel(
                "Memory of Redis",
                "bytes",
                {
                    "in use": 'max(wakupush_data_bytes{source="redis", $n})',
                    "limit": 'max(wakupush_data_limit_bytes{source="redis", $n})',
                },
                "At its limit it takes no more messages. Without a limit there is one line.",
            ),
            Panel(
                "Connections to Redis and Postgres",
                "short",
                {
                    "{{source}}": "max by (source) (wakupush_connections{$n})",
                    "{{source}}: limit": "max by (source) (wakupush_connections_limit{$n})",
                },
                "To all databases of Postgres; the limit is that of logins that are no superusers.",
            ),
            Panel(
                "Size of the database",
                "bytes",
                {"on disk": 'max(wakupush_data_bytes{source="postgres", $n})'},
                "With its indexes. It grows with users and with the days for which events are kept.",
            ),
        ),
    },
)

DELIVERIES = Dashboard(
    "wakupush-deliveries",
    "wakupush: deliveries, dead letters, tokens",
    {
        "Retries and breakers": (
            Panel(
                "Share of attempts that are not delivered",
                "percentunit",
                {
                    "{{app}} {{platform}}": (
                        'sum by (app, platform) (rate(wakupush_events_total{$n, kind=~"failed|unknown"}[5m]))'
                        ' / sum by (app, platform) (rate(wakupush_events_total{$n, kind="attempt"}[5m]))'
                    )
                },
                "Attempts at gorush that failed, or whose end is not known.",
            ),
            Panel(
                "Failures",
                "reqps",
                {
                    "{{app}} {{platform}} {{failure}}": (
                        "sum by (app, platform, failure)"
                        ' (rate(wakupush_events_total{$n, kind=~"failed|unknown"}[5m])) > 0'
                    )
                },
                "Attempts that failed or have no known end, by their reason.",
            ),
            Panel(
                "Retries",
                "reqps",
                {
                    "{{app}} {{platform}} after {{failure}}": (
                        "sum by (app, platform, failure) (rate(wakupush_delivery_retries_total{$n}[5m])) > 0"
                    )
                },
                "Further attempts planned, by the reason of the failed one.",
            ),
            Panel(
                "Breakers",
                "short",
                _highest("wakupush_breaker_state{$n}", "app, platform"),
                "0 closed, 1 probing, 2 open; as beat last read it.",
            ),
            Panel(
                "Breakers: times opened, posts unchecked",
                "short",
                {
                    **_increase("wakupush_breaker_opened_total{$n}", "1h", "app, platform", "opened"),
                    "unchecked: Redis failed": "sum(increase(wakupush_breaker_failed_total{$n}[1h]))",
                },
                "In the last hour.",
            ),
            Panel(
                "Deferred without an attempt",
                "reqps",
                _rate("wakupush_deliveries_deferred_total{$n}", "app, platform"),
                "No slot was free, or the breaker is open.",
            ),
            Panel(
                "Age of due deliveries",
                "s",
                _highest("wakupush_deliveries_due_oldest_seconds{$n}", "app, platform"),
                "For how long the oldest delivery has been due.",
            ),
        ),
        "Dead letters and quarantine": (
            Panel(
                "Stored dead letters",
                "short",
                _highest("wakupush_dead_letters{$n}", "app, platform, reason"),
                "Deliveries that an operator can send again.",
            ),
            Panel(
                "Given up",
                "reqps",
                _events("dead_letter") | _events("expired"),
                "Deliveries without attempts left, or too old.",
            ),
            Panel(
                "Messages put into quarantine",
                "short",
                {
                    "{{queue}}": "sum by (queue) (increase(wakupush_messages_quarantined_total{$n}[1h]))",
                    "dropped again": "sum (increase(wakupush_quarantine_dropped_total{$n}[1h]))",
                },
                "In the last hour.",
            ),
            Panel(
                "Events not exported",
                "s",
                {"since the first": "max (wakupush_export_lag_seconds{$n})"},
                "What `wakupush pipeline export` has yet to take; nothing if there is no export.",
            ),
            Panel(
                "Number of events not exported, days lost",
                "short",
                {
                    "events, 100,000 at most": "max (wakupush_export_lag_rows{$n})",
                    "days lost": "sum (increase(wakupush_event_days_lost_total{$n}[1d]))",
                },
                "The same in events, and days that retention dropped before the export took them, in a day.",
            ),
            Panel(
                "Jobs of the pipeline",
                "s",
                {
                    "since {{command}}": "time() - max by (command) (wakupush_pipeline_run_timestamp_seconds{$n})",
                    "{{command}} took": "max by (command) (wakupush_pipeline_run_seconds{$n})",
                },
                "The last runs that succeeded, of jobs that use Postgres.",
            ),
        ),
        "Tokens": (
            Panel(
                "Device tokens that died",
                "reqps",
                _rate('wakupush_events_total{$n, kind="token_died"}', "app, platform, failure"),
                "Tokens of which the platform says that they are gone.",
            ),
            Panel(
                "Marking stopped",
                "short",
                _highest("wakupush_token_marking_stopped{$n}", "app, platform"),
                "1 while so many tokens are bad that something else must be wrong.",
            ),
            Panel(
                "gorush's feedback",
                "reqps",
                _rate("wakupush_feedback_total{$n}", "result"),
                "Calls of the webhook, by what became of them.",
            ),
            Panel(
                "Registrations",
                "reqps",
                _events("registered", "kind") | _events("unregistered", "kind"),
                "Registrations and unregistrations that were stored.",
            ),
        ),
    },
)

NODE = Dashboard(
    "wakupush-node",
    "wakupush: Waku node, ingest, reconciliation, schedule",
    {
        "Waku node and ingest": (
            Panel(
                "Since a shard was read",
                "s",
                {
                    "read {{node}} {{pubsub_topic}}": (
                        "time() - max by (node, pubsub_topic) (wakupush_last_poll_timestamp_seconds{$n})"
                    ),
                    "message {{node}} {{pubsub_topic}}": (
                        "time() - max by (node, pubsub_topic) (wakupush_last_message_timestamp_seconds{$n})"
                    ),
                },
                "Time since ingest read the shard at a node, and since it had a message there.",
            ),
            Panel(
                "Reads",
                "reqps",
                {
                    **_rate("wakupush_messages_read_total{$n}", "node, pubsub_topic"),
                    **_rate("wakupush_messages_malformed_total{$n}", "node, pubsub_topic", "malformed"),
                    **_rate("wakupush_messages_repeated_total{$n}", "queue", "repeated"),
                    "old copies": "sum(rate(wakupush_messages_known_total{$n}[5m]))",
                    "a day ahead": "sum(rate(wakupush_messages_ahead_total{$n}[5m]))",
                    "too short": "sum(rate(wakupush_messages_short_total{$n}[5m]))",
                    **_rate("wakupush_node_cache_full_total{$n}", "node", "cache full"),
                },
                "Messages that ingest read, and which of them were malformed, repeated or old copies.",
            ),
            Panel(
                "Reads that failed, subscriptions",
                "reqps",
                _rate("wakupush_polls_failed_total{$n}", "node, reason")
                | _rate("wakupush_subscriptions_total{$n}", "node", "subscribed"),
                "Failed reads by their reason, and subscriptions made anew.",
            ),
            Panel(
                "Answers handed to nodes",
                "reqps",
                _rate("wakupush_publications_total{$n}", "node, result")
                | _rate("wakupush_beacons_total{$n}", "node, result", "beacons"),
                "Each answer goes to two nodes; it is enough if one takes it.",
            ),
            Panel(
                "Nodes left out for sending",
                "short",
                _highest("wakupush_node_fault{$n}", "node, pubsub_topic, reason"),
                "1: unreachable, deaf (misses messages that others hear) or mute (no node hears its beacons).",
            ),
            Panel(
                "Relay peers",
                "short",
                _highest("wakupush_node_relay_peers{$n}", "node, pubsub_topic"),
                "None on a shard: nothing arrives there. A nwaku tells only with --rest-admin.",
            ),
            Panel(
                "Watched query topics",
                "short",
                {"complete": "max(wakupush_watched_complete{$n})"},
                "0: beat is filling the set again; until then ingest overlooks queries.",
            ),
        ),
        "Reconciliation": (
            Panel(
                "Behind",
                "s",
                {
                    "{{store}} {{walk}}": (
                        "time() - min by (store, walk) (wakupush_reconcile_watermark_timestamp_seconds{$n})"
                    )
                },
                "Time since the watermark: up to it, the ledger has everything that a Store has.",
            ),
            Panel(
                "Messages of Stores",
                "reqps",
                _rate("wakupush_reconcile_messages_examined_total{$n}", "walk", "examined")
                | _rate("wakupush_reconcile_messages_missing_total{$n}", "walk", "missing")
                | _rate("wakupush_reconcile_messages_enqueued_total{$n}", "walk", "enqueued")
                | _rate("wakupush_reconcile_messages_malformed_total{$n}", "walk", "malformed"),
                "What reconciliation examined, what the ledger lacked, and what it enqueued.",
            ),
            Panel(
                "Walks",
                "short",
                _increase("wakupush_reconcile_walks_total{$n}", "1h", "walk, result"),
                "In the last hour.",
            ),
            Panel(
                "Rests",
                "short",
                _highest("wakupush_reconcile_resting{$n}", "queue", "resting")
                | _increase("wakupush_reconcile_rests_total{$n}", "1h", "queue", "in the last hour"),
                "Walks pause while the queue of their messages has a backlog; this loses nothing.",
            ),
            Panel(
                "Oldest messages of Stores",
                "s",
                {
                    "{{store}} {{pubsub_topic}}": (
                        "min by (store, pubsub_topic) (wakupush_store_oldest_message_seconds{$n})"
                    ),
                    "window": "max(wakupush_reconcile_window_seconds{$n})",
                },
                "Reconciliation cannot recover older messages; a flood shortens a retention by size.",
            ),
            Panel(
                "Stores compared",
                "reqps",
                {
                    "compared {{store}}": "sum by (store) (rate(wakupush_store_messages_compared_total{$n}[30m]))",
                    "lacking {{store}}": "sum by (store) (rate(wakupush_store_messages_lacking_total{$n}[30m]))",
                },
                "Messages that one Store has and another lacks, ten minutes later.",
            ),
        ),
        "Schedule and workers": (
            Panel(
                "Failed jobs",
                "short",
                _increase("wakupush_jobs_failed_total{$n}", "10m", "work"),
                "Jobs of beat that failed in the last 10 minutes.",
            ),
            Panel(
                "Keys of query topics derived",
                "reqps",
                {"derived": "sum(rate(wakupush_query_keys_derived_total{$n}[5m]))"},
                "Each costs 12 to 25 ms, once; beat derives them.",
            ),
            Panel(
                "Beyond limits",
                "reqps",
                _rate('wakupush_limited_total{result="held_back",$n}', "limit"),
                "Requests, notifications or bytes that chance held back.",
            ),
            Panel(
                "Waiting queries",
                "short",
                _highest("wakupush_queries_waiting{$n}", "wait", "for their")
                | _increase("wakupush_queries_dropped_total{$n}", "10m", "reason", "dropped:"),
                "Queries that wait for the key of their topic or for their turn, and dropped ones in 10 minutes.",
            ),
            Panel(
                "Unchecked limits, lost events",
                "reqps",
                {
                    "limits not checked": "sum(rate(wakupush_limiter_failed_total{$n}[5m]))",
                    "events that Flower lacks": "sum(rate(wakupush_task_events_lost_total{$n}[5m]))",
                },
                "Limits that went unchecked because Redis failed, and lost events of tasks.",
            ),
        ),
    },
)

DASHBOARDS = (OVERVIEW, DETAIL, QUEUES, DELIVERIES, NODE)
