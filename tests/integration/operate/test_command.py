"""`wakupush doctor` on real parts."""

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
from psycopg.conninfo import make_conninfo
from redis import Redis
from typer.testing import CliRunner

from support.answering import running
from support.cluster import ABLE, READY, autoscaler
from wakupush.cli import app
from wakupush.operate.doctor import _transport
from wakupush.operate.finding import Level
from wakupush.operate.status import NEEDED
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import watched


@pytest.fixture
def environment(dsn, redis_server, node, gorush):
    key = PrivateKey.generate()
    return {
        "WAKUPUSH_IDENTITY_KEY": key.secret.hex(),
        "WAKUPUSH_PUBLIC_KEY": str(key.public_key),
        "WAKUPUSH_WAKU__URL": node,
        "WAKUPUSH_GORUSH__URL": gorush,
        "WAKUPUSH_REDIS__URL": redis_server.url,
        "WAKUPUSH_POSTGRES__DSN": dsn,
    }


def examine(environment, *options, **changes):
    result = CliRunner().invoke(app, ["doctor", *options], env={**environment, **changes})
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    return result.exit_code, {(level, text.strip()) for level, text in lines}


def texts(findings, level):
    return " | ".join(text for finding_level, text in findings if finding_level == level)


def test_doctor_finds_only_limits_of_development_parts(environment):
    code, findings = examine(environment)
    assert code == 0
    assert texts(findings, "fault") == ""
    assert "appendonly is off" in texts(findings, "warning")
    assert "does not show its configuration" in texts(findings, "warning")
    for fine in (
        "the public key is 0x04",
        "it says READY",
        "can be walked",
        "schema is up to date",
        "clock and ours",
    ):
        assert fine in texts(findings, "ok")


NOWHERE = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"WAKUPUSH_WAKU__URL": NOWHERE}, "no Waku node answers"),
        ({"WAKUPUSH_GORUSH__URL": NOWHERE}, "no gorush answers"),
        (
            {"WAKUPUSH_REDIS__URL": "redis://:planted@127.0.0.1:1"},
            "no Redis answers at WAKUPUSH_REDIS__URL: it cannot be",
        ),
        ({"WAKUPUSH_REDIS__URL": "redis://:planted/secret@x"}, "is no URL of a Redis database"),
        ({"WAKUPUSH_POSTGRES__DSN": "postgresql://u:planted@127.0.0.1:1/x"}, "port 1 failed: Connection refused"),
        ({"WAKUPUSH_POSTGRES__DSN": "postgresql://u:1/planted@127.0.0.1:1/x"}, "in a password @ is written %40"),
        ({"WAKUPUSH_POSTGRES__DSN": "postgresql://u:1@planted@127.0.0.1:1/x"}, "in a password @ is written %40"),
        ({"WAKUPUSH_POSTGRES__DSN": "postgresql://u:planted/1@127.0.0.1:1/x"}, "in a password @ is written %40"),
        ({"WAKUPUSH_IDENTITY_KEY": "planted"}, "WAKUPUSH_IDENTITY_KEY holds no private key"),
        ({"WAKUPUSH_PUBLIC_KEY": "planted"}, "WAKUPUSH_PUBLIC_KEY: a key is written in hex digits"),
        ({"WAKUPUSH_POSTGRES__DSN": "postgres:/x:planted@db"}, "is no connection string"),
        ({"WAKUPUSH_PUBLIC_KEY": str(PrivateKey.generate().public_key)}, "is not that of the private key"),
    ],
)
def test_each_fault_says_what_to_do_and_no_secret(environment, changes, text):
    code, findings = examine(environment, **changes)
    assert code == 1
    assert text in texts(findings, "fault")
    assert "planted" not in str(findings)


def test_unusable_key_is_a_fault_and_none_a_warning(environment):
    environment.pop("WAKUPUSH_IDENTITY_KEY")
    code, findings = examine(environment)
    assert (code, "no private key" in texts(findings, "warning")) == (0, True)
    code, findings = examine(environment, WAKUPUSH_IDENTITY_KEY_FILE="/nowhere")
    assert (code, "cannot be read" in texts(findings, "fault")) == (1, True)


