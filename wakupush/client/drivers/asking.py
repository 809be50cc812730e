"""Sending queries, each under its own key, and taking answers until all is known or time is up."""

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from wakupush.client.drivers.book import Book
from wakupush.client.drivers.context import Context, topic_key
from wakupush.client.drivers.enrolling import Enroller
from wakupush.client.drivers.tasks import Tasks
from wakupush.client.rules.mailbox import Mailbox
from wakupush.client.rules.querying import TokenQuery, group
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.keys import PrivateKey, PublicKey

T = TypeVar("T")

#: Seconds to wait for an answer.
QUERY_SECONDS = 4.0
#: Queries about this user that a server does not answer before it counts as having lost the registration.
CHECK_ATTEMPTS = 2
#: Segments of an answer at most: it may hold the allowed_key_lists of many devices.
MOST_SEGMENTS = 100


class Asker:
    """Asks servers about users.

    Args:
        enroller: learns from answers about this user.
    """

    def __init__(self, context: Context, book: Book, enroller: Enroller, tasks: Tasks) -> None:
        self._context = context
        self._book = book
        self._enroller = enroller
        self._tasks = tasks
        #: Users about whom a query is under way, each with the event of its end.
        self._asking: dict[PublicKey, asyncio.Event] = {}

    async def query(self, users: Sequence[PublicKey], *, force: bool, seconds: float) -> None:
        """Ask about users, and return when something was learned of each, or no server answers in time.

        Args:
            force: whether to ask even if tokens are known, or the user was asked about lately.

        Raises:
            NodeError: the node did not take a query.
        """
        acquaintances = [self._book.find(user) for user in dict.fromkeys(users)]
        to_ask = [
            acquaintance for acquaintance in acquaintances if force or acquaintance.is_to_be_asked(self._context.now())
        ]
        under_way = [self._asking[acquaintance.user] for acquaintance in to_ask if acquaintance.user in self._asking]
        groups = group(acquaintance for acquaintance in to_ask if acquaintance.user not in self._asking)
        users_left = await _all(self.ask(users, seconds) for users in groups)
        # A query goes out on the topic of its first user: servers that know another one may listen elsewhere.
        alone = [user for users, unknown in zip(groups, users_left, strict=True) if len(users) > 1 for user in unknown]
        await _all([*(self.ask((user,), seconds) for user in alone), *(end.wait() for end in under_way)])

    async def check(self) -> None:
        """Ask servers about this user. Those that leave this device out get the registration again.

        So do those that are silent twice: a server that knows no device of a user must not answer.

        Raises:
            NodeError: the node did not take a query.
        """
        versions = self._enroller.registrar.registered_versions
        silent = set(versions)
        for _ in range(CHECK_ATTEMPTS):
            if silent:
                await self.ask((self._context.account.push_key.public_key,), silent=silent)
        for server in silent:
            self._enroller.note_loss(server, versions[server])

    async def ask(
        self, users: tuple[PublicKey, ...], seconds: float = QUERY_SECONDS, *, silent: set[PublicKey] | None = None
    ) -> set[PublicKey]:
        """Send one query, and return the users of whom nothing was learned within so many seconds.

        Args:
            silent: servers whose answers to wait for; loses those that answer. None: the first answer is enough.

        Raises:
            NodeError: the node did not take it.
        """
        query = TokenQuery(users, PrivateKey.generate())
        box = Mailbox(query.key, MOST_SEGMENTS)
        users_left = set(users)
        end = asyncio.Event()
        self._asking.update(dict.fromkeys(users, end))
        is_about_us = self._context.account.push_key.public_key in users
        versions = self._enroller.registrar.registered_versions

        def receive(message: WakuMessage) -> None:
            content = box.take(message)
            infos = query.take_answer(content) if content is not None else None
            if content is None or infos is None:
                return
            if silent is not None:
                silent.discard(content.signer)
            if is_about_us:
                self._enroller.take_infos(content.signer, infos, versions)
            for user in users:
                if self._book.learn(user, infos, content.signer):
                    users_left.discard(user)

        async with AsyncExitStack() as exits:
            try:
                key = await topic_key(query.topic)
                await exits.enter_async_context(self._context.transport.listening(box.content_topic, receive))
                await self._context.transport.publish(query.message(key, time.time_ns()))
                for acquaintance in map(self._book.find, users):
                    self._book.put(acquaintance.with_asked_at(self._context.now()))
                await self._book.changes.wait_until(lambda: not (users_left if silent is None else silent), seconds)
            finally:
                for user in users:
                    self._asking.pop(user, None)
                end.set()
            # A user's other servers may answer a moment later.
            self._tasks.start(_close_later(exits.pop_all()))
        return users_left


async def _all(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return every result. An exception is raised only once all have ended, as the others' answers are of use."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    await asyncio.gather(*tasks, return_exceptions=True)
    return [task.result() for task in tasks]


async def _close_later(exits: AsyncExitStack) -> None:
    async with exits:
        await asyncio.sleep(QUERY_SECONDS)
