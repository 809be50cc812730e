"""The alerts, as data: `generate.py` writes the rules, and docs/operating/respond.md has a section for each alert.

Rates and sums go by namespace, so that several installations can share a Prometheus. `absent` knows no namespaces: the
chart writes that of its release in place of `ANY_NAMESPACE`, and leaves out alerts of what it does not deploy.
"""

from dataclasses import dataclass

from wakupush.model.objectives import ANSWER_SECONDS, BUDGET, DELIVERY_SECONDS


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert; its name is the heading of its section in the runbook."""

    name: str
    expr: str
    #: How long the condition must hold.
    wait: str
    severity: str
    #: What has happened, in one sentence.
    summary: str
    #: Whose absence it notices: a component of the chart, and service of compose. Other alerts have none.
    component: str = ""
    #: What an operator runs first.
    command: str = "wakupush status"


@dataclass(frozen=True, slots=True)
class Objective:
    """A service level: at most this share of events may be bad."""

    #: Its name in the recorded series `wakupush:NAME:ratio_rate…` and `wakupush:NAME:events_increase6h`.
    name: str
    #: Labels that tell its series apart.
    labels: str
    #: Bad events and all events by a series of counters each, with a place for the function and one for the window.
    bad: str
    total: str

    def records(self) -> tuple[tuple[str, str], ...]:
        """Return the recording rules: the name of each series, and its expression."""
        ratios = [(self.ratio(window), self._fill(f"{self.bad} / {self.total}", "rate", window)) for window in WINDOWS]
        return (*ratios, (self.events, self._fill(self.total, "increase", "6h")))

    def _fill(self, text: str, function: str, window: str) -> str:
        return text % {"function": function, "window": window, "labels": self.labels}

    def ratio(self, window: str) -> str:
        """Return the series of the share that was bad in a window."""
        return f"wakupush:{self.name}:ratio_rate{window}"

    @property
    def events(self) -> str:
        """The series of the number of events in 6 hours."""
        return f"wakupush:{self.name}:events_increase6h"

    def burns(self, *pairs: tuple[str, str, float]) -> str:
        """Return a condition: in the long and the short window of a pair, the budget burns so many times too fast.

        The short window ends the alert soon after the cause. Few events prove nothing.
        """
        conditions = " or ".join(
            f"{self.ratio(long)} > {factor * BUDGET:g} and {self.ratio(short)} > {factor * BUDGET:g}"
            for long, short, factor in pairs
        )
        return f"({conditions}) and {self.events} > {LEAST_EVENTS}"


#: Windows of burn rates, as in Google's workbook of site reliability, chapter 5.
WINDOWS = ("5m", "30m", "1h", "6h", "3d")
FAST = (("1h", "5m", 14.4), ("6h", "30m", 6.0))
SLOW = (("3d", "6h", 1.0),)
#: Of an objective in 6 hours: below, one bad event would be a large share.
LEAST_EVENTS = 100

_UNTIL = 'sum by (%%(labels)s) (%%(function)s(wakupush_%s_seconds_bucket{le="%d.0"%s}[%%(window)s]))'
_ANSWERS = "sum by (%(labels)s) (%(function)s(wakupush_answer_seconds_count[%(window)s]))"
#: Nobody uses the devices of the canary.
_NO_CANARY = ', app!="canary"'
_DELIVERIES = 'sum by (%(labels)s) (%(function)s(wakupush_delivery_seconds_count{app!="canary"}[%(window)s]))'
ANSWERS_LATE = Objective(
    "answers_late",
    "namespace",
    f"({_ANSWERS} - {_UNTIL % ('answer', ANSWER_SECONDS, '')})",
    _ANSWERS,
)
DELIVERIES_LATE = Objective(
    "deliveries_late",
    "namespace, app, platform",
    f"({_DELIVERIES} - {_UNTIL % ('delivery', DELIVERY_SECONDS, _NO_CANARY)})",
    _DELIVERIES,
)
DELIVERIES_LOST = Objective(
    "deliveries_lost",
    "namespace, app, platform",
    "sum by (%(labels)s) (%(function)s("
    'wakupush_events_total{kind=~"dead_letter|expired", platform!="", app!="canary"}[%(window)s]))',
    "sum by (%(labels)s) (%(function)s("
    'wakupush_events_total{kind=~"delivered|dead_letter|expired", platform!="", app!="canary"}[%(window)s]))',
)
OBJECTIVES = (ANSWERS_LATE, DELIVERIES_LATE, DELIVERIES_LOST)

CRITICAL = "critical"
WARNING = "warning"

#: In a summary: the platform, after the app if the server tells apps apart.
_APP_PLATFORM = "{{ with $labels.app }}{{ . }} {{ end }}{{ $labels.platform }}"
#: Every namespace, and none, as in compose.
ANY_NAMESPACE = 'namespace=~".*"'
#: Series that a component alone has, each from its start on, whatever else is down; and how bad it is without them.
#: Not `up`: other software in a cluster has components of these names, too.
COMPONENTS = {
    "ingest": ("wakupush_last_poll_timestamp_seconds{%s}", CRITICAL),
    "reconcile": ("wakupush_reconcile_watermark_timestamp_seconds{%s}", WARNING),
    "registration": ('wakupush_pool_processes{%s, queue="registration"}', CRITICAL),
    "query": ('wakupush_pool_processes{%s, queue="query"}', CRITICAL),
    "dispatch": ('wakupush_pool_processes{%s, queue="dispatch"}', CRITICAL),
    "rest": ('wakupush_pool_processes{%s, queue="rest"}', WARNING),
    "beat": ("wakupush_jobs_failed_total{%s}", CRITICAL),
    "feedback": ("wakupush_feedback_total{%s}", WARNING),
    "exporter": ("wakupush_exporter_up{%s}", CRITICAL),
}


def _burning(name: str, objective: Objective, summary: str, command: str) -> tuple[Alert, ...]:
    """Return the alerts of an objective: one for an outage, one for a slow loss."""
    return (
        Alert(name, objective.burns(*FAST), "2m", CRITICAL, summary, command=command),
        Alert(name, objective.burns(*SLOW), "1h", WARNING, summary, command=command),
    )


ALERTS = (
    # What clients notice.
    *_burning(
        "WakupushAnswersLate",
        ANSWERS_LATE,
        "{{ $value | humanizePercentage }} of the answers came after more than 3 s, when clients have asked again.",
        "wakupush status",
    ),
    *_burning(
        "WakupushDeliveriesLate",
        DELIVERIES_LATE,
        "{{ $value | humanizePercentage }} of the notifications for "
        + _APP_PLATFORM
        + " reached gorush after more than"
        " 10 s.",
        "wakupush status",
    ),
    *_burning(
        "WakupushDeliveriesLost",
        DELIVERIES_LOST,
        "{{ $value | humanizePercentage }} of the notifications for " + _APP_PLATFORM + " were given up.",
        "wakupush why --last-hour",
    ),
    Alert(
        "WakupushCanaryLost",
        'sum by (namespace) (increase(wakupush_canary_pushes_total{outcome="arrived"}[15m])) < 1',
        "5m",
        CRITICAL,
        "For a quarter of an hour no push of the canary has arrived: probably none of any user does.",
    ),
    Alert(
        "WakupushCanaryLost",
        'sum by (namespace) (wakupush_breaker_opened_total{app="canary"}) >= 0'
        " unless on (namespace) sum by (namespace) (wakupush_canary_pushes_total)",
        "10m",
        CRITICAL,
        "Workers have the address of a canary, and Prometheus scrapes no `wakupush canary`.",
    ),
    Alert(
        "WakupushCanaryPathLost",
        'sum by (namespace, node, pubsub_topic) (increase(wakupush_canary_pushes_total{outcome="arrived"}[3h])) < 1',
        "1h",
        WARNING,
        "For three hours no push of the canary has arrived on the shard {{ $labels.pubsub_topic }} by the node"
        " {{ $labels.node }}.",
    ),
    Alert(
        "WakupushQueueOld",
        'max by (namespace, queue) (wakupush_queue_oldest_seconds{queue!="rest"}) > 10',
        "2m",
        CRITICAL,
        "Messages wait in the queue {{ $labels.queue }} for {{ $value | humanizeDuration }}; clients wait for 3 s.",
    ),
    Alert(
        "WakupushRestOld",
        'max by (namespace) (wakupush_queue_oldest_seconds{queue="rest"}) > 10',
        "5m",
        WARNING,
        "Messages for devices that no push reached yet wait for {{ $value | humanizeDuration }}: they are a flood, or"
        " the pool rest is too small.",
    ),
    Alert(
        "WakupushMessagesDropped",
        'sum by (namespace, reason) (increase(wakupush_messages_dropped_total{reason!="rest_full"}[10m])) > 0',
        "0m",
        CRITICAL,
        "ingest could not enqueue messages ({{ $labels.reason }}); reconciliation has to recover them.",
    ),
    Alert(
        "WakupushShardNotRead",
        "time() - max by (namespace, pubsub_topic) (wakupush_last_poll_timestamp_seconds) > 60",
        "1m",
        CRITICAL,
        "ingest does not read the shard {{ $labels.pubsub_topic }} at any Waku node.",
    ),
    Alert(
        "WakupushShardSilent",
        "time() - max by (namespace, pubsub_topic) (wakupush_last_message_timestamp_seconds) > 1800"
        # Twenty an hour, seen at as many scrapes: a shard that is quiet anyway says nothing by its silence.
        # The most in a day of the last day, or the silence itself would end the alert.
        " and max by (namespace, pubsub_topic)"
        " (max_over_time(changes(wakupush_last_message_timestamp_seconds[1d])[1d:30m])) >= 480",
        "5m",
        WARNING,
        "No node has had a message on the shard {{ $labels.pubsub_topic }} for half an hour, and it is a busy one.",
    ),
    Alert(
        "WakupushNodeLeftOut",
        "max by (namespace, node, pubsub_topic, reason) (wakupush_node_fault) == 1",
        "2m",
        WARNING,
        "Answers on the shard {{ $labels.pubsub_topic }} skip the Waku node {{ $labels.node }}:"
        " it is {{ $labels.reason }}.",
    ),
    Alert(
        "WakupushShardWithoutPeers",
        "max by (namespace, node, pubsub_topic) (wakupush_node_relay_peers) == 0",
        "10m",
        WARNING,
        "The Waku node {{ $labels.node }} has no relay peer on the shard {{ $labels.pubsub_topic }}.",
        command="wakupush doctor",
    ),
    Alert(
        "WakupushWatchedTopicsIncomplete",
        # Every process has the gauge; without ingest, which alone sets it, all of them show 0.
        "max by (namespace) (wakupush_watched_complete) == 0"
        " and on (namespace) count by (namespace) (wakupush_last_poll_timestamp_seconds)",
        "3m",
        CRITICAL,
        "The set of watched query topics is not complete: ingest overlooks queries.",
    ),
    Alert(
        "WakupushReconcileBehind",
        "time() - max by (namespace, store, pubsub_topic, walk) (wakupush_reconcile_watermark_timestamp_seconds)"
        " > 3600",
        "15m",
        WARNING,
        "No walk through the Store {{ $labels.store }} has finished for an hour"
        " (shard {{ $labels.pubsub_topic }}, {{ $labels.walk }}).",
    ),
    Alert(
        "WakupushReconcileFindsLosses",
        "sum by (namespace) (rate(wakupush_reconcile_messages_enqueued_total[30m]))"
        " > 0.1 * sum by (namespace) (rate(wakupush_messages_enqueued_total[30m]))",
        "15m",
        WARNING,
        "More than a tenth of the messages come from reconciliation: ingest live misses them.",
    ),
    Alert(
        "WakupushNodeCacheFull",
        "sum by (namespace, node) (increase(wakupush_node_cache_full_total[10m])) > 0",
        "0m",
        WARNING,
        "The cache of the node {{ $labels.node }} was full when ingest read it: it may have dropped messages,"
        " which reconciliation finds in the Store.",
    ),
    Alert(
        "WakupushStoreForgets",
        "min by (namespace, store, pubsub_topic) (wakupush_store_oldest_message_seconds)"
        " < max by (namespace, store, pubsub_topic) (wakupush_reconcile_window_seconds)"
        # One that is new grows by an hour each hour.
        " and min by (namespace, store, pubsub_topic) (delta(wakupush_store_oldest_message_seconds[1h])) < 1800",
        "1h",
        WARNING,
        "The Store {{ $labels.store }} has messages of {{ $labels.pubsub_topic }} for {{ $value | humanizeDuration }}"
        " only: reconciliation cannot recover older losses from it.",
    ),
    Alert(
        "WakupushStoreLacksMessages",
        "sum by (namespace, store) (increase(wakupush_store_messages_lacking_total[1h]))"
        " > 0.02 * sum by (namespace, store) (increase(wakupush_store_messages_compared_total[1h]))",
        "30m",
        WARNING,
        "The Store {{ $labels.store }} lacks messages that another one has: {{ $value | humanize }} in an hour.",
    ),
    # Infrastructure.
    Alert(
        "WakupushTasksReturned",
        'sum by (namespace, queue) (rate(wakupush_tasks_returned_total{reason="outage"}[5m])) > 0',
        "5m",
        CRITICAL,
        "Tasks of {{ $labels.queue }} go back to their queue: Postgres or Redis fails.",
    ),
    Alert(
        "WakupushExporterBlind",
        "min by (namespace, source) (wakupush_exporter_up) == 0",
        "3m",
        CRITICAL,
        "The exporter cannot read {{ $labels.source }}: autoscalers have no figures.",
    ),
    Alert(
        "WakupushClockOff",
        "max by (namespace, command) (wakupush_clock_offset_seconds) > 5",
        "5m",
        WARNING,
        "The clock of a `wakupush {{ $labels.command }}` is {{ $value | humanizeDuration }} off that of Redis:"
        " requests may expire unread.",
    ),
    Alert(
        "WakupushRedisFilling",
        'max by (namespace) (wakupush_data_bytes{source="redis"})'
        ' > 0.85 * max by (namespace) (wakupush_data_limit_bytes{source="redis"})',
        "5m",
        CRITICAL,
        "Redis uses {{ $value | humanize1024 }}B, more than 85 % of what it may: when it is full, new messages are"
        " dropped.",
    ),
    Alert(
        "WakupushFewConnectionsLeft",
        "max by (namespace, source) (wakupush_connections)"
        " > 0.9 * max by (namespace, source) (wakupush_connections_limit)",
        "5m",
        WARNING,
        "{{ $value }} connections to {{ $labels.source }} are open, more than 90 % of those that it allows.",
        command="wakupush doctor",
    ),
    *(
        Alert(
            "WakupushProcessMissing",
            f"absent({series % ANY_NAMESPACE})",
            "5m",
            severity,
            f"Prometheus scrapes no process of the component {component}: none runs, or Prometheus does not reach it.",
            component,
        )
        for component, (series, severity) in COMPONENTS.items()
    ),
    Alert(
        "WakupushRedisLimitsUnchecked",
        "sum by (namespace) (rate(wakupush_limiter_failed_total[5m]) + rate(wakupush_breaker_failed_total[5m])) > 0",
        "5m",
        WARNING,
        "Workers cannot check limits or breakers because Redis fails.",
    ),
    Alert(
        "WakupushLimitReached",
        "sum by (namespace, limit) ("
        'rate(wakupush_limited_total{result="held_back", limit!="user_queries"}[10m])) > 0.5',
        "10m",
        WARNING,
        "The load on the limit {{ $labels.limit }} is above it; chance decides what gets through.",
    ),
    Alert(
        "WakupushQueriesDropped",
        "sum by (namespace, reason) (increase(wakupush_queries_dropped_total[10m])) > 10",
        "10m",
        WARNING,
        "The server drops waiting queries unanswered ({{ $labels.reason }}).",
    ),
    Alert(
        "WakupushKeysBehind",
        'max by (namespace) (wakupush_queries_waiting{wait="key"}) > 1000',
        "15m",
        WARNING,
        "{{ $value }} queries wait for the key of their topic.",
    ),
    Alert(
        "WakupushJobFailing",
        "sum by (namespace, work) (increase(wakupush_jobs_failed_total[10m])) > 5",
        "5m",
        WARNING,
        "The job {{ $labels.work }} of the schedule keeps failing.",
    ),
    # Deliveries.
    Alert(
        "WakupushDeliveriesOverdue",
        "max by (namespace, app, platform) (wakupush_deliveries_due_oldest_seconds) > 300",
        "5m",
        WARNING,
        "Deliveries to " + _APP_PLATFORM + " have been due for {{ $value | humanizeDuration }}; no worker posts them.",
    ),
    Alert(
        "WakupushBreakerOpen",
        # Without a delivery that waits nothing probes the route, and its breaker does not close.
        "max by (namespace, app, platform) (wakupush_breaker_state) > 0"
        " and on (namespace, app, platform) max by (namespace, app, platform) (wakupush_deliveries_pending) > 0",
        "5m",
        CRITICAL,
        "The breaker of " + _APP_PLATFORM + " does not close: no notification gets through.",
        command="wakupush breaker list",
    ),
    Alert(
        "WakupushDeliveriesFailing",
        'sum by (namespace, app, platform) (rate(wakupush_events_total{kind=~"failed|unknown"}[10m]))'
        ' > 0.2 * sum by (namespace, app, platform) (rate(wakupush_events_total{kind="attempt"}[10m]))',
        "10m",
        WARNING,
        "More than a fifth of the attempts at " + _APP_PLATFORM + " fail.",
        command="wakupush why --last-hour",
    ),
    Alert(
        "WakupushGorushSlow",
        "histogram_quantile(0.99,"
        " sum by (namespace, app, platform, le) (rate(wakupush_gorush_post_seconds_bucket[10m]))) > 10",
        "10m",
        WARNING,
        "gorush takes {{ $value | humanizeDuration }} for a post to " + _APP_PLATFORM + " (p99).",
    ),
    Alert(
        "WakupushDeadLetters",
        # A request that nobody read in time expires, too, and is of no platform.
        "sum by (namespace, app, platform)"
        ' (increase(wakupush_events_total{kind=~"dead_letter|expired", platform!=""}[1h])) > 10',
        "0m",
        WARNING,
        "The server gave up deliveries to " + _APP_PLATFORM + ": {{ $value | humanize }} in an hour.",
        command="wakupush dead-letters stats",
    ),
    Alert(
        "WakupushTokenMarkingStopped",
        "max by (namespace, app, platform) (wakupush_token_marking_stopped) == 1",
        "0m",
        CRITICAL,
        "So many device tokens of " + _APP_PLATFORM + " are bad that the server marks none dead any more.",
        command="wakupush tokens list",
    ),
    Alert(
        "WakupushFeedbackRefused",
        'sum by (namespace, result) (increase(wakupush_feedback_total{result!~"noted|known|unknown"}[15m])) > 5',
        "0m",
        WARNING,
        "Calls of gorush's feedback webhook fail ({{ $labels.result }}).",
    ),
    # The pipeline.
    Alert(
        "WakupushExportStopped",
        "max by (namespace) (wakupush_export_lag_seconds) > 172800",
        "15m",
        WARNING,
        "Events of the last {{ $value | humanizeDuration }} are not exported; retention deletes them after 14 days.",
    ),
    Alert(
        "WakupushEventsLost",
        "sum by (namespace) (increase(wakupush_event_days_lost_total[1d])) > 0",
        "0m",
        WARNING,
        "Retention dropped events before the export took them: reports lack a day.",
    ),
    # Messages and answers.
    Alert(
        "WakupushMessagesQuarantined",
        "sum by (namespace, queue) (increase(wakupush_messages_quarantined_total[1h])) > 0",
        "0m",
        WARNING,
        "A message of {{ $labels.queue }} failed although nothing was down; it is in quarantine.",
        command="wakupush quarantine list",
    ),
    Alert(
        "WakupushAnswersNotPublished",
        "sum by (namespace) (rate(wakupush_answers_failed_total[5m]))"
        " > 0.1 * sum by (namespace) (rate(wakupush_answers_published_total[5m]))",
        "5m",
        CRITICAL,
        "The Waku node does not take answers.",
    ),
    Alert(
        "WakupushAnswersExpired",
        "sum by (namespace) (increase(wakupush_answers_expired_total[10m])) > 0",
        "0m",
        WARNING,
        "The server dropped answers because no client waits for them any more.",
    ),
)
