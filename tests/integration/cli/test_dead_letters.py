"""``wakupush dead-letters``: what an operator finds, and what may be done about it."""

import json
import re
import time
from datetime import timedelta
from functools import partial

import pytest
from psycopg.conninfo import make_conninfo

from support import commands
from support.served import as_beat, request
from wakupush.model.dead_letters import Selection
from wakupush.model.events import period_of
from wakupush.model.failures import Failure
from wakupush.model.platforms import Platform
from wakupush.model.queues import DISPATCH
from wakupush.model.roles import Role
from wakupush.postgres import dead_letters, maintenance
from wakupush.postgres.dead_letters import CHUNK_ROWS
from wakupush.runtime import metrics
from wakupush.runtime.settings import RetentionSettings
from wakupush.server.beat.deliveries import claim_due, count_dead_letters
from wakupush.server.beat.retention import rules
from wakupush.server.delivery import next_attempts

NOTHING, USAGE = 1, 2


@pytest.fixture
def run(dsn, monkeypatch):
    """Run the command against the test's database, as the role of operators, and return its result."""
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", make_conninfo(dsn, user=Role.OPERATOR))
    monkeypatch.setenv("COLUMNS", "80")

    return partial(commands.run, "dead-letters")


@pytest.fixture
def list_letters(run):
    return lambda *arguments: [json.loads(line) for line in run("list", "--json", *arguments).stdout.splitlines()]


def make(connection, count, *, state="dead_letter", platform=Platform.IOS, failure="platform_unavailable", age=0.0):
    """Put dead letters into the database, each some microseconds older than the one before."""
    connection.execute(
        "INSERT INTO deliveries (delivery_key, key_hash, installation_hash, platform, notification_type,"
        " sealed_content, state, attempt, failure, seen_at, expires_at, finished_at, task_id, trace_id)"
        " SELECT sha256(convert_to(concat(%(state)s::text, %(failure)s::text, %(age)s::text, n), 'UTF8')), 'key',"
        " 'phone', %(platform)s, 1, 'content', %(state)s, 10, %(failure)s, now() - interval '1 day', now(),"
        " now() - %(age)s * interval '1 second' - n * interval '1 microsecond', 'task', 'trace'"
        " FROM generate_series(1, %(count)s) AS n",
        {"state": state, "failure": failure, "platform": int(platform), "age": age, "count": count},
    )


@pytest.fixture
def rows(connection):
    return lambda query: connection.execute(query).fetchall()


@pytest.fixture
def several(connection):
    make(connection, 3, age=3600)
    make(connection, 2, failure="rate_limited", platform=Platform.ANDROID, age=7200)
    make(connection, 1, state="expired", failure="delivery_expired", age=200_000)
    make(connection, 5, state="failed", failure="token_rejected")
    make(connection, 5, state="delivered", failure=None)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ((), 6),
        (("--reason", "rate_limited"), 2),
        (("--reason", "delivery_expired"), 1),
        (("--platform", "android"), 2),
        (("--platform", "ios"), 4),
        (("--older-than", "90m"), 3),
        (("--older-than", "2d"), 1),
        (("--newer-than", "90m"), 3),
        (("--newer-than", "3h", "--older-than", "5400s"), 2),
        (("--newer-than", "3d", "--platform", "ios", "--reason", "platform_unavailable"), 3),
        (("--limit", "2"), 2),
    ],
)
def test_filters(list_letters, options, count):
    letters = list_letters(*options)
    assert len(letters) == count
    assert letters == sorted(letters, key=lambda letter: letter["finished_at"], reverse=True)


@pytest.mark.usefixtures("several")
def test_a_table_for_people_breaks_no_key(run, list_letters):
    table = run("list").stdout
    for letter in list_letters():
        assert letter["delivery_key"][:16] in table
        assert letter["finished_at"] in table
    assert "content" not in table
    assert "2 shown; --limit shows more" in run("list", "--limit", "2").stdout


def test_nothing_matches(run):
    for command in (["list"], ["show", "ab"], ["retry", "ab"], ["drop", "--all"], ["retry", "--all"]):
        result = run(*command, expect=NOTHING)
        assert (result.stdout, result.stderr) == ("", "no dead letter matched\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["list", "--reason", "rate_limitted"], r"rate_limitted is no failure; there are .*rate_limited"),
        (["list", "--reason", "token_unregistered"], r"ends no delivery as a dead letter; there are .*lease_lost"),
        (["list", "--older-than", "2 hours"], "such as 45s, 90m, 2h or 3d"),
        (["list", "--older-than", "999999d"], "--older-than is .*, up to 10000 days"),
        (["list", "--newer-than", "-3d"], "--newer-than is a number and a unit"),
        (["list", "--platform", "huawei"], "android"),
        (["list", "--limit", "0"], "--limit"),
        (["show", "xyz"], "64 hex digits"),
        (["retry"], "--all"),
        (["drop"], "--all"),
        (["retry", "ab", "--all"], "not both"),
        (["retry", "ab" * 33], "64 hex digits"),
    ],
)
def test_wrong_usage_says_what_is_right(run, arguments, text):
    assert re.search(text, run(*arguments, expect=USAGE).stderr)


