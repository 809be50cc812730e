"""Which queue a message belongs to, by its content topic alone."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from wakupush.model.entries import Entry
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION, Queue
from wakupush.protocol import topics
from wakupush.protocol.keys import PublicKey
from wakupush.runtime.settings import Settings
from wakupush.server.engine.identity import load_public_keys


@dataclass(frozen=True, slots=True)
class Routes:
    """The server's own content topics, and the queues of their messages."""

    queues: dict[str, Queue]

    @classmethod
    def of(cls, *servers: PublicKey) -> Self:
        """Return the routes to a server of these keys."""
        names = [topics.server_content_topics(server) for server in servers]
        return cls(
            {personal: REGISTRATION for personal, _ in names} | {partitioned: DISPATCH for _, partitioned in names}
        )

    @classmethod
    def load(cls, settings: Settings) -> Self:
        """Return the routes to the server of the settings.

        Raises:
            SettingsError: there is no public key, or it is not valid.
        """
        return cls.of(*load_public_keys(settings))

    def route(
        self, entries: Iterable[Entry], watched: Callable[[Sequence[bytes]], set[bytes]]
    ) -> list[tuple[Queue, Entry]]:
        """Return the messages that are for us, each with its queue, in their order.

        Args:
            entries: of one poll.
            watched: says which of some topics (4 bytes each) are watched query topics; asked at most once.
        """
        entries = list(entries)
        foreign = {entry.message.content_topic for entry in entries if entry.message.content_topic not in self.queues}
        by_topic = {topic: name for name in sorted(foreign) if (topic := topics.topic_of(name)) is not None}
        queries = {by_topic[topic] for topic in watched(list(by_topic))} if by_topic else set()
        messages = []
        for entry in entries:
            name = entry.message.content_topic
            queue = QUERY if name in queries else self.queues.get(name)
            if queue is not None:
                messages.append((queue, entry))
        return messages
