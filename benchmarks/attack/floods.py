"""The table of floods: what a stranger sends, by which power, and which honest message it is compared with."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial
from secrets import token_bytes

from benchmarks.attack import strangers
from benchmarks.attack.honest import KINDS
from benchmarks.attack.traffic import Flood, Message, Power
from benchmarks.attack.world import World
from wakupush.protocol import topics
from wakupush.protocol.keys import PrivateKey, PublicKey

Make = Callable[[World, int], list[Message]]

DAY = 86_400.0
NOBODY = str(uuid.UUID(int=0))


def junk(size: int, topic: int = 1, ahead: float = 0.0) -> Make:
    """Make noise on a topic of the server's: 0 is its personal one, 1 its partitioned one."""

    def make(world: World, count: int) -> list[Message]:
        name = topics.server_content_topics(PublicKey(world.server))[topic]
        return world.make(partial(strangers.junk, name, size, ahead), count)

    return make


def sealed(work: Callable, *arguments: object) -> Make:
    """Make messages of a function that takes the server's key and these arguments."""
    return lambda world, count: world.make(partial(work, world.server, *arguments), count)


def naming(whom: str, items: int, token: str | None = None) -> Make:
    """Make requests that name those users of the world."""

    def make(world: World, count: int) -> list[Message]:
        users = getattr(world, whom)
        return world.make(partial(strangers.naming, world.server, users, items, token), count)

    return make


def copies(kind: str, **fields: Callable[[], object]) -> Make:
    """Make copies of honest messages that the server has handled, with these fields changed."""

    def make(world: World, count: int) -> list[Message]:
        honest = world.handled(KINDS[kind][0].make(world, count))
        return [strangers.changed(each, **{name: value() for name, value in fields.items()}) for each in honest]

    return make


def without_a_key(world: World, count: int) -> list[Message]:
    return world.bench.make(partial(strangers.junk_for, world.register(count), 400), list(range(count)))


def with_a_key(world: World, count: int) -> list[Message]:
    return world.make(partial(strangers.junk_for, world.queried, 400), count)


def replays(world: World, count: int) -> list[Message]:
    return world.make(partial(strangers.replay, world.queried_user, PrivateKey.generate().secret), count)


def asking(whom: str, others: int = 0) -> Make:
    return lambda world, count: world.make(partial(strangers.asking, getattr(world, whom), others), count)


def updates(listed: int) -> Make:
    return lambda world, count: world.make(partial(strangers.update, world.server, world.updating, listed), count)


_PUBLISH = {"power": Power.PUBLISH, "honest": "request"}
_REPEAT = {"power": Power.REPEAT, "honest": "request"}
_CHANGE = {"power": Power.CHANGE, "honest": "request"}
_REGISTER = {"power": Power.REGISTER, "honest": "registration", "purpose": True}
_QUERY = {"power": Power.QUERY, "honest": "query"}
_PUSH = {"power": Power.PUSH, "honest": "request"}
_PUSHES = {"power": Power.PUSH, "honest": "request of 20"}

FLOODS = (
    Flood(name="junk of 1 byte", make=junk(1), **_PUBLISH),
    Flood(name="junk of 400 bytes", make=junk(400), **_PUBLISH),
    Flood(name="junk of 2 kB", make=junk(2000), **_PUBLISH),
    Flood(name="junk of 100 kB", make=junk(100_000), most=200, **_PUBLISH),
    # As much as one read of the node may have, in one moment.
    Flood(
        name="1 MiB to the personal topic",
        make=junk(2**20 - 200, topic=0),
        most=45,
        power=Power.PUBLISH,
        honest="registration",
    ),
    Flood(name="junk on the personal topic", make=junk(400, topic=0), power=Power.PUBLISH, honest="registration"),
    Flood(name="junk stamped 19 s ahead", make=junk(400, ahead=19), **_PUBLISH),
    Flood(name="junk stamped 4 days ahead", make=junk(400, ahead=4 * DAY), **_PUBLISH),
    Flood(name="junk stamped 25 h behind", make=junk(400, ahead=-25 / 24 * DAY), **_PUBLISH),
    Flood(name="noise sealed to the server, 2 kB", make=sealed(strangers.sealed_noise, 2000), **_PUBLISH),
    Flood(
        name="noise sealed to the server, 100 kB", make=sealed(strangers.sealed_noise, 100_000), most=200, **_PUBLISH
    ),
    Flood(
        name="registrations that do not open",
        make=sealed(strangers.unsealable, 300),
        power=Power.PUBLISH,
        honest="registration",
    ),
    Flood(name="segments that never complete", make=sealed(strangers.lonely_part, 300, 2), **_PUBLISH),
    Flood(
        name="segments that never complete, 100 kB",
        make=sealed(strangers.lonely_part, 100_000, 2),
        most=200,
        **_PUBLISH,
    ),
    Flood(name="segments of a huge count", make=sealed(strangers.lonely_part, 300, 2**31 - 1), **_PUBLISH),
    Flood(name="wrong token, 200 items", make=naming("users", 200, NOBODY), most=200, **_PUBLISH),
    Flood(name="wrong token, 20 devices with full lists", make=naming("listed", 20, NOBODY), most=200, **_PUBLISH),
    Flood(name="200 items that name nobody", make=sealed(strangers.naming_nobody, 200), most=400, **_PUBLISH),
    Flood(name="empty items, 7.8 MB", make=sealed(strangers.empty_items, 3_900_000), most=2, **_PUBLISH),
    Flood(name="exact copies", make=copies("request"), **_REPEAT),
    Flood(name="exact copies of registrations", make=copies("registration"), power=Power.REPEAT, honest="registration"),
    Flood(name="copies of version 0", make=copies("request", version=lambda: 0), **_CHANGE),
    Flood(name="copies with meta", make=copies("request", meta=lambda: token_bytes(16)), **_CHANGE),
    Flood(name="requests wrapped again", make=copies("request", timestamp=time.time_ns), **_CHANGE),
    Flood(
        name="registrations wrapped again",
        make=copies("registration", timestamp=time.time_ns),
        power=Power.CHANGE,
        honest="registration",
    ),
    Flood(name="registrations of new users", make=sealed(strangers.newcomer), **_REGISTER),
    Flood(name="registrations anew, 130 kB of lists", make=updates(2000), most=150, **_REGISTER),
    Flood(name="registrations anew, full lists", make=updates(10_000), most=20, **_REGISTER),
    Flood(name="junk on query topics", make=with_a_key, **_QUERY),
    Flood(
        name="junk on query topics without a key",
        make=without_a_key,
        most=200,
        derives=True,
        power=Power.QUERY,
        honest="first query",
    ),
    Flood(name="queries for 1,000 keys", make=asking("queried_user", 999), most=200, **_QUERY),
    Flood(name="queries for a user with full lists", make=asking("heavy"), most=20, **_QUERY),
    Flood(name="queries sealed again", make=replays, **_QUERY),
    Flood(name="pushes to invented device tokens", make=naming("invented", 1), **_PUSH),
    Flood(name="pushes of which gorush refuses one in 20", make=naming("spoiled", 20), most=200, **_PUSHES),
    Flood(name="pushes to one device", make=naming("open", 1), **_PUSH),
    Flood(name="pushes to 20 devices with full lists", make=naming("listed", 20), most=200, **_PUSHES),
)
