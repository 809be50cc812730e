"""``wakupush test-push``: a notification straight through gorush."""

import json

import httpx2
import pytest

from support import commands

IOS = ("--platform", "ios", "--topic", "im.status.ethereum")


@pytest.fixture
def run(gorush, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_GORUSH__URL", gorush)
    return lambda *words, **options: commands.run("test-push", *words, **options).output


def pushes(gorush):
    return [entry["notification"] for entry in httpx2.get(f"{gorush}/dev/log").json()["entries"]]


@pytest.mark.parametrize(("options", "platform"), [(IOS, 1), (("--platform", "android"), 2)])
def test_a_device_gets_one_push(run, gorush, options, platform):
    assert "gorush took it" in run("--device-token", "0a" * 32, *options)
    push = pushes(gorush)[-1]
    assert (push["tokens"], push["platform"]) == (["0a" * 32], platform)


def test_each_push_is_one_of_its_own(run, gorush):
    for _ in range(2):
        run("--device-token", "0b" * 32, *IOS)
    ids = [push["notif_id"] for push in pushes(gorush) if push["tokens"] == ["0b" * 32]]
    assert len(set(ids)) == 2


def test_kind_chooses_the_text(run, gorush):
    run("--device-token", "0c" * 32, "--kind", "contact_request", *IOS)
    assert pushes(gorush)[-1]["message"] == "Someone sent you a contact request"


@pytest.mark.parametrize(
    ("token", "label", "advice"),
    [
        ("dead-1", "token_unregistered", "the token is dead"),
        ("unavailable-1", "platform_unavailable", "see gorush's log"),
    ],
)
def test_a_failure_has_its_label_and_advice(run, token, label, advice):
    output = run("--device-token", token, *IOS, expect=1)
    assert label in output
    assert advice in output
    facts = json.loads(run("--device-token", token, "--json", *IOS, expect=1))
    assert facts["failure"] == label
    assert token not in output


def test_gorush_that_is_down_is_a_failure(run, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_GORUSH__URL", "http://127.0.0.1:1")
    assert "gorush_unreachable" in run("--device-token", "x", *IOS, expect=1)


def test_a_device_of_no_app_is_named(run, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_APPS__ONE__TOPICS", '["org.one"]')
    assert "no app of the settings takes" in run("--device-token", "x", *IOS, expect=2)
