"""A server lives through many days: ``make year``. Each step is a day: the clock jumps, messages come, jobs run."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from chaos import checker, collect
from chaos.clients import Post
from chaos.evidence import Answered, Evidence, Pushed
from chaos.load import publish_all
from chaos.plan import Sent
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import StartFailedError, WaitTimeoutError, wait_until
from wakupush.devnet.stack import Stack
from wakupush.protocol import topics
from wakupush.protocol.keys import PrivateKey
from year import clock
from year.figures import Day, judge, measure, table
from year.inhabitants import Inhabitants

DAYS = 400
EXPORT_DAYS = 14
#: Seconds until a day's messages have to be handled, answered and pushed, and an export be done.
PATIENCE = 90.0
EXPORT_SECONDS = 1200.0
#: Days for which a full year keeps events, ids and dead letters by default; a shorter run keeps them for an eighth.
RETENTION = {"EVENTS": 7, "ADMITTED_REQUESTS": 30, "DEAD_LETTERS": 7}
#: Of the table, in characters.
WIDTH = 100
SETTINGS = {
    "WAKUPUSH_DELIVERY__FIRST_WAIT": "0.5",
    "WAKUPUSH_DELIVERY__SLOW_FIRST_WAIT": "2",
    # A few devices always fail as if the whole platform did: probes have to get past them in time.
    "WAKUPUSH_BREAKER__PAUSE": "1",
    # As by default: what the ledger no longer has must not come back out of the Store.
    "WAKUPUSH_RECONCILE__WINDOW": str(clock.DAY),
}
#: What the messages of a day are judged by; a delivery that failed is gone, or expired, the day after.
CHECKS = (
    checker.check_handled,
    checker.check_answered,
    checker.check_told,
    checker.check_consistent,
    checker.check_pushed,
    checker.check_pushed_once,
)


def retention(days: int) -> dict[str, int]:
    """Return for how many days what is kept: it has to be full before the second quarter."""
    least = {"ADMITTED_REQUESTS": 7}
    return {name: max(least.get(name, 2), min(keep, days // 8)) for name, keep in RETENTION.items()}


@dataclass
class Messages:
    """What was sent on a day, and what came of it."""

    count: int = 0
    sent_messages: list[Sent] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)
    pushes: list[Pushed] = field(default_factory=list)
    keys: dict[str, list[PrivateKey]] = field(default_factory=lambda: defaultdict(list))


class Year:
    """The days of a server.

    Args:
        stack: the server, which runs.
        days: how many.
        has_export: whether events are exported.
        say: is told how far it is.
    """

    def __init__(self, stack: Stack, days: int, *, has_export: bool, say: Callable[[str], None]) -> None:
        self._stack, self._days, self._has_export, self._say = stack, days, has_export, say
        self._observer = Observer(stack.node_url, stack.gorush_url)
        self._repeat_days = retention(days)["ADMITTED_REQUESTS"] * 2 // 3
        self._inhabitants = Inhabitants(stack.key.public_key, self._repeat_days)
        #: The day on which a notification was asked for, and those that were delivered, by their delivery key.
        self._request_days: dict[str, int] = {}
        self._delivered: set[str] = set()

    def run(self) -> list[Day]:
        """Live through all days; what does not start again ends them."""
        days = []
        for number in range(1, self._days + 1):
            start_time = time.monotonic()
            try:
                if number > 1:
                    clock.move(self._stack, number - 1)
                day = self._day(number)
            except (StartFailedError, WaitTimeoutError) as error:
                return [*days, Day(number=number, values={}, violations=[f"the last one: {error}"])]
            days.append(day)
            for violation in day.violations:
                self._say(f"day {number}: {violation}")
            self._say(f"day {number}: {day.messages} messages, {time.monotonic() - start_time:.1f} s")
        return days

    def _day(self, number: int) -> Day:
        started = time.time()
        messages = Messages()
        if number == 1:
            self._send(messages, self._inhabitants.first_day())
            self._settle(messages, started)
        lost = self._inhabitants.lost()
        last = self._inhabitants.roll_call() if number == self._days else []
        self._send(messages, [*self._inhabitants.day(number), *last, lost])
        violations = self._settle(messages, started)
        dead = {item.delivery_key for message in lost.sent for item in message.items}
        if number > 1 and any(push.delivery_key in dead for push in messages.pushes):
            violations.append("a push was posted to a token that died on the first day")
        violations += self._repeated(messages, number)
        violations += self._jobs_and_export(number)
        values = measure(self._stack) | {"seconds of a job": self._seconds_of_jobs()}
        return Day(number=number, values=values, messages=messages.count, violations=violations)

    def _send(self, messages: Messages, posts: list[Post]) -> None:
        messages.count += len(posts)
        for message in (message for post in posts for message in post.sent):
            messages.sent_messages.append(message)
            key = PrivateKey(bytes.fromhex(message.client))
            messages.keys[topics.content_topic(topics.partitioned_topic(key.public_key))].append(key)
        plan = self._stack.directory / "plan.jsonl"
        plan.unlink(missing_ok=True)
        publish_all(self._stack.node_url, posts, plan)

    def _settle(self, messages: Messages, since: float) -> list[str]:
        """Wait until the server has done all that it promises; return what it has not done."""
        violations: list[str] = []

        def settled() -> bool:
            violations[:] = self._violations(messages, since)
            return not violations

        with suppress(WaitTimeoutError):
            wait_until(settled, timeout=PATIENCE, interval=0.3, what="all messages have had their effect")
        return violations

    def _violations(self, messages: Messages, since: float) -> list[str]:
        for arrival in self._observer.messages():
            keys = {key.secret: key for key in messages.keys.get(arrival.message.content_topic, ())}
            reply = open_reply(arrival.message, tuple(keys.values()))
            if reply is not None and (answer := collect.read_answer(self._stack, reply, arrival.arrived)):
                messages.answers.append(answer)
        messages.pushes += [
            Pushed(
                delivery_key=push.notification.get("notif_id", "").partition("-")[0],
                outcome=push.outcome,
                at=push.arrived,
            )
            for push in self._observer.pushes()
        ]
        delivery_keys = {item.delivery_key for message in messages.sent_messages for item in message.items}
        with self._stack.connect() as connection:
            evidence = Evidence(
                sent=tuple(messages.sent_messages),
                answers=tuple(messages.answers),
                pushes=tuple(push for push in messages.pushes if push.delivery_key in delivery_keys),
                events=collect.events(self._stack, connection, tuple(messages.sent_messages), since - 1),
                pseudonyms=collect.pseudonyms(self._stack, tuple(messages.sent_messages)),
                ledger=collect.handled(connection),
                quarantined=collect.quarantined(connection),
            )
        case = checker.Case(evidence)
        return [str(violation) for check in CHECKS for violation in check(case)]

    def _repeated(self, messages: Messages, number: int) -> list[str]:
        """Return what was delivered on another day already, or asked for by nobody."""
        today = {item.delivery_key for message in messages.sent_messages for item in message.items}
        delivered = {push.delivery_key for push in messages.pushes if push.outcome == "delivered"}
        violations = [f"{key[:16]} was delivered again" for key in delivered & self._delivered]
        violations += [
            f"{key[:16]} was pushed, nobody asked for it" for key in delivered - today - self._request_days.keys()
        ]
        self._request_days |= dict.fromkeys(today - self._request_days.keys(), number)
        self._delivered |= delivered
        for key in [key for key, day in self._request_days.items() if day < number - self._repeat_days]:
            del self._request_days[key]
            self._delivered.discard(key)
        return violations

    def _jobs_and_export(self, number: int) -> list[str]:
        try:
            wait_until(lambda: self._stack.beat.has_logged('"event": "pruned"'), timeout=PATIENCE, what="prune is done")
        except WaitTimeoutError as error:
            return [str(error)]
        failed = [f"beat: job_failed in its log on day {number}"] if self._stack.beat.has_logged('"job_failed"') else []
        if self._has_export and (number % EXPORT_DAYS == 0 or number == self._days):
            self._say(f"day {number}: export")
            self._stack.run("pipeline", "export", timeout=EXPORT_SECONDS)
        return failed

    def _seconds_of_jobs(self) -> dict[str, float]:
        """Stop beat, which then writes them down; it starts again after the jump."""
        file = Path(self._stack.settings["YEAR_JOBS"])
        file.unlink(missing_ok=True)
        self._stack.beat.stop()
        return json.loads(file.read_text()) if file.exists() else {}


def make_stack(directory: Path, days: int, fault: str) -> Stack:
    """Return a server whose processes have the clock of this one."""
    retention_settings = {
        f"WAKUPUSH_RETENTION__{name}": str(keep * clock.DAY) for name, keep in retention(days).items()
    }
    lake = {name: str(directory / f"lake-{name}") for name in ("warehouse", "keys", "reports")}
    return Stack(
        directory,
        fsync=False,
        settings={
            **clock.environment(),
            **SETTINGS,
            **retention_settings,
            **{f"WAKUPUSH_PIPELINE__{name.upper()}": folder for name, folder in lake.items()},
            "WAKUPUSH_PIPELINE__MEMORY": "1g",
            "YEAR_JOBS": str(directory / "jobs.json"),
            "YEAR_FAULT": fault,
        },
        beat_module="year.timed_beat",
        # A day is some seconds long.
        postgres_settings={"autovacuum_naptime": "5s"},
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="make year", description=__doc__)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--no-export", action="store_true", help="leave out the export, which needs Java")
    parser.add_argument("--fault", default="", help="a rule of prune that does nothing, for example partitions")
    parser.add_argument("--json", type=Path, help="write the figures of each day there")
    parser.add_argument("--keep", type=Path, help="work in this directory, and keep it")
    options = parser.parse_args()
    directory = clock.directory()
    if directory is None:
        directory = options.keep or Path(tempfile.mkdtemp(prefix="wakupush-year-"))
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
        clock.begin(directory.resolve())
    console = Console(highlight=False, soft_wrap=True)
    has_export = not options.no_export and shutil.which("java") is not None
    if not has_export:
        console.print("events are not exported: " + ("as asked" if options.no_export else "there is no Java"))
    console.print(f"days for which the server keeps what: {retention(options.days)}", markup=False)
    try:
        with make_stack(directory / "stack", options.days, options.fault) as stack:
            days = Year(
                stack,
                options.days,
                has_export=has_export,
                say=lambda text: console.print(text, markup=False, style="dim"),
            ).run()
    finally:
        clock.sweep()
        if options.keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    violations = judge(days)
    console.width = max(console.width, WIDTH)
    console.print(table(days))
    for violation in violations:
        console.print(violation, markup=False, style="red")
    if options.json:
        options.json.write_text(json.dumps({"days": [asdict(day) for day in days], "violations": violations}, indent=1))
    console.print(f"{len(days)} days, {len(violations)} violations")
    sys.exit(bool(violations))


if __name__ == "__main__":
    main()
