"""Asking servers for access tokens (71, Querying a Server). Sans-IO."""

from collections.abc import Iterable, Sequence

from wakupush.client.rules.acquaintances import Acquaintance
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import application, envelopes, topics
from wakupush.protocol.application import Opened, Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.query import Info, encode_query, parse_response

#: Users in one query at most; servers take 1,000.
MOST_USERS = 100


def group(acquaintances: Iterable[Acquaintance]) -> list[tuple[PublicKey, ...]]:
    """Return the users of each query.

    Users whose first known server is the same share a query: that server knows all of them anyway. A user of whom no
    server is known is asked about alone, so that no server learns who else is of interest.
    """
    groups: dict[object, list[PublicKey]] = {}
    for acquaintance in acquaintances:
        key = acquaintance.ways[0].server if acquaintance.ways else acquaintance.user
        groups.setdefault(key, []).append(acquaintance.user)
    return [
        tuple(users[start : start + MOST_USERS])
        for users in groups.values()
        for start in range(0, len(users), MOST_USERS)
    ]


class TokenQuery:
    """A query under its own key.

    Args:
        users: to ask about; the query goes out on the query topic of the first.
        key: ephemeral, for this query alone.
    """

    def __init__(self, users: Sequence[PublicKey], key: PrivateKey) -> None:
        self.key = key
        self.topic, _ = topics.query_topics(users[0].key_hash)
        inner = encode_query(user.key_hash for user in users)
        self._metadata = application.wrap(Type.PUSH_NOTIFICATION_QUERY, inner, key)
        self.message_id = keccak256(key.public_key.uncompressed + self._metadata)

    def message(self, topic_key: bytes, timestamp: int) -> WakuMessage:
        """Return the message, signed with the ephemeral key at both layers.

        Args:
            topic_key: of `topic`, 32 bytes.
            timestamp: nanoseconds since the epoch.
        """
        return envelopes.to_topic(self.key, self.topic, topic_key, self._metadata, timestamp=timestamp)

    def take_answer(self, content: Opened) -> tuple[Info, ...] | None:
        """Return the infos of a message that answers this query; None if it answers another, or cannot be read.

        `content.signer` has answered; each info has to prove by its grant that this server may.
        """
        if content.type != Type.PUSH_NOTIFICATION_QUERY_RESPONSE:
            return None
        try:
            response = parse_response(content.inner)
        except Refused:
            return None
        return response.infos if response.message_id == self.message_id else None
