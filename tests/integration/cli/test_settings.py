"""``wakupush settings`` and ``wakupush public-key``."""

import json

import pytest

from support import commands
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime import keyfile


@pytest.fixture
def run():
    return lambda *words, expect=0, **environment: commands.run(*words, expect=expect, env=environment).output


def test_each_setting_has_its_value_and_source(run, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('[delivery]\nmax_attempts = 3\n[apps.one]\ntopics = ["org.one"]\n')
    output = run("settings", "--json", WAKUPUSH_CONFIG=str(file), WAKUPUSH_DELIVERY__LEASE="10m")
    rows = {row["variable"]: (row["value"], row["source"]) for row in map(json.loads, output.splitlines())}
    assert rows["WAKUPUSH_DELIVERY__MAX_ATTEMPTS"] == (3, str(file))
    assert rows["WAKUPUSH_DELIVERY__LEASE"] == (600, "environment")
    assert rows["WAKUPUSH_DELIVERY__CLAIM"] == (60, "default")
    assert rows["WAKUPUSH_APPS__ONE__TOPICS"] == (["org.one"], str(file))


def test_only_those_that_are_set_are_shown_on_demand(run):
    output = run("settings", "--set", WAKUPUSH_DELIVERY__LEASE="10m")
    assert "WAKUPUSH_DELIVERY__LEASE" in output
    assert "WAKUPUSH_DELIVERY__CLAIM" not in output


def test_no_secret_is_shown(run):
    output = run(
        *("settings", "--json"),
        WAKUPUSH_IDENTITY_KEY="0123planted",
        WAKUPUSH_REDIS__URL="redis://:planted@127.0.0.1:1",
        WAKUPUSH_POSTGRES__DSN="postgresql://u:planted@127.0.0.1/x",
        WAKUPUSH_WAKU__URL="http://me:planted@127.0.0.1:8645",
        WAKUPUSH_APPS__ONE__FEEDBACK_SECRET="planted-and-long-enough",
        WAKUPUSH_PIPELINE__CATALOG='{"secret": "planted"}',
    )
    assert "planted" not in output
    assert "http://***@127.0.0.1:8645" in output


def test_a_wrong_setting_ends_with_its_error(run):
    assert "WAKUPUSH_DELIVERY__LEASE must be" in run("settings", expect=2, WAKUPUSH_DELIVERY__LEASE="1s")


@pytest.mark.parametrize("name", ["WAKUPUSH_DELIVERY__CLAIM", "delivery.claim", "delivery__claim"])
def test_docs_say_what_a_setting_means(run, name):
    output = run("settings", "--docs", name)
    assert "WAKUPUSH_DELIVERY__CLAIM" in output
    assert "beat enqueues a due delivery again" in output
    assert "Default: 60.0" in output


def test_docs_of_an_unknown_setting_fail(run):
    assert "no setting" in run("settings", "--docs", "nothing", expect=2)


def test_public_key_of_a_file_is_printed(run, tmp_path):
    key = PrivateKey.generate()
    keyfile.write(tmp_path / "key", key.secret)
    assert run("public-key", str(tmp_path / "key")).strip() == str(key.public_key)
    assert "wakupush: " in run("public-key", str(tmp_path / "none"), expect=2)
