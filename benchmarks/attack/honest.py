"""Honest traffic, with which a stranger's messages are compared, and which goes on beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from secrets import token_bytes

from benchmarks import made
from benchmarks.attack.traffic import Message, Traffic
from benchmarks.attack.world import World, registered
from benchmarks.made import Made, User
from wakupush.devnet import messages
from wakupush.protocol import topics
from wakupush.protocol.keys import PrivateKey, PublicKey

#: Notifications and bytes of message of a large request: to a community.
ITEMS, ITEM_BYTES = 100, 1000
#: Users of a large query.
QUERIED = 100
#: Items of a list of a large registration: 64 bytes each.
LISTED = 1000


def request(server: bytes, users: Sequence[User], items: int, size: int, number: int) -> Message:
    """Return a request of notifications to users in their turn, each with so many bytes of message."""
    return (made.request(server, *made.turn(users, items, number * items), size=size),)


def query(users: Sequence[User], user_count: int, number: int) -> Message:
    return (made.query(*made.turn(users, user_count, number)),)


def registration(server: bytes, listed: int, _: int) -> Message:
    lists = {"muted_chat_list": [token_bytes(64) for _ in range(listed)]}
    message, _ = registered(server, made.key(made.UNAWAITED), **lists)
    return message


def requests(items: int, size: int) -> Callable[[World, int], list[Message]]:
    return lambda world, count: world.make(partial(request, world.server, world.users, items, size), count)


def queries(user_count: int) -> Callable[[World, int], list[Message]]:
    return lambda world, count: world.make(partial(query, world.queried, user_count), count)


def registrations(listed: int) -> Callable[[World, int], list[Message]]:
    return lambda world, count: world.make(partial(registration, world.server, listed), count)


def first_queries(world: World, count: int) -> list[Message]:
    """Return a query for each of new users: they were never queried, so the keys of their topics are not derived."""
    return world.bench.make(partial(query, world.register(count), 1), list(range(count)))


#: By kind of message: one, and a large one where there is such a thing.
KINDS = {
    "request": (
        Traffic(name="request", make=requests(1, 64)),
        Traffic(name="request, 100 items", make=requests(ITEMS, ITEM_BYTES), most=40),
    ),
    "request of 20": (Traffic(name="request, 20 items", make=requests(20, 64), most=200),),
    "query": (
        Traffic(name="query", make=queries(1)),
        Traffic(name="query, 100 users", make=queries(QUERIED), most=100),
    ),
    "first query": (Traffic(name="first query of a user", make=first_queries, most=200, derives=True),),
    "registration": (
        Traffic(name="registration", make=registrations(0)),
        Traffic(name="registration, 1,000 chats", make=registrations(LISTED), most=100),
    ),
}

#: Which of ten messages are what.
MIX = ("request", "request", "query", "request", "request", "registration", "request", "query", "request", "query")
#: Of these there are topics enough.
MOST_MIXED = 8000


@dataclass(frozen=True)
class Crowd:
    """Whom honest traffic is for."""

    server: bytes
    users: Sequence[User]
    queried: Sequence[User]

    def send(self, job: tuple[str, int, bytes]) -> Made:
        """Return a message of a kind, with a number, of the client with this secret key."""
        kind, number, secret = job
        if kind == "request":
            return request(self.server, self.users, 1, 64, number)[0]  # its push is waited for, not its answer
        client = PrivateKey(secret)
        if kind == "query":
            message = messages.query(client, self.queried[number % len(self.queried)].key_hash)
        else:
            content = messages.registration(client, PublicKey(self.server))
            message = messages.register(client, PublicKey(self.server), content)
        return Made.of(message, answered_on=topics.content_topic(topics.partitioned_topic(client.public_key)))


def mixed(world: World, count: int) -> list[Made]:
    """Return honest traffic of all kinds; each answer that is waited for has a topic of its own.

    Args:
        world: that it is for.
        count: at most `MOST_MIXED`.
    """
    kinds = list(islice(cycle(MIX), count))
    keys = iter(world.keys(count - kinds.count("request")))
    jobs = [(kind, number, b"" if kind == "request" else next(keys)) for number, kind in enumerate(kinds)]
    return world.bench.make(Crowd(world.server, world.users, world.queried).send, jobs)
