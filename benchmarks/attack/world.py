"""A running server, the users who are registered there, and what a stranger has seen of it."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import httpx2

from benchmarks import made
from benchmarks.attack.traffic import Message, flat
from benchmarks.made import Made, User
from benchmarks.running import Bench, relay, rest, set_other_topic_keys, set_topic_keys
from wakupush.devnet import messages
from wakupush.devnet.processes import WaitTimeoutError, wait_until
from wakupush.protocol import envelopes
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.registration import seal_registration
from wakupush.redis import claims

#: Seconds until all who registered are stored.
PATIENCE = 30.0
#: Of so many users one is asked for by others: the topic has a key already.
QUERIED = 10
#: Autovacuum is off, because its time does not depend on what is measured.
QUIET = ("ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()")


class World:
    """A server in a network of honest users and strangers. Who is named here registers when first needed.

    Args:
        bench: the server.
        population: honest users with a device each.
    """

    def __init__(self, bench: Bench, population: int) -> None:
        self.bench = bench
        self.population = population
        self.stack = bench.stack
        self.server = bench.server
        self.connection, self.redis = bench.connection, bench.redis
        for statement in QUIET:
            self.connection.execute(statement)
        self._numbers = itertools.count()

    def make(self, work: Callable[[int], Message], count: int) -> list[Message]:
        """Make messages with numbers that no others have, rising."""
        return self.bench.make(work, list(itertools.islice(self._numbers, count)))

    def keys(self, count: int) -> list[bytes]:
        """Return secret keys of clients that wait for an answer, each on a topic of its own."""
        secrets_of_partitions: dict[int, bytes] = {}
        while len(secrets_of_partitions) < count:
            key = made.key(made.AWAITED)
            secrets_of_partitions[key.public_key.partition] = key.secret
        return list(secrets_of_partitions.values())

    def send(self, messages: Sequence[Message]) -> None:
        """Let messages arrive at the node, and wait until the server is done with them."""
        relay(self.stack.node_url, flat(messages))
        self.rest()

    def rest(self) -> None:
        """Wait until there is nothing to do."""
        rest(self.bench)

    def derive_nothing(self) -> None:
        """Let no key of a query topic be left to derive."""
        set_other_topic_keys(self.bench)

    def register(self, count: int, work: Callable | None = None) -> list[User]:
        """Register users by a function of the server's key and a number; ordinary ones by default."""
        pairs = self.bench.make(partial(work or ordinary, self.server), list(range(count)))
        before = self._registered()
        self.send([message for message, _ in pairs])
        try:
            # A large message may be on its way from the node to a queue, where it cannot be seen.
            wait_until(lambda: self._registered() - before >= count, timeout=PATIENCE, what="all are registered")
        except WaitTimeoutError:
            registered = self._registered() - before
            raise RuntimeError(
                f"{registered} of {count} users could register: raise the limits by WAKUPUSH_LIMITS__…"
            ) from None
        self.rest()
        return [user for _, user in pairs]

    def _registered(self) -> int:
        [(count,)] = self.connection.execute("SELECT count(*) FROM registrations WHERE registered").fetchall()
        return int(count)

    def handled(self, messages: list[Message]) -> list[Message]:
        """Send messages, and let the network forget them, as it does after minutes: they may come again."""
        self.send(messages)
        httpx2.post(f"{self.stack.node_url}/dev/restart").raise_for_status()
        httpx2.post(f"{self.stack.node_url}/relay/v1/subscriptions", json=self.stack.shards).raise_for_status()
        claims.release(self.redis, [bytes.fromhex(part.hash) for part in flat(messages)])
        return messages

    @cached_property
    def users(self) -> list[User]:
        """Honest users, to each of whom a push was delivered."""
        users = self.register(self.population)
        self.send([(each,) for each in self.bench.make(partial(made.request, self.server), users)])
        return users

    @cached_property
    def queried(self) -> list[User]:
        """Those of the users for whom others ask."""
        some = self.users[::QUERIED]
        set_topic_keys(self.bench, some)
        self.send([(each,) for each in self.bench.make(made.query, some)])
        return some

    @property
    def queried_user(self) -> User:
        """One of these."""
        return self.queried[0]

    @cached_property
    def listed(self) -> list[User]:
        """Users whose lists are full; the queue `rest` holds so many of them at once."""
        return self.register(40, listed) + self.register(40, listed) + self.register(20, listed)

    @cached_property
    def heavy(self) -> User:
        """A user with as many contacts on as many devices as an answer can hold."""
        client = made.key(made.UNAWAITED).secret
        return self.register(4, partial(heavy, client))[0]

    @cached_property
    def open(self) -> list[User]:
        """A user whose access token is public."""
        return self.register(1)

    @cached_property
    def invented(self) -> list[User]:
        """Users whose device tokens never existed."""
        return self.register(50, invented)

    @cached_property
    def spoiled(self) -> list[User]:
        """Users of whom the first one's pushes are refused by gorush, with everything in the same post."""
        return self.register(20, spoiled)

    @cached_property
    def updating(self) -> list[bytes]:
        """Secret keys of clients that register again and again."""
        return [made.key(made.UNAWAITED).secret for _ in range(20)]


#: Items of a full list.
FULL = 10_000
#: Bytes of each in a list of contacts: an answer holds four such lists.
CONTACT_BYTES = 90


def registered(server: bytes, client: PrivateKey, **fields: Any) -> tuple[Message, User]:
    """Return a registration, in segments where it is large, and who registers."""
    content = messages.registration(client, PublicKey(server), **fields)
    sealed = seal_registration(content, client, PublicKey(server))
    kind = Type.PUSH_NOTIFICATION_REGISTRATION
    parts = envelopes.to_key(client, PublicKey(server), kind, sealed, timestamp=time.time_ns())
    user = User(client.public_key.key_hash, content.installation_id, content.access_token)
    return tuple(map(Made.of, parts)), user


def ordinary(server: bytes, _: int) -> tuple[Message, User]:
    return registered(server, made.key(made.UNAWAITED))


def listed(server: bytes, _: int) -> tuple[Message, User]:
    lists = {"muted_chat_list": [secrets.token_bytes(64) for _ in range(FULL)]}
    return registered(server, made.key(made.UNAWAITED), **lists)


def heavy(client: bytes, server: bytes, _: int) -> tuple[Message, User]:
    contacts = [secrets.token_bytes(CONTACT_BYTES) for _ in range(FULL)]
    return registered(server, PrivateKey(client), allow_from_contacts_only=True, allowed_key_list=contacts)


def invented(server: bytes, _: int) -> tuple[Message, User]:
    return registered(server, made.key(made.UNAWAITED), device_token=f"bad-{secrets.token_hex(32)}")


def spoiled(server: bytes, number: int) -> tuple[Message, User]:
    """Return one device of twenty for which gorush refuses a whole post, with all that is in it."""
    scripts = ("malformed-", *[""] * 19)
    return registered(server, made.key(made.UNAWAITED), device_token=scripts[number % 20] + secrets.token_hex(32))
