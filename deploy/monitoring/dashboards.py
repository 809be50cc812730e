"""The Grafana dashboards, as data: `generate.py` writes the files that Grafana reads.

``$n`` in an expression stands for the selector of a namespace; see `expression`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph."""

    title: str
    #: A unit of Grafana: s, short, reqps, percentunit.
    unit: str
    #: Expressions of PromQL, each with its legend.
    queries: tuple[tuple[str, str], ...]
    #: What a reader should know about the panel.
    description: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of graphs, in rows with a heading."""

    #: Name in its file and address.
    name: str
    title: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def expression(text: str) -> str:
    """Return an expression in the form for Grafana."""
    return text.replace("$n", 'namespace=~"$namespace"')


def _legend(labels: str) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels.split(", "))


def _quantiles(metric: str, label: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            f"histogram_quantile({quantile}, sum by ({label}, le) (rate({metric}_bucket{{$n}}[5m])))",
            f"{_legend(label)} p{100 * quantile:g}",
        )
        for quantile in (0.5, 0.99)
    )


def _events(kind: str, by: str = "app, platform") -> tuple[str, str]:
    return f'sum by ({by}) (rate(wakupush_events_total{{$n, kind="{kind}"}}[5m]))', f"{kind} {_legend(by)}"


OVERVIEW = Dashboard(
    "wakupush-overview",
    "wakupush: overview",
    (
        (
            "Funnel: from the Waku node to the device",
            (
                Panel(
                    "In: messages",
                    "reqps",
                    (
                        ("sum(rate(wakupush_messages_read_total{$n}[5m]))", "read from all nodes"),
                        ("sum by (queue) (rate(wakupush_messages_enqueued_total{$n}[5m]))", "enqueued {{queue}}"),
                        ("sum(rate(wakupush_reconcile_messages_enqueued_total{$n}[5m]))", "enqueued by reconciliation"),
                        ("sum by (reason) (rate(wakupush_messages_dropped_total{$n}[5m]))", "dropped: {{reason}}"),
                    ),
                    "Most messages are for others. Reconciliation recovers dropped messages.",
                ),
                Panel(
                    "Outcomes of the messages",
                    "reqps",
                    (
                        (
                            (
                                "sum by (kind) (rate(wakupush_events_total{$n, kind=~"
                                '"foreign|refused|registered|unregistered|queried|admitted|filtered|answered"}[5m]))'
                            ),
                            "{{kind}}",
                        ),
                    ),
                ),
                Panel(
                    "Out: deliveries",
                    "reqps",
                    (
                        _events("admitted", "kind"),
                        _events("attempt"),
                        _events("delivered"),
                        _events("failed"),
                        _events("unknown"),
                    ),
                    "An attempt ends as delivered, failed or unknown; temporary failures are retried.",
                ),
                Panel(
                    "Refused messages",
                    "reqps",
                    (
                        (
                            'sum by (failure) (rate(wakupush_events_total{$n, kind="refused"}[5m]))',
                            "{{failure}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "Latencies",
            (
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
                    (("min by (gorush) (wakupush_gorush_listens{$n})", "{{gorush}}"),),
                    "0: a worker skips it. Only with several instances.",
                ),
                Panel(
                    "Messages in a task",
                    "short",
                    (
                        (
                            (
                                "sum by (queue) (rate(wakupush_batch_size_sum{$n}[5m]))"
                                " / sum by (queue) (rate(wakupush_batch_size_count{$n}[5m]))"
                            ),
                            "{{queue}}",
                        ),
                    ),
                    "1 under little load, up to 64 under high load.",
                ),
                Panel(
                    "Answers",
                    "reqps",
                    (
                        ("sum(rate(wakupush_answers_published_total{$n}[5m]))", "published"),
                        ("sum by (reason) (rate(wakupush_answers_failed_total{$n}[5m]))", "not taken: {{reason}}"),
                        ("sum(rate(wakupush_answers_expired_total{$n}[5m]))", "expired"),
                    ),
                ),
            ),
        ),
    ),
)

QUEUES = Dashboard(
    "wakupush-queues",
    "wakupush: queues and autoscaling",
    (
        (
            "Queues",
            (
                Panel(
                    "Messages that wait",
                    "short",
                    (("max by (queue) (wakupush_queue_messages{$n})", "{{queue}}"),),
                    "Exact up to 64 tasks, then estimated from 64 of them.",
                ),
                Panel(
                    "Age of the oldest",
                    "s",
                    (("max by (queue) (wakupush_queue_oldest_seconds{$n})", "{{queue}}"),),
                    "Clients wait for 3 s. A task that came back from a dead worker is at least 2 minutes old.",
                ),
                Panel(
                    "Tasks that wait",
                    "short",
                    (("max by (queue) (wakupush_queue_tasks{$n})", "{{queue}}"),),
                ),
                Panel(
                    "Bytes that wait",
                    "bytes",
                    (("max by (queue) (wakupush_queue_bytes{$n})", "{{queue}}"),),
                    "From half of WAKUPUSH_INGEST__QUEUE_BYTES on, ingest leaves some new messages to reconciliation.",
                ),
                Panel(
                    "Deliveries that are due",
                    "short",
                    (
                        ("max by (app, platform) (wakupush_deliveries_due{$n})", "due {{app}} {{platform}}"),
                        ("max by (app, platform) (wakupush_deliveries_pending{$n})", "pending {{app}} {{platform}}"),
                        (
                            "max by (app, platform) (wakupush_deliveries_posting{$n})",
                            "being posted {{app}} {{platform}}",
                        ),
                    ),
                    "The exporter counts up to 100,000.",
                ),
            ),
        ),
        (
            "Autoscaling",
            (
                Panel(
                    "Workers",
                    "short",
                    (
                        ("count by (queue) (wakupush_pool_processes{$n} > 0)", "{{queue}} pods"),
                        ("sum by (queue) (wakupush_pool_processes{$n})", "{{queue}} processes"),
                    ),
                ),
                Panel(
                    "Busy share of the processes",
                    "percentunit",
                    (
                        (
                            (
                                "max by (queue) (avg_over_time(wakupush_in_flight_tasks{$n}[1m]))"
                                " / sum by (queue) (wakupush_pool_processes{$n})"
                            ),
                            "{{queue}}",
                        ),
                    ),
                    "A process takes one task at a time.",
                ),
                Panel(
                    "Batches whose posts and answers are under way",
                    "short",
                    (("sum by (pod) (wakupush_follow_ups{$n})", "{{pod}}"),),
                    "A process has at most 8; then it takes no further task.",
                ),
                Panel(
                    "In flight",
                    "short",
                    (
                        ("max by (queue) (wakupush_in_flight_messages{$n})", "messages {{queue}}"),
                        ("max by (queue) (wakupush_in_flight_tasks{$n})", "tasks {{queue}}"),
                    ),
                    "Taken but not acknowledged; tasks of a dead worker count until they come back after 2 minutes.",
                ),
                Panel(
                    "Messages handled",
                    "reqps",
                    (("sum by (queue) (rate(wakupush_batch_size_sum{$n}[5m]))", "{{queue}}"),),
                ),
                Panel(
                    "Batches that went back",
                    "reqps",
                    (
                        (
                            "sum by (queue, reason) (rate(wakupush_tasks_returned_total{$n}[5m]))",
                            "{{queue}}: {{reason}}",
                        ),
                    ),
                    "outage: Postgres or Redis failed. message: one message failed; each gets its own task.",
                ),
                Panel(
                    "What the exporter can read",
                    "short",
                    (("min by (source) (wakupush_exporter_up{$n})", "{{source}}"),),
                ),
            ),
        ),
    ),
)

DELIVERIES = Dashboard(
    "wakupush-deliveries",
    "wakupush: deliveries, dead letters, tokens",
    (
        (
            "Retries and breakers",
            (
                Panel(
                    "Share of attempts that are not delivered",
                    "percentunit",
                    (
                        (
                            (
                                'sum by (app, platform) (rate(wakupush_events_total{$n, kind=~"failed|unknown"}[5m]))'
                                ' / sum by (app, platform) (rate(wakupush_events_total{$n, kind="attempt"}[5m]))'
                            ),
                            "{{app}} {{platform}}",
                        ),
                    ),
                ),
                Panel(
                    "Failures",
                    "reqps",
                    (
                        (
                            (
                                "sum by (app, platform, failure)"
                                ' (rate(wakupush_events_total{$n, kind=~"failed|unknown"}[5m])) > 0'
                            ),
                            "{{app}} {{platform}} {{failure}}",
                        ),
                    ),
                ),
                Panel(
                    "Retries",
                    "reqps",
                    (
                        (
                            "sum by (app, platform, failure) (rate(wakupush_delivery_retries_total{$n}[5m])) > 0",
                            "{{app}} {{platform}} after {{failure}}",
                        ),
                    ),
                ),
                Panel(
                    "Breakers",
                    "short",
                    (("max by (app, platform) (wakupush_breaker_state{$n})", "{{app}} {{platform}}"),),
                    "0 closed, 1 probing, 2 open; as beat last read it.",
                ),
                Panel(
                    "Breakers: times opened, posts unchecked",
                    "short",
                    (
                        (
                            "sum by (app, platform) (increase(wakupush_breaker_opened_total{$n}[1h]))",
                            "opened {{app}} {{platform}}",
                        ),
                        ("sum(increase(wakupush_breaker_failed_total{$n}[1h]))", "unchecked: Redis failed"),
                    ),
                    "In the last hour.",
                ),
                Panel(
                    "Deferred without an attempt",
                    "reqps",
                    (
                        (
                            "sum by (app, platform) (rate(wakupush_deliveries_deferred_total{$n}[5m]))",
                            "{{app}} {{platform}}",
                        ),
                    ),
                    "No slot was free, or the breaker is open.",
                ),
                Panel(
                    "Age of due deliveries",
                    "s",
                    (("max by (app, platform) (wakupush_deliveries_due_oldest_seconds{$n})", "{{app}} {{platform}}"),),
                ),
            ),
        ),
        (
            "Dead letters and quarantine",
            (
                Panel(
                    "Stored dead letters",
                    "short",
                    (
                        (
                            "max by (app, platform, reason) (wakupush_dead_letters{$n})",
                            "{{app}} {{platform}} {{reason}}",
                        ),
                    ),
                ),
                Panel("Given up", "reqps", (_events("dead_letter"), _events("expired"))),
                Panel(
                    "Messages put into quarantine",
                    "short",
                    (
                        ("sum by (queue) (increase(wakupush_messages_quarantined_total{$n}[1h]))", "{{queue}}"),
                        ("sum (increase(wakupush_quarantine_dropped_total{$n}[1h]))", "dropped again"),
                    ),
                    "In the last hour.",
                ),
            ),
        ),
        (
            "Tokens",
            (
                Panel(
                    "Device tokens that died",
                    "reqps",
                    (
                        (
                            'sum by (app, platform, failure) (rate(wakupush_events_total{$n, kind="token_died"}[5m]))',
                            "{{app}} {{platform}} {{failure}}",
                        ),
                    ),
                ),
                Panel(
                    "Marking stopped",
                    "short",
                    (("max by (app, platform) (wakupush_token_marking_stopped{$n})", "{{app}} {{platform}}"),),
                    "1 while so many tokens are bad that something else must be wrong.",
                ),
                Panel(
                    "gorush's feedback",
                    "reqps",
                    (("sum by (result) (rate(wakupush_feedback_total{$n}[5m]))", "{{result}}"),),
                ),
                Panel(
                    "Registrations",
                    "reqps",
                    (_events("registered", "kind"), _events("unregistered", "kind")),
                ),
            ),
        ),
    ),
)

NODE = Dashboard(
    "wakupush-node",
    "wakupush: Waku node, ingest, reconciliation, schedule",
    (
        (
            "Waku node and ingest",
            (
                Panel(
                    "Since a shard was read",
                    "s",
                    (
                        (
                            "time() - max by (node, pubsub_topic) (wakupush_last_poll_timestamp_seconds{$n})",
                            "read {{node}} {{pubsub_topic}}",
                        ),
                        (
                            "time() - max by (node, pubsub_topic) (wakupush_last_message_timestamp_seconds{$n})",
                            "message {{node}} {{pubsub_topic}}",
                        ),
                    ),
                ),
                Panel(
                    "Reads",
                    "reqps",
                    (
                        (
                            "sum by (node, pubsub_topic) (rate(wakupush_messages_read_total{$n}[5m]))",
                            "{{node}} {{pubsub_topic}}",
                        ),
                        (
                            "sum by (node, pubsub_topic) (rate(wakupush_messages_malformed_total{$n}[5m]))",
                            "malformed {{node}} {{pubsub_topic}}",
                        ),
                        ("sum by (queue) (rate(wakupush_messages_repeated_total{$n}[5m]))", "repeated {{queue}}"),
                        ("sum(rate(wakupush_messages_known_total{$n}[5m]))", "old copies"),
                        ("sum(rate(wakupush_messages_ahead_total{$n}[5m]))", "a day ahead"),
                        ("sum(rate(wakupush_messages_short_total{$n}[5m]))", "too short"),
                        ("sum by (node) (rate(wakupush_node_cache_full_total{$n}[5m]))", "cache full {{node}}"),
                    ),
                ),
                Panel(
                    "Reads that failed, subscriptions",
                    "reqps",
                    (
                        ("sum by (node, reason) (rate(wakupush_polls_failed_total{$n}[5m]))", "{{node}} {{reason}}"),
                        ("sum by (node) (rate(wakupush_subscriptions_total{$n}[5m]))", "subscribed {{node}}"),
                    ),
                ),
                Panel(
                    "Answers handed to nodes",
                    "reqps",
                    (
                        ("sum by (node, result) (rate(wakupush_publications_total{$n}[5m]))", "{{node}} {{result}}"),
                        (
                            "sum by (node, result) (rate(wakupush_canaries_total{$n}[5m]))",
                            "canaries {{node}} {{result}}",
                        ),
                    ),
                    "Each answer goes to two nodes; it is enough if one takes it.",
                ),
                Panel(
                    "Nodes left out for sending",
                    "short",
                    (
                        (
                            "max by (node, pubsub_topic, reason) (wakupush_node_fault{$n})",
                            "{{node}} {{pubsub_topic}} {{reason}}",
                        ),
                    ),
                    "1: unreachable, deaf (misses messages that others hear) or mute (no node hears its canaries).",
                ),
                Panel(
                    "Relay peers",
                    "short",
                    (
                        (
                            "max by (node, pubsub_topic) (wakupush_node_relay_peers{$n})",
                            "{{node}} {{pubsub_topic}}",
                        ),
                    ),
                    "None on a shard: nothing arrives there. A nwaku tells only with --rest-admin.",
                ),
                Panel(
                    "Watched query topics",
                    "short",
                    (("max(wakupush_watched_complete{$n})", "complete"),),
                    "0: beat is filling the set again; until then ingest overlooks queries.",
                ),
            ),
        ),
        (
            "Reconciliation",
            (
                Panel(
                    "Behind",
                    "s",
                    (
                        (
                            "time() - min by (store, walk) (wakupush_reconcile_watermark_timestamp_seconds{$n})",
                            "{{store}} {{walk}}",
                        ),
                    ),
                    "Time since the watermark: up to it, the ledger has everything that a Store has.",
                ),
                Panel(
                    "Messages of Stores",
                    "reqps",
                    (
                        (
                            "sum by (walk) (rate(wakupush_reconcile_messages_examined_total{$n}[5m]))",
                            "examined {{walk}}",
                        ),
                        ("sum by (walk) (rate(wakupush_reconcile_messages_missing_total{$n}[5m]))", "missing {{walk}}"),
                        (
                            "sum by (walk) (rate(wakupush_reconcile_messages_enqueued_total{$n}[5m]))",
                            "enqueued {{walk}}",
                        ),
                        (
                            "sum by (walk) (rate(wakupush_reconcile_messages_malformed_total{$n}[5m]))",
                            "malformed {{walk}}",
                        ),
                    ),
                ),
                Panel(
                    "Walks",
                    "short",
                    (
                        (
                            "sum by (walk, result) (increase(wakupush_reconcile_walks_total{$n}[1h]))",
                            "{{walk}} {{result}}",
                        ),
                    ),
                    "In the last hour.",
                ),
                Panel(
                    "Rests",
                    "short",
                    (
                        ("max by (queue) (wakupush_reconcile_resting{$n})", "resting {{queue}}"),
                        (
                            "sum by (queue) (increase(wakupush_reconcile_rests_total{$n}[1h]))",
                            "in the last hour {{queue}}",
                        ),
                    ),
                    "Walks pause while the queue of their messages has a backlog; this loses nothing.",
                ),
                Panel(
                    "Oldest messages of Stores",
                    "s",
                    (
                        (
                            "min by (store, pubsub_topic) (wakupush_store_oldest_message_seconds{$n})",
                            "{{store}} {{pubsub_topic}}",
                        ),
                        ("max(wakupush_reconcile_window_seconds{$n})", "window"),
                    ),
                    "Reconciliation cannot recover older messages; a flood shortens a retention by size.",
                ),
                Panel(
                    "Stores compared",
                    "reqps",
                    (
                        (
                            "sum by (store) (rate(wakupush_store_messages_compared_total{$n}[30m]))",
                            "compared {{store}}",
                        ),
                        ("sum by (store) (rate(wakupush_store_messages_lacking_total{$n}[30m]))", "lacking {{store}}"),
                    ),
                    "Messages that one Store has and another lacks, ten minutes later.",
                ),
            ),
        ),
        (
            "Schedule and workers",
            (
                Panel(
                    "Failed jobs",
                    "short",
                    (("sum by (work) (increase(wakupush_jobs_failed_total{$n}[10m]))", "{{work}}"),),
                    "In 10 minutes.",
                ),
                Panel(
                    "Keys of query topics derived",
                    "reqps",
                    (("sum(rate(wakupush_query_keys_derived_total{$n}[5m]))", "derived"),),
                    "Each costs 12 to 25 ms, once; beat derives them.",
                ),
                Panel(
                    "Beyond limits",
                    "reqps",
                    (('sum by (limit) (rate(wakupush_limited_total{result="held_back",$n}[5m]))', "{{limit}}"),),
                    "Requests, notifications or bytes that chance held back.",
                ),
                Panel(
                    "Waiting queries",
                    "short",
                    (
                        ("max by (wait) (wakupush_queries_waiting{$n})", "for their {{wait}}"),
                        ("sum by (reason) (increase(wakupush_queries_dropped_total{$n}[10m]))", "dropped: {{reason}}"),
                    ),
                ),
                Panel(
                    "Unchecked limits, lost events",
                    "reqps",
                    (
                        ("sum(rate(wakupush_limiter_failed_total{$n}[5m]))", "limits not checked"),
                        ("sum(rate(wakupush_task_events_lost_total{$n}[5m]))", "events that Flower lacks"),
                    ),
                ),
            ),
        ),
    ),
)

DASHBOARDS = (OVERVIEW, QUEUES, DELIVERIES, NODE)
