"""Settings, the command line's errors, logs."""

import json
import logging
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from support.logs import logging_as_before
from wakupush.cli import app, cli
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.redis.celery_app import celery_app
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.logging import configure
from wakupush.runtime.settings import Settings, SettingsError, load_settings


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in os.environ:
        if name.startswith("WAKUPUSH_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _logging():
    with logging_as_before():
        yield


def test_nested_settings(monkeypatch):
    monkeypatch.setenv("WAKUPUSH_WAKU__SHARDS", '["/waku/2/rs/16/1"]')
    monkeypatch.setenv("WAKUPUSH_DELIVERY__MAX_ATTEMPTS", "3")
    settings = load_settings()
    assert settings.waku.shards == ("/waku/2/rs/16/1",)
    assert settings.delivery.max_attempts == 3


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("WAKUPUSH_GORUSH_URL", "http://x", "unknown settings: WAKUPUSH_GORUSH_URL"),
        ("WAKUPUSH_GORUSH__ADDRESS", "http://x", "unknown settings: WAKUPUSH_GORUSH__ADDRESS"),
        (
            "WAKUPUSH_GORUSH__DIALECT",
            "secret-value",
            "WAKUPUSH_GORUSH__DIALECT: a profile is expected: spec, status, status-2024, both",
        ),
        (
            "WAKUPUSH_GORUSH__BATCH_SIZE",
            "101",
            "WAKUPUSH_GORUSH__BATCH_SIZE: Input should be less than or equal to 100",
        ),
        (
            "WAKUPUSH_RETENTION__REGISTRATIONS",
            "7775999",
            "WAKUPUSH_RETENTION__REGISTRATIONS: Input should be greater than or equal to 7776000",
        ),
        *(
            (name, port, f"{name}: Input should be ")
            for name in ("WAKUPUSH_HTTP_PORT", "WAKUPUSH_FEEDBACK__HTTP_PORT")
            for port in ("65536", "-2")
        ),
        ("WAKUPUSH_GORUSH", '{"url": "http://x"}', "unknown settings: WAKUPUSH_GORUSH"),
        ("WAKUPUSH_FEEDBACK_HTTP_PORT", "9", "(did you mean WAKUPUSH_FEEDBACK__HTTP_PORT?)"),
        ("WAKUPUSH_GORUSH_SERVICE_HOST", "10.0.0.1", "unknown settings: WAKUPUSH_GORUSH_SERVICE_HOST"),
        *(
            (name, value, f"{name}: seconds are expected, or a time such as 30s, 15m, 2h or 30d")
            for name in ("WAKUPUSH_WAKU__TIMEOUT", "WAKUPUSH_INGEST__CLAIM_TTL", "WAKUPUSH_RETENTION__REGISTRATIONS")
            for value in ("secret-value", "5 s", "1.5m", "", "-3s")
        ),
        ("WAKUPUSH_WAKU__TIMEOUT", "0s", "WAKUPUSH_WAKU__TIMEOUT: Input should be greater than 0"),
        *(
            (name, value, f"{name}: Input should be less than or equal to 864000000")
            for name in ("WAKUPUSH_WAKU__TIMEOUT", "WAKUPUSH_RETENTION__REGISTRATIONS")
            for value in ("inf", "1e300")
        ),
        ("WAKUPUSH_INGEST__CLAIM_TTL", "864000001", "WAKUPUSH_INGEST__CLAIM_TTL: Input should be less than or equal"),
        (
            "WAKUPUSH_INGEST__POLL_INTERVAL",
            "5s",
            "WAKUPUSH_INGEST__POLL_INTERVAL: Input should be less than or equal to 2",
        ),
        ("wakupush_gorush_url", "http://x", "unknown settings: wakupush_gorush_url"),
        ("WAKUPUSH_WAKU__SHARDS", "secret-value", "WAKUPUSH_WAKU__SHARDS: a list in JSON is expected"),
        ("WAKUPUSH_WAKU__SHARDS", "[]", "WAKUPUSH_WAKU__SHARDS: Tuple should have at least 1 item"),
        ("WAKUPUSH_RECONCILE__STORES", '"secret-value"', "WAKUPUSH_RECONCILE__STORES: Input should be a valid tuple"),
        ("WAKUPUSH_DELIVERY__LEASE", "1", "WAKUPUSH_DELIVERY__LEASE must be at least 105.0 s"),
        ("WAKUPUSH_GORUSH__TIMEOUT", "8e8", "or pushes double: WAKUPUSH_GORUSH__TIMEOUT, WAKUPUSH_GORUSH__CONNECT"),
        ("WAKUPUSH_RECONCILE__WINDOW", "8e8", "handled again: WAKUPUSH_RECONCILE__WINDOW and"),
        *(
            (
                "WAKUPUSH_WAKU__SHARDS",
                json.dumps([shard]),
                "WAKUPUSH_WAKU__SHARDS: shards are expected such as",
            )
            for shard in (
                "secret-value",
                "",
                "/waku/2/rs/16",
                "/waku/2/rs/16/32/",
                "/waku/2/rs/16/x\n",
                "waku/2/rs/1/1",
            )
        ),
        *(
            (name, url, f"{name}: a URL is expected that begins with http:// or https://")
            for name in ("WAKUPUSH_WAKU__URL", "WAKUPUSH_GORUSH__URL")
            for url in ("localhost:8645", "http://", "http://x:secret-value", "ftp://x", "")
        ),
        *(
            (f"WAKUPUSH_{part}__URL", value, f"WAKUPUSH_{part}__URL: {text}")
            for part in ("WAKU", "GORUSH")
            for value, text in (
                ("[secret-value", "a list in JSON is expected"),
                ("[]", "Tuple should have at least 1 item"),
                ('["http://a", "secret-value"]', "a URL is expected that"),
            )
        ),
        ("WAKUPUSH_WAKU__URL", '["http://a", "http://a:80/"]', "WAKUPUSH_WAKU__URL: a node is named twice"),
        ("WAKUPUSH_RECONCILE__STORES", '["secret-value"]', "WAKUPUSH_RECONCILE__STORES: a URL is expected that"),
        ("WAKUPUSH_POSTGRES_DSN", "secret-value", "WAKUPUSH_POSTGRES_DSN (did you mean WAKUPUSH_POSTGRES__DSN?)"),
        ("WAKUPUSH_SPARK", "secret-value", "unknown settings: WAKUPUSH_SPARK"),
        *(
            (name, "s3a://secret-value/lake", f"{name}: a folder is expected; only the lake and")
            for name in (f"WAKUPUSH_PIPELINE__{folder}" for folder in ("KEYS", "ARCHIVE"))
        ),
        *(
            (name, value, f"{name}: a folder or s3://BUCKET/PATH")
            for name in ("WAKUPUSH_PIPELINE__WAREHOUSE", "WAKUPUSH_PIPELINE__REPORTS")
            for value in ("s3a://secret-value/lake", "s3://", "s3:///secret-value", "")
        ),
        *(
            ("WAKUPUSH_PIPELINE__CATALOG", value, "WAKUPUSH_PIPELINE__CATALOG")
            for value in ("secret-value", '["secret-value"]')
        ),
    ],
)
def test_errors_name_the_variable_and_never_its_value(monkeypatch, name, value, text):
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert text in str(error.value)
    assert "secret-value" not in str(error.value)
    assert "WAKUPUSH_:" not in str(error.value)