def test_key_file_that_everybody_may_read_is_a_warning(environment, tmp_path):
    file = tmp_path / "identity.key"
    file.write_text(environment.pop("WAKUPUSH_IDENTITY_KEY"))
    for mode, is_open in ((0o600, False), (0o440, False), (0o644, True)):
        file.chmod(mode)
        code, findings = examine(environment, WAKUPUSH_IDENTITY_KEY_FILE=str(file))
        assert (code, f"may read {file}" in texts(findings, "warning")) == (0, is_open)


@pytest.mark.parametrize(
    ("host", "address", "sslmode", "is_encrypted", "text"),
    [
        ("db.example.org", "10.0.0.7", "prefer", False, "is in the clear"),
        ("db.example.org", "10.0.0.7", "prefer", True, "are not checked"),
        ("db.example.org", "fd00::7", "verify-ca", True, "are not checked"),
        ("db.example.org", "10.0.0.7", "verify-full", True, None),
        ("localhost", "127.0.0.1", "prefer", False, None),
        ("/run/postgresql", "", "prefer", False, None),
    ],
)
def test_way_to_postgres_without_checks_is_a_warning(host, address, sslmode, is_encrypted, text):
    info = SimpleNamespace(host=host, hostaddr=address, get_parameters=lambda: {"sslmode": sslmode})
    connection = SimpleNamespace(info=info, pgconn=SimpleNamespace(ssl_in_use=is_encrypted))
    findings = _transport(connection)
    assert [text in finding.text for finding in findings] == ([True] if text else [])
    assert all(finding.level is Level.WARNING for finding in findings)


def test_what_is_wrong_with_postgres_is_said(environment, dsn):
    for changes, text in (
        ({"user": "stranger"}, 'role "stranger" does not exist'),
        ({"dbname": "nothing"}, 'database "nothing" does not exist'),
    ):
        code, findings = examine(environment, WAKUPUSH_POSTGRES__DSN=make_conninfo(dsn, password="planted", **changes))
        assert (code, text in texts(findings, "fault")) == (1, True)
        assert "planted" not in str(findings)


def test_a_public_key_may_be_compressed(environment):
    key = PrivateKey(bytes.fromhex(environment["WAKUPUSH_IDENTITY_KEY"]))
    code, findings = examine(environment, WAKUPUSH_PUBLIC_KEY=key.public_key.compressed.hex())
    assert (code, "the public key is 0x04" in texts(findings, "ok")) == (0, True)


def test_a_missing_store_is_a_warning(environment, gorush):
    _, findings = examine(environment, WAKUPUSH_WAKU__URL=gorush)
    assert "will not heal" in texts(findings, "warning")


def test_each_store_is_looked_at(environment, node):
    _, findings = examine(environment, WAKUPUSH_RECONCILE__STORES=f'["{NOWHERE}", "{node}"]')
    assert "127.0.0.1:1 has no Store that answers" in texts(findings, "warning")
    assert f"{node.removeprefix('http://')} can be walked" in texts(findings, "ok")


def test_a_missing_migration(environment, empty_dsn):
    code, findings = examine(environment, WAKUPUSH_POSTGRES__DSN=empty_dsn)
    assert code == 1
    assert "run `wakupush migrate --pre`" in texts(findings, "fault")


@pytest.fixture
def members(connection):
    """Make a login for each of some roles; yield the connection of the owner."""
    names = []

    def make(name, role, options=""):
        connection.execute(f"CREATE ROLE {name} LOGIN {options} IN ROLE {role}")
        names.append(name)

    yield make
    for name in names:
        connection.execute(f"DROP OWNED BY {name}")
        connection.execute(f"DROP ROLE {name}")


def as_user(dsn, name):
    return {"WAKUPUSH_POSTGRES__DSN": make_conninfo(dsn, user=name)}


def test_processes_as_owner_are_a_warning(environment):
    code, findings = examine(environment)
    assert code == 0
    assert "postgres is in no role of wakupush_registration, " in texts(findings, "warning")


