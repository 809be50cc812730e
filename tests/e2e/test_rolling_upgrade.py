"""A rolling upgrade of everything under load, from the last release: nothing is lost, and nothing is doubled.

Clients send 20 messages a second on a node of their own, while the schema is migrated, every process is replaced, a
node of the server is killed and comes back, Redis fails over, Postgres is killed and comes back, and dispatch is scaled
up and down. What came of each message is judged by the checker of the chaos runs.
"""

import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx2
import pytest
from rich.console import Console

from chaos import figures
from chaos.case import Case
from chaos.checker import judge, last_registrations
from chaos.evidence import Window
from chaos.run import SETTINGS, open_directory
from chaos.traffic import Traffic
from deploy.release.past import NEWER_SETTINGS, checkout, last_release
from e2e.requests_load import clients_node, metric
from support.sentinels import Sentinels
from wakupush.devnet.processes import Process, WaitTimeoutError, answers_http, free_port, wait_until
from wakupush.devnet.stack import External, Stack
from wakupush.model.queues import QUEUES
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.postgres.migrations import runner
from wakupush.protocol.identity import Identity, _digest
from wakupush.runtime.urls import node_name

RATE = 20
#: Messages that are sent in a phase after what happens in it, at least: five seconds.
AFTER = 100
#: Seconds; ten times what a quiet machine takes.
PATIENCE = 300
#: gorush listens all the time: a post may take as long as by default, and who is throttled is not tried for minutes.
CALM = {
    "WAKUPUSH_DELIVERY__MAX_ATTEMPTS": "6",
    "WAKUPUSH_GORUSH__CONNECT_TIMEOUT": "5",
    "WAKUPUSH_GORUSH__TIMEOUT": "75",
    "WAKUPUSH_DELIVERY__LEASE": "120",
}
#: What old code is not given: its own modules come first in its folder.
NOT_OF_OLD_CODE = NEWER_SETTINGS | {"PYTHONPATH"}

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