def test_static_and_named_shards_are_taken(monkeypatch):
    shards = ("/waku/2/rs/16/32", "/waku/2/rs/1/0", "/waku/2/default-waku/proto")
    monkeypatch.setenv("WAKUPUSH_WAKU__SHARDS", json.dumps(shards))
    assert load_settings().waku.shards == shards


def test_no_shard_may_begin_as_another_is_called(monkeypatch):
    """A copy with a changed payload would have the hash of a message on the other shard, and take its place."""
    long, short = "/waku/2/rs/16/32", "/waku/2/rs/16/3"
    message = WakuMessage(payload=b"payload", content_topic="/t", timestamp=1)
    copy = replace(message, payload=b"2payload")
    assert message_hash(short, copy) == message_hash(long, message)
    monkeypatch.setenv("WAKUPUSH_WAKU__SHARDS", json.dumps([long, short]))
    with pytest.raises(SettingsError, match="no shard may be a prefix of another"):
        load_settings()


@pytest.mark.parametrize("file", ["docker/compose.yaml", "deploy/helm/wakupush/templates/node.yaml"])
def test_nodes_have_the_cache_that_ingest_assumes(file):
    options = re.findall(r"--rest-relay-cache-capacity=.*?(\d+)", (Path(__file__).parents[3] / file).read_text())
    assert [int(each) for each in options] == [Settings().waku.cache_capacity]