def test_a_login_with_the_rights_of_its_role_is_fine(environment, dsn, members):
    members("people", "wakupush_operator")
    code, findings = examine(environment, **as_user(dsn, "people"))
    assert code == 0
    assert "people, of wakupush_operator, has the rights that it needs, and no more" in texts(findings, "ok")
    assert "rights" not in texts(findings, "warning")


def test_a_login_with_needless_rights_is_a_warning(environment, dsn, members, connection):
    members("people", "wakupush_operator")
    members("hook", "wakupush_feedback")
    members("super", "wakupush_exporter", "SUPERUSER")
    connection.execute("GRANT SELECT (sealed_device) ON registrations TO hook")
    code, findings = examine(environment, **as_user(dsn, "people"))
    assert code == 0
    warnings = texts(findings, "warning")
    assert (
        "hook, of wakupush_feedback, has more rights than it needs: SELECT on registrations (sealed_device)" in warnings
    )
    assert "super, of wakupush_exporter, is a superuser or owns the tables" in warnings


def test_a_login_that_lacks_a_right_is_a_fault(environment, dsn, members, connection):
    members("people", "wakupush_operator")
    members("pool", "wakupush_query")
    members("stranger", "wakupush_exporter", "NOINHERIT")
    connection.execute("REVOKE DELETE ON answers FROM wakupush_query")
    code, findings = examine(environment, **as_user(dsn, "people"))
    assert code == 1
    faults = texts(findings, "fault")
    assert "pool, of wakupush_query, lacks DELETE on answers: run `wakupush migrate`" in faults
    lacks = "SELECT on deliveries (app, next_attempt_at, platform, state)"
    assert f"stranger, of wakupush_exporter, lacks {lacks}" in faults


def test_who_may_not_look_is_told_as_whom_to_connect(environment, dsn, members):
    members("hook", "wakupush_feedback")
    code, findings = examine(environment, **as_user(dsn, "hook"))
    assert (code, "connect as wakupush_operator or as the owner" in texts(findings, "fault")) == (1, True)


class Misdated(BaseHTTPRequestHandler):
    """A Waku node, the development one, behind a proxy whose clock is broken."""

    def do_GET(self):
        answer = httpx2.get(self.server.node + self.path, trust_env=False)
        self.send_response(answer.status_code)
        self.send_header("Content-Type", answer.headers["Content-Type"])
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def date_time_string(self, timestamp=None):  # noqa: ARG002 - of the base class
        return "yesterday"

    def log_message(self, *args):
        pass


def test_a_date_that_is_none(environment, node):
    with running(ThreadingHTTPServer(("127.0.0.1", 0), Misdated)) as server:
        server.node = node
        code, findings = examine(environment, WAKUPUSH_WAKU__URL=f"http://127.0.0.1:{server.server_port}")
    assert code == 0
    assert "a date that is none" in texts(findings, "warning")
    assert "schema is up to date" in texts(findings, "ok")  # the others are looked at all the same


class Configured(BaseHTTPRequestHandler):
    """A gorush that is healthy and shows a configuration."""

    def do_GET(self):
        answer = self.server.config.encode() if self.path == "/api/config" else b""
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


def test_a_gorush_that_calls_no_webhook(environment):
    recording = Path(__file__).parents[2] / "recordings" / "gorush" / "config.json"
    config = json.loads(recording.read_text())["response"]["body"]
    with running(ThreadingHTTPServer(("127.0.0.1", 0), Configured)) as gorush:
        url = f"http://127.0.0.1:{gorush.server_port}"
        gorush.config = config
        code, findings = examine(environment, WAKUPUSH_GORUSH__URL=url)
        assert code == 1  # as recorded, without sync mode
        assert "core.sync must be true" in texts(findings, "fault")
        assert "set core.feedback_hook_url" in texts(findings, "warning")
        gorush.config = config.replace("sync: false", "sync: true").replace(
            'feedback_hook_url: ""', "feedback_hook_url: http://127.0.0.1:9102/feedback"
        )
        code, findings = examine(environment, WAKUPUSH_GORUSH__URL=url)
        assert code == 0
        assert "feedback_hook_url" not in texts(findings, "warning")