class Service(ThreadingHTTPServer):
    """One address for whichever feedback process is ready, as Kubernetes has it: gorush calls once, and never again."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Forwarder)
        self.target = ""
        self.url = f"http://127.0.0.1:{self.server_port}/feedback"


class Forwarder(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = httpx2.post(self.server.target, content=body, headers=dict(self.headers), trust_env=False, timeout=10)
        self.send_response(answer.status_code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


class OldCode:
    """Processes of the last release, beside the parts of a stack."""

    def __init__(self, stack, folder):
        self.stack, self.folder = stack, folder
        self.environment = {name: value for name, value in stack.environment.items() if name not in NOT_OF_OLD_CODE}
        ports = [free_port() for _ in range(3)]
        self.ingest = self.process(
            "ingest",
            *("ingest", "live"),
            settings={"WAKUPUSH_HTTP_PORT": str(ports[0])},
            ready=partial(answers_http, f"http://127.0.0.1:{ports[0]}/readyz"),
        )
        self.reconcile = self.process(
            "reconcile",
            *("ingest", "reconcile"),
            settings={"WAKUPUSH_HTTP_PORT": str(ports[1])},
            ready=partial(answers_http, f"http://127.0.0.1:{ports[1]}/healthz"),
        )
        self.feedback = self.process(
            "feedback",
            "feedback",
            settings={"WAKUPUSH_FEEDBACK__HTTP_PORT": str(ports[2])},
            ready=partial(answers_http, f"http://127.0.0.1:{ports[2]}/readyz"),
        )
        self.feedback_url = f"http://127.0.0.1:{ports[2]}/feedback"
        self.workers = [self.process(f"worker {queue}", "worker", queue) for queue in QUEUES]
        for worker in self.workers:
            worker._ready = partial(worker.has_logged, " ready.")
        self.beat = self.process("beat", "beat")

    def process(self, name, *arguments, settings=None, ready=None):
        command = [str(self.folder / ".venv/bin/python"), "-m", "wakupush", *arguments]
        return Process(
            f"old {name}",
            command,
            log=self.stack.directory / f"old-{name.replace(' ', '-')}.log",
            env=self.environment | (settings or {}),
            cwd=self.folder,  # its modules come first
            ready=ready,
            grace=100.0,
        )

    @property
    def processes(self):
        """In the order in which they start."""
        return [self.feedback, *self.workers, self.beat, self.reconcile, self.ingest]

    def migrate(self):
        migration = self.process("migrate", "migrate")
        migration.start()
        assert migration.wait(timeout=60) == 0, migration.log_tail()

    def is_its_own(self):
        """Say whether what runs is the code of that release."""
        command = [self.folder / ".venv/bin/python", "-c", "import wakupush; print(wakupush.__file__)"]
        process = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=True
        )
        return process.stdout.strip() == str(self.folder / "wakupush/__init__.py")


class Upgrade:
    """A server under load, phase after phase."""

    def __init__(self, stack, redis, service, traffic):
        self.stack, self.redis, self.service, self.traffic = stack, redis, service, traffic
        self.phases = []
        #: Processes that have to run when a phase ends.
        self.run = []

    @contextmanager
    def phase(self, name):
        """Let something happen, and go on until the clients have sent some more."""
        print(f"{name} …", flush=True)
        began = time.time()
        yield
        self.go_on()
        self.phases.append(Window(name=name, began=began, ended=time.time()))
        assert [(name, each.name) for each in self.run if not each.running] == []

    def go_on(self, count=AFTER):
        enough = len(self.traffic.messages()) + count
        wait_until(
            lambda: len(self.traffic.messages()) >= enough, timeout=PATIENCE, interval=0.2, what="clients send more"
        )

    def start(self, *processes):
        for each in processes:
            each.start()
            self.run.append(each)

    def stop(self, *processes):
        for each in processes:
            self.run.remove(each)
            each.stop()

    def applied(self):
        with self.stack.connect() as connection:
            return {name for (name,) in connection.execute("SELECT name FROM schema_migrations")}

    def restart_node(self):
        node, name = self.stack.node, node_name(self.stack.node_url)
        node.kill()
        fault = partial(metric, self.stack.ingest_url, "wakupush_node_fault", node=name)
        wait_until(lambda: fault() > 0, timeout=PATIENCE, what="the node is missed")
        self.go_on()
        node.start()
        wait_until(lambda: fault() == 0, timeout=PATIENCE, what="the node is used again")

    def fail_over(self):
        """Kill the primary of Redis; return how many seconds there was none."""
        old = self.redis.primary()
        old.kill()
        seconds = self.redis.wait_for_another(old)
        wait_until(lambda: answers_http(f"{self.stack.ingest_url}/readyz"), timeout=PATIENCE, what="ingest is ready")
        old.start()
        return seconds

    def evidence(self):
        """Wait until all is quiet, ask for a push to every device, and return the evidence."""
        with suppress(WaitTimeoutError):  # the checker says what is left
            self.traffic.wait_until_quiet(PATIENCE, "everything is done")
        self.traffic.call_the_roll()
        with suppress(WaitTimeoutError):
            self.traffic.wait_until_quiet(PATIENCE, "the roll call is over")
        evidence = self.traffic.evidence(faults=tuple(self.phases), lease=float(CALM["WAKUPUSH_DELIVERY__LEASE"]))
        names = dict(self._names_of_the_base(evidence.pseudonyms))
        events = (
            replace(event, installation=names.get(event.installation, event.installation)) for event in evidence.events
        )
        return replace(evidence, events=tuple(events))

    def _names_of_the_base(self, pseudonyms):
        """Yield the pseudonym of each device in events of the base, without periods, and in those of this release."""
        identity = Identity.of(self.stack.key)
        for device, name in pseudonyms.items():
            installation = identity.installation(bytes.fromhex(device.key_hash), device.installation_id)
            parts = installation.key_hash, installation.installation_hash
            yield _digest(identity._derive("pseudonym"), *parts).hex(), name


@pytest.fixture(scope="module")
def release():
    revision = last_release()
    try:
        return revision, checkout(revision)
    except subprocess.CalledProcessError:
        pytest.skip(f"{revision} is not in this clone, or cannot be set up: fetch its history")


@pytest.fixture
def redis(tmp_path):
    with Sentinels(tmp_path) as running:
        yield running


@pytest.fixture
def service():
    with Service() as running:
        thread = Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def upgrade(redis, service):
    """The parts, and clients whose load has not begun; of the server nothing runs."""
    port = free_port()
    with open_directory() as directory, ExitStack() as running:
        stack = Stack(
            directory,
            fsync=False,
            nodes=2,
            external=External(redis_url=redis.url),
            settings=SETTINGS | CALM | redis.settings,
            node_options=(f"--peer=http://127.0.0.1:{port}",),
            gorush_options=(f"--feedback-url={service.url}",),
        )
        running.callback(stack.stop)
        stack.start_parts()
        node_url = running.enter_context(clients_node(stack, directory / "node.log", port))
        traffic = Traffic(stack, seed="rolling upgrade", users=60, processes=1, node_url=node_url)
        upgrade = Upgrade(stack, redis, service, traffic)
        running.callback(lambda: [each.stop() for each in reversed(upgrade.run)])
        yield upgrade
        # Each process has its own role: none may lack a right.
        log = stack.postgres.log.read_text(errors="replace")
        assert [line for line in log.splitlines() if "permission denied" in line] == []


def without_topic(evidence):
    """Yield what the checker says of Firebase devices whose topic the last release did not store."""
    for device, message in last_registrations(evidence.sent).items():
        content = PushNotificationRegistration.FromString(bytes.fromhex(message.content))
        if content.token_type == PushNotificationRegistration.FIREBASE_TOKEN:
            yield f"{device.installation_id}: version {content.version} differs in apn_topic"


def test_everything_is_replaced_under_load(upgrade, release):
    revision, folder = release
    stack, traffic, phase = upgrade.stack, upgrade.traffic, upgrade.phase
    old = OldCode(stack, folder)
    assert old.is_its_own()
    old.migrate()
    upgrade.start(*old.processes)
    upgrade.service.target = old.feedback_url
    traffic.register(PATIENCE)
    [load] = traffic.load(RATE)
    upgrade.start(load)
    further = [stack.worker("dispatch") for _ in range(2)]

    with phase(f"{revision} alone"):
        upgrade.go_on()
    with phase("migrate --pre"):
        stack.migrate("--pre")
        # What this release takes away waits until nothing needs it.
        waits = {each.name for each in runner.migrations() if each.is_post and each.number >= runner.RELEASE_BEGINS}
        assert {each.name for each in runner.migrations()} - upgrade.applied() <= waits
    with phase("new code beside it"):
        upgrade.start(stack.feedback, *stack.workers.values(), stack.beat, stack.reconcile, stack.ingest)
        upgrade.service.target = stack.feedback_url
    with phase("dispatch 1 → 3"):
        upgrade.start(*further)
    with phase("old code ends"):
        upgrade.stop(*reversed(old.processes))
    with phase("migrate"):
        stack.migrate()
        assert {each.name for each in runner.migrations()} <= upgrade.applied()
    with phase("a node is killed, comes back"):
        upgrade.restart_node()
    with phase("Redis fails over"):
        seconds = upgrade.fail_over()
    with phase("Postgres is killed, comes back"):
        stack.postgres.kill()
        stack.postgres.start()
    with phase("dispatch 3 → 1"):
        upgrade.stop(*further)
    with phase("new code alone"):
        upgrade.go_on()

    upgrade.stop(load)
    evidence = upgrade.evidence()
    print(f"from {revision}; another primary of Redis after {seconds:.1f} s; reconcile enqueued {evidence.healed}")
    pushed = sum(push.outcome == "delivered" for push in evidence.pushes)
    again = dict(figures.doubled(Case(evidence)))
    print(f"{pushed} notifications pushed; of them again after an unknown outcome: {again}")
    Console(width=120).print(figures.by_phase(evidence))
    print("the longest waited:", ", ".join(figures.slowest(evidence)))
    violations = [str(violation) for violation in judge(evidence)]
    assert [text for text in violations if not text.endswith(tuple(without_topic(evidence)))] == []