def test_secrets_are_not_shown(monkeypatch):
    for name in ("WAKUPUSH_IDENTITY_KEY", "WAKUPUSH_POSTGRES__DSN", "WAKUPUSH_REDIS__URL"):
        monkeypatch.setenv(name, "planted-secret")
    assert "planted" not in repr(load_settings())


# The command line


def run(*arguments, **environment):
    return CliRunner().invoke(app, arguments, env=environment)


def test_keygen_writes_a_new_private_file(tmp_path):
    file = tmp_path / "identity.key"
    result = run("keygen", str(file))
    assert result.exit_code == 0
    assert result.stdout.startswith("0x04")
    assert file.stat().st_mode & 0o777 == 0o600
    key = file.read_text()
    assert key.strip() not in result.output
    again = run("keygen", str(file))
    assert (again.exit_code, file.read_text()) == (2, key)
    assert "exists already" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (["worker", "registration"], {}, "no private key: set WAKUPUSH_IDENTITY_KEY_FILE"),
        (["worker", "query"], {"WAKUPUSH_IDENTITY_KEY": "planted"}, "WAKUPUSH_IDENTITY_KEY holds no private key"),
        (["worker", "query"], {"WAKUPUSH_IDENTITY_KEY_FILE": "/nowhere"}, "cannot be read"),
        (
            ["worker", "query"],
            {"WAKUPUSH_IDENTITY_KEY": "01" * 32, "WAKUPUSH_PUBLIC_KEY": str(PrivateKey(b"\2" * 32).public_key)},
            "WAKUPUSH_PUBLIC_KEY is not that of the private key",
        ),
        (
            ["worker", "query"],
            {"WAKUPUSH_IDENTITY_KEY": "01" * 32, "WAKUPUSH_PUBLIC_KEY": "0x04" + "ab" * 64},
            "WAKUPUSH_PUBLIC_KEY: the public key is no point",
        ),
        (["ingest", "live"], {}, "WAKUPUSH_PUBLIC_KEY is missing"),
        (["ingest", "live"], {"WAKUPUSH_PUBLIC_KEY": "0x04"}, "WAKUPUSH_PUBLIC_KEY: a public key has"),
        (["beat"], {"WAKUPUSH_TYPO": "1"}, "unknown settings: WAKUPUSH_TYPO"),
        (["migrate"], {"WAKUPUSH_POSTGRES__DSN": "postgresql://127.0.0.1:1/x"}, "connection"),
    ],
)
def test_what_has_to_be_mended_first_exits_with_2(arguments, environment, text):
    result = run(*arguments, **environment)
    assert result.exit_code == 2
    assert text in result.stderr
    assert "planted" not in result.stderr


# Logs


def log_lines(capsys):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_log_lines_are_json_with_their_context(capsys):
    configure(Settings(), process="test")
    structlog.get_logger("x").info("happened", count=1)
    logging.getLogger("library").warning("text %s", "value")
    ours, theirs = log_lines(capsys)
    assert (ours["event"], ours["count"], ours["process"], ours["level"]) == ("happened", 1, "test", "info")
    assert (theirs["event"], theirs["process"]) == ("text value", "test")


def test_the_text_of_an_exception_is_never_logged(capsys):
    configure(Settings(), process="test")
    try:
        int("planted-secret")
    except ValueError as error:
        structlog.get_logger("x").error("failed", exc_info=error)
        structlog.get_logger("x").exception("failed")
        logging.getLogger("library").exception("failed")
    lines = log_lines(capsys)
    assert len(lines) == 3
    for line in lines:
        assert line["error"] == "ValueError"
        assert line["at"][-1].startswith(f"{__name__}:test_the_text")
        assert "planted" not in json.dumps(line)


