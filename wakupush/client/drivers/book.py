"""The acquaintances that a client keeps, and their advertisements."""

import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace

from wakupush.client.drivers.context import Context, Signal, topic_key
from wakupush.client.drivers.history import History
from wakupush.client.drivers.storage import ACQUAINTANCE
from wakupush.client.drivers.tasks import Tasks
from wakupush.client.events import Learned
from wakupush.client.rules.acquaintances import Acquaintance
from wakupush.client.rules.mailbox import read_advertisement
from wakupush.client.rules.sending import Useless
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import topics
from wakupush.protocol.keys import PublicKey
from wakupush.protocol.query import Info
from wakupush.protocol.uuids import is_uuid
from wakupush.waku.errors import NodeError

log = logging.getLogger(__name__)


class Book:
    """The acquaintances of this user, by their registered keys.

    Args:
        history: a Store, asked for the latest advertisements of a user who is followed; None for no Store.
    """

    def __init__(self, context: Context, history: History | None, tasks: Tasks) -> None:
        self._context = context
        self._history = history
        self._tasks = tasks
        self._exits_by_user: dict[PublicKey, AsyncExitStack] = {}
        self.changes = Signal()

    def find(self, user: PublicKey) -> Acquaintance:
        """Return the acquaintance of a user, by the chat key or by the registered key."""
        acquaintance = self._get(user)
        return acquaintance if acquaintance.push_key is None else self._get(acquaintance.push_key)

    def put(self, acquaintance: Acquaintance) -> None:
        """Store an acquaintance."""
        self._context.storage.put(ACQUAINTANCE, str(acquaintance.user), acquaintance)

    def learn(self, user: PublicKey, infos: Iterable[Info], server: PublicKey | None) -> bool:
        """Learn from infos about a registered key, and return whether anything was new.

        Args:
            user: the registered key.
            server: who answered; None for an advertisement.
        """
        before = self._get(user)
        after = before.learn(infos, asker=self._context.account.key, server=server, now=self._context.now())
        if after.ways == before.ways:
            return False
        self.put(after)
        self._context.tell(Learned(after))
        self.changes.set()
        return True

    def note_useless(self, token: Useless) -> None:
        """Stop using a token that its server has called wrong, or whose device the server does not know."""
        acquaintance = self._get(token.user)
        refused = token.installation_id, token.server, token.access_token
        self.put(acquaintance.without_token(*refused, is_wrong=token.is_wrong))

    def learn_push_key(self, user: PublicKey, push_key: PublicKey) -> None:
        """Take over the key that a contact update named as the user's registered one."""
        self.put(replace(self._get(user), push_key=push_key))

    def note_active(self, user: PublicKey, installation_id: str, at: float) -> None:
        """Note when an installation of a user was active, in seconds since the epoch."""
        before = self.find(user)
        after = before.with_activity(installation_id, min(at, self._context.now()))
        if after is not before:
            self.put(after)

    async def follow(self, user: PublicKey) -> None:
        """Listen to a user's advertisements from now on, and ask the Store for the latest ones.

        Raises:
            NodeError: the node does not let us listen.
        """
        user = self.find(user).user
        if user in self._exits_by_user:
            return
        self._exits_by_user[user] = exits = AsyncExitStack()
        name = topics.contact_code_topic(user)
        try:
            key = await topic_key(name)

            def receive(message: WakuMessage) -> None:
                self._take_advertisement(user, message, key)

            await exits.enter_async_context(self._context.transport.listening(topics.content_topic(name), receive))
            if self._exits_by_user.get(user) is not exits:  # unfollowed meanwhile
                await exits.aclose()
                return
        except BaseException:  # cancellation, too, leaves the user unfollowed
            if self._exits_by_user.get(user) is exits:
                del self._exits_by_user[user]
            raise
        if self._history is not None:
            self._tasks.start(self._look_back(self._history, user, key))

    async def unfollow(self, user: PublicKey) -> None:
        """Stop listening to a user."""
        for key in {user, self.find(user).user}:  # may have been followed before the push key was known, or after
            exits = self._exits_by_user.pop(key, None)
            if exits is not None:
                await exits.aclose()

    async def close(self) -> None:
        """Stop listening to all users."""
        for exits in self._exits_by_user.values():
            await exits.aclose()
        self._exits_by_user.clear()

    def _get(self, user: PublicKey) -> Acquaintance:
        return self._context.storage.get(ACQUAINTANCE, str(user)) or Acquaintance(user=user)

    async def _look_back(self, history: History, user: PublicKey, key: bytes) -> None:
        topic = topics.content_topic(topics.contact_code_topic(user))
        try:
            latest = await history.latest(topic, lambda message: read_advertisement(message, key, user) is not None)
        except NodeError as error:
            log.warning("history_not_read: %s", error)
            return
        for message in latest:
            self._take_advertisement(user, message, key)

    def _take_advertisement(self, user: PublicKey, message: WakuMessage, key: bytes) -> None:
        infos = read_advertisement(message, key, user)
        if not infos:
            return
        self.learn(user, infos, None)
        if is_uuid(infos[0].installation_id):
            self.note_active(user, infos[0].installation_id, message.timestamp / 1e9)
