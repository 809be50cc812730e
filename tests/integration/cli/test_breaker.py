"""``wakupush breaker``: an operator looks at the breakers, opens and closes them."""

import json

import pytest

from support import commands
from wakupush.model.failures import Route
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.redis.breaker import BreakerState
from wakupush.runtime.settings import BreakerSettings
from wakupush.server.delivery.breaker import Breaker

IOS = AppPlatform("", Platform.IOS)


@pytest.fixture
def run(redis_server, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_REDIS__URL", redis_server.url)
    return lambda *words, **options: commands.run("breaker", *words, **options).output


@pytest.fixture
def breaker(redis):
    """Return the breakers of a new process, which has read nothing yet."""
    return lambda **settings: Breaker(redis, BreakerSettings(**settings), probe_seconds=60)


def states(run, expect):
    rows = [json.loads(line) for line in run("list", "--json", expect=expect).splitlines()]
    return {row["platform"]: row["state"] for row in rows}


@pytest.mark.usefixtures("redis")
def test_breakers_are_closed_at_first(run):
    assert states(run, expect=0) == {"ios": "closed", "android": "closed"}


def test_an_opened_breaker_lets_no_post_through(run, breaker):
    run("open", "ios", "--for", "1h")
    assert states(run, expect=1) == {"ios": "open", "android": "closed"}
    assert breaker().take_probes(IOS, 5) == 0


def test_success_does_not_close_what_an_operator_opened(run, breaker):
    """Posts that were under way end well."""
    run("open", "ios")
    breaker().note(IOS, [Route.WORKS], probe=False)
    assert breaker().claimable(IOS, 5) == 0


def test_probes_end_what_an_operator_opened(run, breaker, redis):
    run("open", "ios")
    redis.delete("wakupush:breaker:ios:open")  # its time is over
    assert states(run, expect=1)["ios"] == "probing"
    breaker().note(IOS, [Route.WORKS], probe=True)
    assert states(run, expect=0)["ios"] == "closed"


def test_close_ends_what_faults_or_operators_opened(run, breaker):
    faulty = breaker(faults=1)
    for open_it in (lambda: faulty.note(IOS, [Route.BROKEN], probe=False), lambda: run("open", "ios")):
        open_it()
        assert "ios: closed" in run("close", "ios")
        assert breaker().is_closed(IOS)
    assert "closed already" in run("close", "ios", expect=1)


def test_commands_concern_the_named_app_alone(run, breaker, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_APPS__ONE__TOPICS", '["org.one"]')
    monkeypatch.setenv("WAKUPUSH_APPS__TWO__TOPICS", '["org.two"]')
    run("open", "ios", "--app", "one")
    assert breaker().is_closed(AppPlatform("two", Platform.IOS))
    assert not breaker().is_closed(AppPlatform("one", Platform.IOS))
    assert "there are one, two" in run("close", "ios", "--app", "three", expect=2)
    assert BreakerState.OPEN.name.lower() in run("list", expect=1)


def test_a_redis_that_is_down_is_named(run, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_REDIS__URL", "redis://:planted@127.0.0.1:1")
    for arguments in (["list"], ["open", "ios"], ["close", "ios"]):
        output = run(*arguments, expect=2)
        assert "WAKUPUSH_REDIS__URL" in output
        assert "planted" not in output