@pytest.mark.parametrize(
    "secret", ["short", "a secret with spaces", "with:a:colon:0123456789", "0123456789abcdef\n", ""]
)
def test_a_secret_that_gorush_cannot_send_is_refused(monkeypatch, secret):
    monkeypatch.setenv("WAKUPUSH_GORUSH__FEEDBACK_SECRET", secret)
    with pytest.raises(SettingsError, match="WAKUPUSH_GORUSH__FEEDBACK_SECRET: 16 or more visible") as error:
        load_settings()
    assert not secret or secret not in str(error.value)


def test_feedback_does_not_start_without_a_secret():
    result = CliRunner().invoke(app, ["feedback"])
    assert result.exit_code == 2
    assert 'core.feedback_header: ["X-Wakupush-Secret: …"]' in result.stderr


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["feedback"], "WAKUPUSH_FEEDBACK__HTTP_PORT"),
        (["ingest", "live"], "WAKUPUSH_HTTP_PORT"),
        (["ingest", "reconcile"], "WAKUPUSH_HTTP_PORT"),
        (["beat"], "WAKUPUSH_HTTP_PORT"),
        (["worker", "query"], "WAKUPUSH_HTTP_PORT"),
        (["exporter"], "WAKUPUSH_HTTP_PORT"),
    ],
)
def test_a_process_ends_without_the_port_of_its_probes(arguments, name):
    """As a process of its own: none of its threads may keep it."""
    key = PrivateKey(b"\1" * 32)
    with socket.create_server(("", 0)) as listener:
        environment = {
            "WAKUPUSH_GORUSH__FEEDBACK_SECRET": "0123456789abcdef",
            "WAKUPUSH_IDENTITY_KEY": key.secret.hex(),
            "WAKUPUSH_PUBLIC_KEY": str(key.public_key),
            "WAKUPUSH_WAKU__URL": "http://127.0.0.1:1",
            "WAKUPUSH_REDIS__URL": "redis://127.0.0.1:1/0",
            "WAKUPUSH_POSTGRES__DSN": "postgresql://127.0.0.1:1/x",
            name: str(listener.getsockname()[1]),
        }
        command = [sys.executable, "-m", "wakupush", *arguments]
        result = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
        )
    assert (result.returncode, result.stdout) == (2, "")
    assert f"wakupush: {name}: port {environment[name]} cannot be listened on: Address already in use" in result.stderr
    assert "Traceback" not in result.stderr


