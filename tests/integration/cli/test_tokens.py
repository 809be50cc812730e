"""``wakupush tokens``: an operator looks at dead tokens and the brake, and undoes what a fault did."""

import json

import pytest
from psycopg.conninfo import make_conninfo

from support import commands
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.model.roles import Role
from wakupush.postgres import dead_tokens, token_trials

IOS, ANDROID = (AppPlatform("", platform) for platform in (Platform.IOS, Platform.ANDROID))


@pytest.fixture
def run(dsn, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", make_conninfo(dsn, user=Role.OPERATOR))
    return lambda *words, **options: commands.run("tokens", *words, **options).output


@pytest.fixture
def died(connection):
    """Register devices whose tokens died some seconds ago."""

    def died(count, *, ago, platform=Platform.IOS, app=""):
        connection.execute(
            "INSERT INTO registrations (key_hash, installation_hash, version, request_digest, registered, token_type,"
            " token_died_at, app) SELECT sha512(convert_to(concat(%(ago)s::text, %(app)s::text, n), 'UTF8')), 'phone',"
            " 1, 'digest', true, %(platform)s, now() - %(ago)s * interval '1 second', %(app)s"
            " FROM generate_series(1, %(count)s) AS n",
            {"count": count, "ago": ago, "platform": int(platform), "app": app},
        )

    return died


def dead(connection):
    [(count,)] = connection.execute("SELECT count(*) FROM registrations WHERE token_died_at IS NOT NULL").fetchall()
    return count


def rows(run, expect=0):
    return {row["platform"]: row for row in map(json.loads, run("list", "--json", expect=expect).splitlines())}


def test_list_shows_deaths_and_the_brake(run, connection, died):
    assert rows(run) == {}
    died(3, ago=60)
    died(2, ago=7200)
    died(4, ago=200_000)
    token_trials.count(connection, [(IOS, True, True)] * 30 + [(IOS, True, False)] * 30 + [(ANDROID, True, False)])
    platforms = rows(run, expect=1)
    assert (platforms["ios"]["died_hour"], platforms["ios"]["died_day"], platforms["ios"]["bad_20m"]) == (3, 5, 30)
    assert (platforms["ios"]["brake"], platforms["android"]["brake"]) == (True, False)
    assert "holds" in run("list", expect=1)


def test_forget_releases_the_brake_of_one_platform(run, connection):
    token_trials.count(connection, [(one, True, True) for one in (IOS, ANDROID) for _ in range(60)])
    run("forget", "ios")
    assert rows(run, expect=1).keys() == {"android"}


def test_revive_brings_back_the_deaths_of_the_fault(run, connection, died, monkeypatch):
    monkeypatch.setattr(dead_tokens, "CHUNK_ROWS", 2)
    died(5, ago=60)
    died(1, ago=7200)
    died(1, ago=30, platform=Platform.ANDROID)
    assert "5 tokens are back" in run("revive", "--since", "1h", "--platform", "ios", "--yes")
    assert dead(connection) == 2
    assert "no token died" in run("revive", "--since", "1h", "--platform", "ios", "--yes", expect=1)


def test_revive_asks_before_it_changes_anything(run, connection, died):
    died(1, ago=60)
    run("revive", "--since", "1h", input="n\n", expect=1)
    assert dead(connection) == 1
    run("revive", "--since", "1h", input="y\n")
    assert dead(connection) == 0


def test_revive_concerns_the_named_app_alone(run, connection, died, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_APPS__ONE__TOPICS", '["org.one"]')
    died(1, ago=60, app="one")
    died(1, ago=60, app="two")
    run("revive", "--since", "1h", "--app", "one", "--yes")
    assert dead(connection) == 1


def test_revive_reads_only_dead_tokens(connection, died):
    """Whatever it changes, it reads no more rows than that."""
    died(2000, ago=60)
    connection.execute(
        "INSERT INTO registrations (key_hash, installation_hash, version, request_digest, registered, token_type)"
        " SELECT sha512(int8send(n)), 'phone', 1, 'digest', true, 1 FROM generate_series(1, 50000) AS n"
    )
    connection.execute("ANALYZE registrations")
    values = {"since": "-infinity", "until": "infinity", "platforms": [1], "apps": [""], "most": 100}
    plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {dead_tokens._SQL['revive']}", values).fetchall())
    assert "registrations_dead" in plan
    assert "Seq Scan" not in plan


@pytest.mark.parametrize("arguments", [("revive", "--since", "soon", "--yes"), ("forget", "ios", "--app", "none")])
def test_wrong_arguments_are_named(run, arguments):
    assert "wakupush: " in run(*arguments, expect=2)