def test_a_beginning_that_several_have_is_refused(connection, rows, run):
    make(connection, 100)
    for command in ("show", "retry", "drop"):
        assert "several dead letters begin with" in run(command, rows("SELECT left(encode(delivery_key, 'hex'), 1)"
            " FROM deliveries GROUP BY 1 HAVING count(*) > 1")[0][0], expect=USAGE).stderr  # fmt: skip


def test_no_database(run, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", "postgresql://user:geheim@127.0.0.1:1/x")
    error = run("list", expect=USAGE).stderr
    assert "WAKUPUSH_POSTGRES__DSN" in error
    assert "Connection refused" in error
    assert "geheim" not in error


def test_a_database_that_refuses(run, dsn, connection, monkeypatch):
    connection.execute("CREATE ROLE stranger LOGIN")
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", make_conninfo(dsn, user="stranger"))
    assert "answers with InsufficientPrivilege" in run("list", expect=USAGE).stderr
    connection.execute("DROP ROLE stranger")


def test_no_schema(run, empty_dsn, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", empty_dsn)
    assert "wakupush migrate" in run("list", expect=USAGE).stderr


def exhausted(server, client, **fields):
    """Return the key of a delivery that ran out of attempts."""
    content = server.register(client, device_token="unavailable", **fields)
    server.handle(DISPATCH, request(client, server, content))
    [(key,)] = server.rows("SELECT delivery_key FROM deliveries")
    assert server.rows("SELECT state FROM deliveries") == [("dead_letter",)]
    return key


def test_show_tells_all_that_is_no_secret(open_server, client, run, monkeypatch):
    server = open_server(delivery={"max_attempts": 1})
    key = exhausted(server, client)
    assert "set WAKUPUSH_IDENTITY_KEY_FILE" in run("show", key.hex()).stderr
    identity = server.context.identity
    monkeypatch.setenv("WAKUPUSH_IDENTITY_KEY", identity.private_key.secret.hex())
    output = json.loads(run("show", key.hex()[:9].upper(), "--json").stdout)
    assert output["delivery_key"] == key.hex()
    assert (output["reason"], output["attempts"], output["platform"]) == ("platform_unavailable", 1, "ios")
    assert (output["device"], output["suspicions"], output["registered_anew_since"]) == ("registered", 0, False)
    assert [event["kind"] for event in output["events"]] == [
        *("received", "opened", "answered", "admitted", "attempt", "failed", "dead_letter", "answered"),
    ]
    installation = identity.installation(client.public_key.key_hash, server.devices()[0].installation_id)
    period = period_of(time.time(), server.context.settings.pipeline.pseudonym_days)
    pseudonym = identity.pseudonyms(installation, period)[1].hex()
    assert {event["installation_pseudonym"] for event in output["events"][3:7]} == {pseudonym}
    table = run("show", key.hex()).stdout
    for text in (key.hex(), "platform_unavailable", output["trace_id"], pseudonym):
        assert text in table


def test_retried_dead_letter_starts_over(open_server, client, run):
    server = open_server(delivery={"max_attempts": 1})
    key = exhausted(server, client)
    server.rows("UPDATE deliveries SET expires_at = now() - interval '1 day' RETURNING 1")
    server.reroute("good")
    assert "1 dead letters will be sent again" in run("retry", key.hex()[:12]).stdout
    assert server.rows("SELECT state, attempt, failure FROM deliveries") == [("pending", 0, None)]
    [(remainder,)] = server.rows("SELECT expires_at - now() FROM deliveries")
    assert remainder > timedelta(hours=23)
    run("list", expect=NOTHING)
    run("retry", key.hex(), expect=NOTHING)
    assert claim_due(as_beat(server.context)) == 1
    next_attempts.attempt_due(server.context, {key: 0}, "")
    assert [push.outcome for push in server.pushes()] == ["ServiceUnavailable", "delivered"]
    assert server.rows("SELECT state, attempt FROM deliveries") == [("delivered", 1)]
    assert server.events("unknown") == []


def test_retry_of_all_excludes_what_dies_meanwhile(connection, rows, run, monkeypatch):
    make(connection, 2 * CHUNK_ROWS + 500)
    make(connection, 3, failure="rate_limited")
    steps = []
    plain = dead_letters.retry

    def spied(connection, *arguments, **options):
        if not steps:
            # It is due and dies again at once.
            connection.execute("UPDATE deliveries SET finished_at = clock_timestamp() WHERE failure = 'rate_limited'")
        steps.append(plain(connection, *arguments, **options))
        return steps[-1]

    monkeypatch.setattr(dead_letters, "retry", spied)
    assert "2500 dead letters will be sent again" in run("retry", "--all", "--yes").stdout
    assert [len(step) for step in steps] == [CHUNK_ROWS, CHUNK_ROWS, 500, 0]
    assert rows("SELECT state, count(*) FROM deliveries GROUP BY state ORDER BY state") == [
        ("dead_letter", 3),
        ("pending", 2500),
    ]


@pytest.mark.usefixtures("several")
def test_everything_is_changed_only_after_a_question(run, rows):
    assert "send again 6 dead letters?" in run("retry", "--all", expect=NOTHING, input="n\n").stderr
    run("drop", "--all", expect=NOTHING, input="\n")
    assert rows("SELECT count(*) FROM deliveries WHERE state IN ('dead_letter', 'expired')") == [(6,)]
    assert "2 dead letters will be" in run("retry", "--all", "--reason", "rate_limited", input="y\n").stdout
    assert rows("SELECT count(*) FROM deliveries WHERE state = 'pending'") == [(2,)]
    run("retry", "--all", "--yes")  # the expired one too
    assert rows("SELECT count(*) FROM deliveries WHERE state = 'pending'") == [(6,)]


@pytest.mark.usefixtures("several")
def test_dropping_leaves_nothing(run, rows, list_letters):
    [key] = [letter["delivery_key"] for letter in list_letters("--reason", "delivery_expired")]
    run("drop", key)
    run("drop", "--all", "--platform", "ios", "--yes")
    assert len(list_letters()) == 2
    assert rows("SELECT state, count(*) FROM deliveries GROUP BY state ORDER BY state") == [
        *(("dead_letter", 2), ("delivered", 5), ("failed", 5)),
    ]


def test_listing_reads_in_chunks_and_misses_none(connection, rows, list_letters):
    make(connection, 2 * CHUNK_ROWS + 1)
    # Many that ended at the same time are told apart by their keys.
    rows("UPDATE deliveries SET finished_at = now() RETURNING 1")
    letters = list_letters("--limit", "100000")
    assert len({letter["delivery_key"] for letter in letters}) == 2 * CHUNK_ROWS + 1
    assert len(list_letters("--limit", str(CHUNK_ROWS + 1))) == CHUNK_ROWS + 1


@pytest.mark.parametrize(
    "selection", [Selection(), Selection(reason=Failure.RATE_LIMITED)], ids=["every", "one reason"]
)
def test_pages_are_read_from_an_index(connection, selection):
    make(connection, 20_000, state="delivered", failure=None)
    make(connection, 5000)
    make(connection, 50, failure="rate_limited")
    query, values = dead_letters.compose("page", selection)
    connection.execute("ANALYZE deliveries")
    plan = repr(connection.execute("EXPLAIN " + query.as_string(), values | {"limit": 50}).fetchall())
    assert "Index Scan" in plan
    assert "deliveries_dead_letters" in plan or "deliveries_app_dead_letters" in plan


@pytest.mark.usefixtures("several")
def test_dead_letter_retention_covers_expired_ones(server, rows):
    chosen = rules(RetentionSettings(deliveries=1, dead_letters=100_000))
    rows("UPDATE deliveries SET finished_at = finished_at - interval '10 seconds' RETURNING 1")
    with server.context.pool.connection() as connection:
        for table, count in (("deliveries", 10), ("dead_letters", 1)):
            assert maintenance.delete(connection, table, chosen[table]) == count
    assert rows("SELECT DISTINCT state FROM deliveries") == [("dead_letter",)]


@pytest.mark.usefixtures("several")
def test_the_schedule_counts_them(server, rows):
    count_dead_letters(server.context)
    gauge = metrics.DEAD_LETTERS
    assert gauge.labels("", "ios", "platform_unavailable")._value.get() == 3
    assert gauge.labels("", "android", "rate_limited")._value.get() == 2
    assert gauge.labels("", "ios", "delivery_expired")._value.get() == 1
    rows("DELETE FROM deliveries WHERE failure = 'rate_limited' RETURNING 1")
    count_dead_letters(server.context)
    [family] = gauge.collect()
    assert {tuple(sample.labels.values()) for sample in family.samples} == {
        ("", "ios", "platform_unavailable"),
        ("", "ios", "delivery_expired"),
    }


@pytest.mark.usefixtures("several")
def test_stats_count_by_platform_and_reason(run):
    rows = [json.loads(line) for line in run("stats", "--json").stdout.splitlines()]
    assert [(row["count"], row["platform"], row["reason"]) for row in rows] == [
        (3, "ios", "platform_unavailable"),
        (2, "android", "rate_limited"),
        (1, "ios", "delivery_expired"),
    ]
    assert "rate_limited" in run("stats").stdout


def test_stats_of_nothing_end_with_1(run):
    run("stats", expect=NOTHING)