def test_ctrl_c_before_a_command_shows_no_traceback(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", interrupted)
    monkeypatch.setattr("atexit.register", lambda _function: None)  # the end of this process is pytest's
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130


def test_a_url_is_one_or_a_list(monkeypatch):
    monkeypatch.setenv("WAKUPUSH_WAKU__URL", '["http://a:8645", "http://b:8645/"]')
    monkeypatch.setenv("WAKUPUSH_GORUSH__URL", "http://a:8088")
    settings = load_settings()
    assert settings.waku.nodes == {"a:8645": "http://a:8645", "b:8645": "http://b:8645/"}
    assert settings.gorush.instances == {"a:8088": "http://a:8088"}


@pytest.mark.parametrize(("value", "seconds"), [("90s", 90), ("15m", 900), ("2h", 7200), ("30d", 2_592_000), ("7", 7)])
def test_times_may_have_a_unit(monkeypatch, value, seconds):
    monkeypatch.setenv("WAKUPUSH_WAKU__TIMEOUT", value)
    monkeypatch.setenv("WAKUPUSH_INGEST__CLAIM_TTL", value)
    settings = load_settings()
    assert (settings.waku.timeout, settings.ingest.claim_ttl) == (seconds, seconds)


def test_the_exporter_needs_a_port():
    result = run("exporter", WAKUPUSH_HTTP_PORT="-1")
    assert result.exit_code == 2
    assert "WAKUPUSH_HTTP_PORT: a port is expected" in result.stderr


# The file


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    monkeypatch.setenv("WAKUPUSH_CONFIG", str(path))
    return path


def test_a_file_has_the_same_settings(file):
    file.write_text("""
log_level = "DEBUG"
[waku]
url = ["http://a:8645", "http://b:8645"]
timeout = "15s"
cache_capacity = 50
[gorush]
url = "http://a:8088"
[pipeline.catalog]
"s3.endpoint" = "https://store"
""")
    settings = load_settings()
    assert settings.log_level == "DEBUG"
    assert (list(settings.waku.nodes), settings.waku.timeout) == (["a:8645", "b:8645"], 15)
    assert settings.waku.cache_capacity == 50
    assert list(settings.gorush.instances) == ["a:8088"]
    assert settings.pipeline.catalog.keys() == {"s3.endpoint"}


def test_a_variable_wins_over_the_file(file, monkeypatch):
    file.write_text('log_level = "DEBUG"\n[waku]\ntimeout = "no time"\ncache_capacity = 50\n')
    monkeypatch.setenv("wakupush_waku__timeout", "3")
    monkeypatch.setenv("WAKUPUSH_LOG_LEVEL", "ERROR")
    settings = load_settings()
    assert (settings.log_level, settings.waku.timeout, settings.waku.cache_capacity) == ("ERROR", 3, 50)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[waku]\ntime_out = 1", "unknown settings in {file}: waku.time_out (did you mean waku.timeout?)"),
        ("[wakku]\ntimeout = 1", "unknown settings in {file}: wakku"),
        ("config = 1", "unknown settings in {file}: config"),
        ("waku = 'secret-value'", "waku in {file}: a table is expected"),
        ("[waku]\ntimeout = 'secret-value'", "waku.timeout in {file}: seconds are expected, or a time such as 30s"),
        ("[waku]\ntimeout = true", "waku.timeout in {file}: seconds are expected"),
        ("[waku]\ncache_capacity = true", "waku.cache_capacity in {file}: Input should be a valid integer"),
        ("[waku]\ncache_capacity = [1]", "waku.cache_capacity in {file}: Input should be a valid integer"),
        ("[waku]\nshards = ['secret-value']", "waku.shards in {file}: shards are expected such as"),
        ("[waku]\nurl = ['http://a', 5]", "waku.url in {file}: Input should be a valid string"),
        ("http_port = 65536", "http_port in {file}: Input should be less than"),
        ("identity_key = 5", "identity_key in {file}: Input should be a valid string"),
        ("[log_level]\nx = 1", "log_level in {file}: Input should be 'DEBUG'"),
        ("[delivery]\nlease = 1", "WAKUPUSH_DELIVERY__LEASE must be at least"),
        ("x = secret-value", "WAKUPUSH_CONFIG: {file} is not TOML (at line 1, column 5)"),
        ("[secret-value]\n[secret-value]", "WAKUPUSH_CONFIG: {file} is not TOML (at line 2, column"),
    ],
)
def test_errors_name_the_key_and_the_file(file, text, error):
    file.write_text(text)
    with pytest.raises(SettingsError) as raised:
        load_settings()
    assert error.format(file=file) in str(raised.value)
    assert "secret-value" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(file, monkeypatch):
    with pytest.raises(SettingsError, match=f"WAKUPUSH_CONFIG: {file} cannot be read: No such file or directory"):
        load_settings()
    file.write_bytes(b"\xff")
    with pytest.raises(SettingsError, match=f"WAKUPUSH_CONFIG: {file} is not UTF-8"):
        load_settings()
    monkeypatch.setenv("WAKUPUSH_CONFIG", "")
    with pytest.raises(SettingsError, match="WAKUPUSH_CONFIG: the path of a file is expected"):
        load_settings()


def test_secrets_of_the_file_are_not_shown(file):
    file.write_text("""
identity_key = "planted"
[redis]
url = "redis://:planted@x/0"
sentinel_password = "planted"
[pipeline]
catalog = {key = "planted"}
""")
    assert "planted" not in repr(load_settings())


