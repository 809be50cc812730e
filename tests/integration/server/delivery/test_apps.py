"""Several apps on one server: each with a gorush of its own, so that the faults of one leave the others alone."""

import json

import httpx2
import pytest
from typer.testing import CliRunner

from support.devnet import serving
from support.served import fault, request
from wakupush.cli.cli import app as command_line
from wakupush.devnet import messages
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import wait_until
from wakupush.model.failures import Failure
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.operate.doctor import examine
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.postgres import deliveries
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime.settings import Settings
from wakupush.server.delivery import next_attempts

RELEASE, NIGHTLY = AppPlatform("release", Platform.IOS), AppPlatform("nightly", Platform.IOS)
FIREBASE = {"token_type": PushNotificationRegistration.FIREBASE_TOKEN}


@pytest.fixture(scope="module")
def nightly_gorush(tmp_path_factory, forkserver):
    with serving("gorush", tmp_path_factory.mktemp("nightly") / "log", forkserver=forkserver) as (url, _):
        yield url


@pytest.fixture
def apps(nightly_gorush):
    httpx2.delete(f"{nightly_gorush}/dev/faults")
    return {
        "release": {"topics": ["im.app", "im.app.old"], "firebase": True},
        "nightly": {"topics": ["im.app.nightly"], "gorush_urls": nightly_gorush, "profile": "status"},
    }


def register(server, client, **fields):
    content = messages.registration(client, server.key, **fields)
    server.handle(REGISTRATION, messages.register(client, server.key, content))
    return content, server.outcomes(client)


def push(server, client, content):
    server.handle(DISPATCH, request(client, server, content))
    [outcomes] = server.outcomes(client)
    return outcomes


def app_of(server, client):
    [(app,)] = server.rows("SELECT app FROM registrations WHERE key_hash = %s", client.public_key.key_hash)
    return app


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"apn_topic": "im.app"}, "release"),
        ({"apn_topic": "im.app.nightly"}, "nightly"),
        ({"apn_topic": "im.app.other"}, "MALFORMED_MESSAGE"),
        ({"apn_topic": "", **FIREBASE}, "release"),
        ({"apn_topic": "im.app.nightly", **FIREBASE}, "nightly"),
    ],
)
def test_a_device_belongs_to_the_app_of_its_topic(open_server, client, apps, fields, outcome):
    server = open_server(apps=apps)
    _, [result] = register(server, client, **fields)
    assert (app_of(server, client) if result == "success" else result) == outcome


def test_firebase_without_an_app_is_unsupported(open_server, client, apps):
    server = open_server(apps={"nightly": apps["nightly"]})
    _, [result] = register(server, client, apn_topic="", **FIREBASE)
    assert result == "UNSUPPORTED_TOKEN_TYPE"
    assert server.rows("SELECT failure, platform FROM delivery_events WHERE kind = 'refused'") == [
        ("firebase_without_app", None)
    ]


def test_a_broken_app_stops_no_other(open_server, apps, nightly_gorush):
    server = open_server(apps=apps, breaker={"faults": 1})
    users = [PrivateKey.generate(), PrivateKey.generate()]
    contents = [
        register(server, user, apn_topic=topic)[0]
        for user, topic in zip(users, ("im.app", "im.app.nightly"), strict=True)
    ]
    assert [push(server, *pair) for pair in zip(users, contents, strict=True)] == [["success"], ["success"]]
    assert server.rows("SELECT DISTINCT proven FROM registrations") == [(True,)]
    fault(nightly_gorush, kind="status", status=503)
    assert [push(server, *pair) for pair in zip(users, contents, strict=True)] == [["success"], ["success"]]
    breaker = server.context.posts.breaker
    assert (breaker.is_closed(RELEASE), breaker.is_closed(NIGHTLY)) == (True, False)
    assert server.rows("SELECT app, state FROM deliveries WHERE finished_at IS NULL") == [("nightly", "pending")]
    assert server.rows("SELECT DISTINCT app FROM delivery_events WHERE kind = 'unknown'") == [("nightly",)]