def test_a_redis_that_evicts(environment, redis_server):
    with Redis.from_url(redis_server.url) as redis:
        redis.config_set("maxmemory", "100mb")
        redis.config_set("maxmemory-policy", "allkeys-lru")
        try:
            code, findings = examine(environment)
        finally:
            redis.config_set("maxmemory-policy", "noeviction")
            redis.config_set("maxmemory", "0")
    assert code == 1
    assert "set noeviction" in texts(findings, "fault")


@pytest.fixture
def managed(redis_server):
    """URL of the Redis as a user who may not ask for its configuration, as providers have it."""
    with Redis.from_url(redis_server.url) as redis:
        redis.acl_setuser("managed", enabled=True, passwords=["+a-password"], keys=["*"], commands=["+@all", "-config"])
        yield redis_server.url.replace("redis://", "redis://managed:a-password@")
        redis.acl_deluser("managed")


def test_a_redis_that_does_not_show_its_configuration(environment, managed):
    code, findings = examine(environment, WAKUPUSH_REDIS__URL=managed)
    assert code == 0
    assert "see that maxmemory-policy is noeviction" in texts(findings, "warning")


def test_empty_answer_of_redis(environment, monkeypatch):
    monkeypatch.setattr(Redis, "config_get", lambda _, __: {})
    code, findings = examine(environment)
    assert code == 0
    assert "see that maxmemory-policy is noeviction" in texts(findings, "warning")


def test_doctor_checks_named_autoscalers(environment, cluster):
    options = ("--autoscaler", "wakupush-query", "--autoscaler", "wakupush-dispatch")
    cluster.answers = {"wakupush-query": [READY], "wakupush-dispatch": [READY]}
    code, findings = examine(environment, *options)
    assert code == 0
    assert "autoscaler wakupush-dispatch it scales: 2 replicas, 3 wanted" in texts(findings, "ok")
    # What others say is no markup.
    cluster.answers["wakupush-query"] = [autoscaler(ABLE, ("ScalingActive", "False", "FailedGetMetric", "[/no] :x:"))]
    code, findings = examine(environment, *options)
    assert code == 1
    assert "autoscaler wakupush-query it does not scale" in texts(findings, "fault")
    assert "ScalingActive is False (FailedGetMetric: [/no] :x:)" in texts(findings, "fault")
    cluster.requested_paths.clear()
    code, findings = examine(environment)
    assert (code, cluster.requested_paths) == (0, [])
    assert "autoscaler" not in str(findings)


def test_doctor_looks_at_a_server_only_if_it_runs(environment, announce, redis_server):
    code, findings = examine(environment)
    assert (code, "no process ran within the last hour" in texts(findings, "warning")) == (0, True)
    announce(*set(NEEDED) - {"worker dispatch"})
    code, findings = examine(environment)
    assert (code, "no `wakupush worker dispatch` runs" in texts(findings, "fault")) == (1, True)
    announce("worker dispatch")
    with Redis.from_url(redis_server.url) as redis:
        watched.mark_complete(redis, watched.begin_filling(redis))
    code, findings = examine(environment)
    assert (code, "its processes run" in texts(findings, "ok")) == (0, True)


def test_doctor_warns_of_a_redis_that_is_nearly_full(environment, redis_server):
    with Redis.from_url(redis_server.url) as redis:
        used = redis.info("memory")["used_memory"]
        redis.config_set("maxmemory", int(used / 0.9))
        try:
            _, findings = examine(environment)
        finally:
            redis.config_set("maxmemory", 0)
    assert "% full" in texts(findings, "warning")


def test_doctor_sums_up(environment):
    result = CliRunner().invoke(app, ["doctor"], env=environment)
    assert re.search(r"\n\d+ ok, \d+ warnings, 0 faults\n$", result.stdout)


def test_doctor_prints_json(environment):
    result = CliRunner().invoke(app, ["doctor", "--json"], env=environment | {"WAKUPUSH_GORUSH__URL": NOWHERE})
    findings = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert {finding["level"] for finding in findings} == {"ok", "warning", "fault"}
    assert any("no gorush answers" in finding["text"] for finding in findings if finding["level"] == "fault")
