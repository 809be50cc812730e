"""`wakupush dev`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import psutil
import psycopg
import pytest
from redis import Redis

from e2e.dev import running
from e2e.stacks import wakupush
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import answers_http, wait_until
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode

SHARD = "/waku/2/rs/16/7"


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """It runs, with a key and settings of ours: the process, what it showed, and the key."""
    key = PrivateKey.generate()
    file = tmp_path_factory.mktemp("dev") / "identity.key"
    file.write_text(key.secret.hex())
    profiles = file.with_name("settings.toml")
    profiles.write_text("[profiles.mine]\ndata = ['chatId']\ntitle = 'Mine'\ntext = 'New'\nmutable_content = true")
    settings = {
        "WAKUPUSH_CONFIG": str(profiles),
        "WAKUPUSH_GORUSH__DIALECT": "mine",
        "WAKUPUSH_WAKU__SHARDS": json.dumps([SHARD]),
        "WAKUPUSH_LOG_LEVEL": "WARNING",
        "WAKUPUSH_GORUSH__FEEDBACK_SECRET": "sixteen-characters",
        "WAKUPUSH_IDENTITY_KEY": PrivateKey.generate().secret.hex(),
        "WAKUPUSH_WAKU__URL": "http://127.0.0.1:1",
        "WAKUPUSH_HTTP_PORT": "1",
    }
    with running("--identity-key", str(file), **settings) as (process, output):
        with psycopg.connect(output["Postgres"]) as connection:
            assert connection.execute("SELECT count(*) FROM deliveries").fetchone() == (0,)
        yield process, output, key


def test_environment_sets_all_but_key_and_addresses(started):
    _, output, key = started
    client = PrivateKey.generate()
    assert (output["public key"], output["shards"]) == (str(key.public_key), SHARD)
    content = messages.registration(client, key.public_key)
    item = messages.notification(client.public_key.key_hash, content)
    observer = Observer(output["Waku node"], output["gorush"])
    with WakuNode(output["Waku node"]) as node:
        for message in (
            messages.register(client, key.public_key, content),
            messages.request(client, key.public_key, [item]),
        ):
            node.publish(SHARD, message)
            replies = []
            wait_until(
                lambda replies=replies: (
                    replies.extend(
                        filter(None, (open_reply(arrival.message, (client,)) for arrival in observer.messages()))
                    )
                    or replies
                ),
                timeout=120,
                what="an answer",
            )
    [push] = observer.pushes()
    observer.close()
    assert push.notification["data"].keys() == {"chatId"}
    assert (push.notification["title"], push.notification["message"]) == ("Mine", "New")
    assert push.notification["mutable_content"] is True


def test_only_this_machine_reaches_its_ports(started):
    _, output, _ = started
    url = httpx2.URL(output["metrics"]["ingest live"])
    assert httpx2.get(url).status_code == 200
    with pytest.raises(httpx2.ConnectError):  # all of 127.0.0.0/8 is loopback: a server on all addresses would answer
        httpx2.get(url.copy_with(host="127.0.0.2"))


def test_every_process_has_metrics(started):
    _, output, _ = started
    assert output["metrics"].keys() >= {
        "ingest live",
        "ingest reconcile",
        "beat",
        "feedback",
        "exporter",
        "worker query",
    }
    for url in output["metrics"].values():
        assert "\nwakupush_" in httpx2.get(url).text, url


def in_its_shell(output, command):
    script = f"{output['shell']} && {command}"
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=False)


def test_its_shell_has_what_commands_need(started):
    _, output, key = started
    assert in_its_shell(output, "echo $SERVER $NODE").stdout == f"{key.public_key} {output['Waku node']}\n"
    doctor = in_its_shell(output, "wakupush doctor --json")
    assert doctor.returncode in {0, 1}, doctor.stderr
    assert json.loads(doctor.stdout.splitlines()[0])


def test_a_part_that_dies_starts_again(started):
    process, output, _ = started
    [gorush] = [child for child in psutil.Process(process.pid).children(recursive=True) if "gorush" in child.cmdline()]
    gorush.kill()
    assert "gorush ended with" in next(line for line in process.stdout if "ended with" in line)
    wait_until(lambda: answers_http(f"{output['gorush']}/healthz"), timeout=60, what="gorush is back")


def test_it_says_when_it_is_ready_and_ends_on_ctrl_c(started):
    process, output, key = started
    assert output["public key"] == str(key.public_key)
    assert httpx2.get(f"{output['Waku node']}/health").status_code == 200
    assert Redis.from_url(output["Redis"]).ping()
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    assert process.wait() == 0
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{output['Waku node']}/health")


@pytest.mark.long
def test_a_part_that_runs_already_is_used():
    with running() as (_, first):
        with running("--waku-url", first["Waku node"], "--gorush-url", first["gorush"]) as (process, second):
            assert (second["Waku node"], second["gorush"]) == (first["Waku node"], first["gorush"])
            assert second["public key"] != first["public key"]
        assert process.returncode == 0
        assert httpx2.get(f"{first['Waku node']}/health").status_code == 200


def test_failed_part_ends_dev_with_the_reason():
    result = wakupush(os.environ, "dev", "--postgres-dsn", "postgresql://127.0.0.1:1/nowhere")
    assert result.returncode == 1
    assert "wakupush migrate failed" in result.stdout
    assert "connection" in result.stdout


def test_wrong_setting_is_named_without_its_value():
    result = wakupush(os.environ | {"WAKUPUSH_GORUSH__FEEDBACK_SECRET": "planted:secret"}, "dev")
    assert result.returncode == 2
    assert "WAKUPUSH_GORUSH__FEEDBACK_SECRET" in result.stderr
    assert "planted" not in result.stdout + result.stderr