@pytest.mark.parametrize("address", ["sentinel", "redis://sentinel:26379", "user@sentinel:26379", "a:1;b:2", ":26379"])
def test_sentinels_are_addresses(monkeypatch, address):
    monkeypatch.setenv("WAKUPUSH_REDIS__SENTINELS", json.dumps([address]))
    with pytest.raises(SettingsError, match="such as sentinel-0:26379"):
        load_settings()


PEER = "/dns4/store-01.example.org/tcp/30303/p2p/16Uiu2HAmUVVrJo1KMw4QwUANYF7Ws4mfcRqf9xHaaGP87GbMuY2f"


@pytest.mark.parametrize(
    "address",
    [
        "store-01.example.org:30303",
        "http://store-01.example.org:30303",
        "/dns4/store-01.example.org/tcp/30303",
        PEER.replace("30303", "99999"),
        PEER.replace("30303", "0"),
        PEER.replace("/tcp/", "/udp/"),
        PEER[:-10],
        PEER.replace("16Uiu", "0OIlu"),
        f"{PEER} ",
    ],
)
def test_store_peers_are_multiaddresses(monkeypatch, address):
    monkeypatch.setenv("WAKUPUSH_RECONCILE__STORE_PEERS", json.dumps([address]))
    with pytest.raises(SettingsError, match="WAKUPUSH_RECONCILE__STORE_PEERS: multiaddresses are expected such as"):
        load_settings()


def test_store_peers_have_names(monkeypatch):
    other = PEER.replace("/dns4/store-01.example.org/tcp/30303", "/ip4/10.0.0.1/tcp/443/wss")
    monkeypatch.setenv("WAKUPUSH_RECONCILE__STORE_PEERS", json.dumps([PEER, other]))
    assert load_settings().reconcile.peers == {"store-01.example.org:30303": PEER, "10.0.0.1:443": other}
    monkeypatch.setenv("WAKUPUSH_RECONCILE__STORE_PEERS", json.dumps([PEER, PEER]))
    with pytest.raises(SettingsError, match="named twice"):
        load_settings()


def test_celery_and_clients_share_the_sentinels(monkeypatch):
    monkeypatch.setattr("wakupush.runtime.connections.redis.follow_primary", lambda *_: None)
    monkeypatch.setenv("WAKUPUSH_REDIS__URL", "rediss://user:p%40ss@MyMaster/3?ssl_ca_certs=/ca.pem")
    monkeypatch.setenv("WAKUPUSH_REDIS__SENTINELS", '["s-0:26379", "[::1]:26380", "s-2:26379"]')
    monkeypatch.setenv("WAKUPUSH_REDIS__SENTINEL_USER", "watch")
    monkeypatch.setenv("WAKUPUSH_REDIS__SENTINEL_PASSWORD", "hush-hush")
    settings = load_settings()
    client = open_redis(settings.redis)
    options = client.connection_pool.connection_kwargs
    assert (options["username"], options["password"], options["db"]) == ("user", "p@ss", 3)
    assert client.connection_pool.service_name == "MyMaster"
    assert client.connection_pool.connection_class.__name__ == "SentinelManagedSSLConnection"
    sentinels = client.connection_pool.sentinel_manager.sentinels
    options_of_sentinels = [each.connection_pool.connection_kwargs for each in sentinels]
    assert [(each["host"], each["port"]) for each in options_of_sentinels] == [
        ("s-0", 26379),
        ("::1", 26380),
        ("s-2", 26379),
    ]
    assert {(each["username"], each["password"]) for each in options_of_sentinels} == {("watch", "hush-hush")}
    conf = celery_app(settings).conf
    assert conf.broker_url == (
        "sentinel://user:p%40ss@s-0:26379/3;sentinel://user:p%40ss@[::1]:26380/3;sentinel://user:p%40ss@s-2:26379/3"
    )
    assert conf.broker_use_ssl == {"ssl_cert_reqs": "required", "ssl_ca_certs": "/ca.pem"}
    transport = conf.broker_transport_options
    assert (transport["master_name"], transport["min_other_sentinels"]) == ("MyMaster", 1)
    assert transport["sentinel_kwargs"]["ssl_ca_certs"] == "/ca.pem"
    assert "hush-hush" not in repr(settings)
