"""`python -m benchmarks.walk`: counts through how many modules a reader follows a push request, and a retry.

`sys.setprofile` records every call and return of our functions. A stay is a sequence of them in one module; a return is
a stay in a module that was left before. Values, the protocol and what every process runs on are left out. Posts are
made in the thread that hands them over, so that there is only one sequence.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from wakupush.devnet.demo import messages
from wakupush.devnet.demo.stack import SHARDS, Stack
from wakupush.model.entries import Entry
from wakupush.model.platforms import Platform
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime.settings import Settings
from wakupush.server.delivery import next_attempts
from wakupush.server.inbox import isolation
from wakupush.server.inbox.resources import InboxResources
from wakupush.server.schedule.claim_due import claim_due_on

OURS = ("wakupush.", "ingest.", "workers.")
LEFT_OUT = ("wakupush.model.", "wakupush.protocol.", "wakupush.pb.", "wakupush.runtime.", "wakupush.devnet.")
#: Helpers that hand SQL over; what is read there is the subject's module.
NO_ROOMS = {"wakupush.postgres.named_sql"}
MOST = {"push request, from the task to its commit": 14, "retry, from the schedule to its settlement": 9}


@dataclass
class Walk:
    """The modules of the stays, in order."""

    stays: list[str] = field(default_factory=list)
    over: bool = False

    @property
    def returns(self) -> int:
        return len(self.stays) - len(set(self.stays))

    def enter(self, frame: FrameType | None) -> None:
        room = _room(frame)
        if room and not self.over and self.stays[-1:] != [room]:
            self.stays.append(room)


@contextmanager
def walked(until: Callable[[FrameType, Walk], bool]) -> Iterator[Walk]:
    """Yield the walk of what is done in the block, up to the call that `until` names."""
    walk = Walk()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            walk.over = walk.over or until(frame, walk)
            walk.enter(frame)
        elif event == "return" and _room(frame):
            caller = frame.f_back
            while caller is not None and not _room(caller):
                caller = caller.f_back
            walk.enter(caller)

    sys.setprofile(note)
    try:
        yield walk
    finally:
        sys.setprofile(None)


def _room(frame: FrameType | None) -> str | None:
    """Return the module of a frame, None where it is left out; what dataclasses generate stands in no module."""
    if frame is None or frame.f_code.co_filename == "<string>":
        return None
    name = str(frame.f_globals.get("__name__", ""))
    return name if name.startswith(OURS) and not name.startswith(LEFT_OUT) and name not in NO_ROOMS else None


def commits(frame: FrameType, _: Walk) -> bool:
    return frame.f_code.co_name == "commit" and str(frame.f_globals["__name__"]).startswith("psycopg")


def settles(frame: FrameType, walk: Walk) -> bool:
    """Say whether the settlement begins; it is the last stay."""
    if frame.f_code.co_name != "settle" or _room(frame) != "wakupush.server.delivery.settlement":
        return False
    walk.enter(frame)
    return True


class _Inline:
    """An executor that does at once what it is given."""

    def submit(self, work: Callable[..., object], *args: object) -> Future[object]:
        done: Future[object] = Future()
        done.set_result(work(*args))
        return done

    def shutdown(self) -> None:
        """End nothing."""


def walks(resources: InboxResources) -> dict[str, Walk]:
    """Walk with a server's resources on an empty database; its gorush takes any post."""
    server = resources.identity.public_key
    resources.lanes.slots._threads = _Inline()  # noqa: SLF001 - so that there is one line to follow
    resources.followers._threads = _Inline()  # noqa: SLF001 - likewise
    client = PrivateKey.generate()
    content = messages.registration(client, server)
    _handle(resources, REGISTRATION, messages.register(client, server, content))
    resources.breaker.is_closed(Platform.IOS)  # read a moment ago, as it is each second
    first, second = MOST
    found = {}
    with walked(commits) as found[first]:
        _handle(resources, DISPATCH, _request(client, server, content))
    with resources.pool.connection() as connection:
        row = connection.execute(
            "UPDATE deliveries SET state = 'pending', attempt = 1, next_attempt_at = now(), failure = 'rate_limited',"
            " chat_id = 'c', message = 'm', finished_at = NULL, lease = NULL, lease_until = NULL"
            " RETURNING delivery_key, task_id"
        ).fetchone()
    assert row is not None
    resources.breaker.is_closed(Platform.IOS)  # likewise
    with walked(settles) as found[second]:
        claim_due_on(Platform.IOS, resources)
        next_attempts.make(resources, {row[0]: 1}, row[1])
    return found


def _request(client: PrivateKey, server, content):
    item = messages.notification(client.public_key.key_hash, content)
    return messages.request(PrivateKey.generate(), server, [item], uuid.uuid4().bytes)


def _handle(resources: InboxResources, queue, message) -> None:
    entry = Entry(SHARDS[0], message_hash(SHARDS[0], message), resources.now(), message)
    isolation.handle(resources, queue, [entry], alone=False)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="wakupush-walk-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        with Stack(directory) as stack:
            for process in (stack.ingest, stack.reconcile, *stack.workers.values()):
                process.stop()
            resources = InboxResources.open(
                Settings(
                    identity_key=stack.key.secret.hex(),
                    waku={"url": stack.node_url},
                    redis={"url": stack.redis_url},
                    postgres={"dsn": stack.postgres_dsn},
                    gorush={"url": stack.gorush_url},
                )
            )
            found = walks(resources)
            resources.close()
            resources.app.close()
    for what, walk in found.items():
        print(f"{what}: {len(walk.stays)} stays in {len(set(walk.stays))} modules, {walk.returns} returns", end="")
        print(f" (at most {MOST[what]})")
        for room in walk.stays:
            print(f"  {room}")
    return int(any(walk.returns > MOST[what] for what, walk in found.items()))


if __name__ == "__main__":
    sys.exit(main())
