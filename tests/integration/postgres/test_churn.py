"""What a long outage or a busy day leaves in Postgres costs no more than its share."""

import pytest

from support import plans
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.postgres import dead_letters

FILL = """
INSERT INTO deliveries (
    delivery_key, key_hash, installation_hash, platform, notification_type, state, attempt, failure, seen_at,
    expires_at, finished_at, task_id, trace_id
)
SELECT int8send(n), int8send(n), 'i', 1 + n % 2, 1,
    CASE WHEN n % 3 = 0 THEN 'expired' WHEN n % 3 = 1 THEN 'dead_letter' ELSE 'delivered' END, 1,
    (ARRAY['credentials_rejected', 'platform_unreachable', NULL])[1 + n % 10 / 8 + n % 10 / 9],
    now(), now(), now() - n * interval '1 s', '', ''
FROM generate_series(1, 60000) AS n
"""


@pytest.fixture
def dead(connection):
    connection.execute(FILL)
    connection.execute("VACUUM ANALYZE deliveries")
    return connection


def test_counts_are_exact_below_their_bound(dead):
    expected = {
        (AppPlatform(app, Platform(platform)), reason or ""): count
        for app, platform, reason, count in dead.execute(
            "SELECT app, platform, failure, count(*) FROM deliveries WHERE state <> 'delivered' GROUP BY 1, 2, 3"
        )
    }
    assert len(expected) >= 4
    assert dead_letters.counts(dead) == expected


def test_counting_reads_no_more_than_its_bound(dead):
    nodes = plans.executed(dead, dead_letters._SQL["counts"] % {"most": "100"})
    scans = [node for node in nodes if node.get("Relation Name")]
    assert {node["Index Name"] for node in scans} == {"deliveries_app_dead_letters"}
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in scans) <= 3 * 100 + 3
    assert sum(node.get("Rows Removed by Filter", 0) for node in scans) == 0


#: Rows of a table, and how many of them may be dead before it is vacuumed.
@pytest.mark.parametrize(
    ("table", "rows", "most_dead"),
    [
        ("answers", 100_000, 5_000),
        ("waiting_queries", 10_000, 2_000),
        ("message_attempts", 100_000, 5_000),
        ("message_segments", 10_000, 300),
        ("deliveries", 20_000_000, 500_000),
        ("registrations", 10_000_000, 1_000_000),
        ("query_topics", 20_000_000, 2_000_000),
    ],
)
def test_tables_that_churn_are_vacuumed_early(connection, table, rows, most_dead):
    query = """
        SELECT coalesce(
            (SELECT option_value FROM pg_options_to_table(reloptions) WHERE option_name = %(name)s),
            current_setting(%(name)s)
        )::float8 FROM pg_class WHERE oid = %(table)s::regclass
    """
    threshold, share = (
        connection.execute(query, {"name": f"autovacuum_vacuum_{name}", "table": table}).fetchone()[0]
        for name in ("threshold", "scale_factor")
    )
    assert threshold + share * rows <= most_dead