def test_each_app_has_its_profile_and_gorush(open_server, client, apps, nightly_gorush):
    server = open_server(apps=apps)
    content, _ = register(server, client, apn_topic="im.app.nightly")
    observer = Observer(server.context.settings.waku.url[0], nightly_gorush)
    assert push(server, client, content) == ["success"]
    assert server.pushes() == [], "the gorush of the others saw nothing"
    [gorush_push] = observer.pushes()
    observer.close()
    assert gorush_push.notification["content_available"] is True


def test_a_delivery_waits_while_no_app_takes_its_device(open_server, client, apps):
    key = PrivateKey.generate().secret.hex()
    server = open_server(identity_key=key)
    content = server.register(client, apn_topic="im.app.beta")
    server = open_server(identity_key=key, apps=apps, breaker={"faults": 1})
    assert push(server, client, content) == ["success"]
    assert server.rows("SELECT app, state, failure FROM deliveries") == [("", "pending", "app_gone")]
    assert server.rows("SELECT token_died_at FROM registrations") == [(None,)]
    [finding] = [finding for finding in examine(server.context.settings) if finding.part == "apps"]
    assert "'im.app.beta'" in finding.text

    apps["beta"] = {"topics": ["im.app.beta"]}
    server = open_server(identity_key=key, apps=apps)
    assert not server.context.posts.breaker.is_closed(AppPlatform("", Platform.IOS))
    attempts = dict(server.rows("SELECT delivery_key, attempt FROM deliveries"))
    next_attempts.attempt_due(server.context, attempts, "")
    wait_until(lambda: server.rows("SELECT FROM deliveries WHERE state = 'delivered'"), timeout=30, what="delivered")
    assert server.context.posts.breaker.is_closed(AppPlatform("", Platform.IOS)), "others like it need not wait"


def test_an_app_cannot_report_on_another(open_server, client, apps):
    server = open_server(apps=apps)
    content, _ = register(server, client, apn_topic="im.app")
    push(server, client, content)
    [(key, attempt)] = server.rows("SELECT delivery_key, attempt FROM deliveries")
    with server.context.pool.connection() as connection:
        for app, noted in (("nightly", False), ("release", True)):
            assert (
                deliveries.note_feedback(connection, key, attempt, None, Failure.TOKEN_UNREGISTERED, apps=[app])
                is noted
            )


def test_assign_gives_stored_devices_their_apps(open_server, dsn, monkeypatch, tmp_path):
    key = PrivateKey.generate().secret.hex()
    server = open_server(identity_key=key)
    users = {PrivateKey.generate(): topic for topic in ("im.app", "im.app.nightly", "im.app.beta")}
    for user, topic in users.items():
        server.register(user, apn_topic=topic)
    config = tmp_path / "wakupush.toml"
    config.write_text('[apps.release]\ntopics = ["im.app"]\n[apps.nightly]\ntopics = ["im.app.nightly"]\n')
    for name, value in {"CONFIG": str(config), "IDENTITY_KEY": key, "POSTGRES__DSN": dsn}.items():
        monkeypatch.setenv(f"WAKUPUSH_{name}", value)
    for arguments, changed in ((["--dry-run"], 2), ([], 2), ([], 0)):
        result = CliRunner().invoke(command_line, ["apps", "assign", "--json", *arguments])
        assert result.exit_code == 1, "one device has no app"
        totals = json.loads(result.stdout)
        assert (totals["changed"], totals["unchanged"]) == (changed, 3 - changed)
        assert totals["without_app"] == [{"platform": "ios", "topic": "im.app.beta", "devices": 1}]
        app_names = sorted(app for (app,) in server.rows("SELECT app FROM registrations"))
        assert app_names == (["", "", ""] if arguments else ["", "nightly", "release"])


@pytest.mark.parametrize(
    ("apps", "problem"),
    [
        ({"a": {"topics": ["t"]}, "b": {"topics": ["t"]}}, "t is in two apps"),
        ({"a": {"firebase": True}, "b": {"firebase": True}}, "only one app may have firebase"),
        ({"A": {}}, "apps"),
        ({"a": {"topics": ["im.app.*"]}}, "topics"),
    ],
)
def test_settings_of_apps_are_checked(apps, problem):
    with pytest.raises(ValueError, match=problem):
        Settings(apps=apps)
