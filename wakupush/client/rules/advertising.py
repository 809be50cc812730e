"""Advertising one's servers on the contact code topic (71, Advertising a Server). Sans-IO."""

from collections.abc import Sequence
from dataclasses import replace

from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import application, envelopes, topics
from wakupush.protocol.advertisement import encode_advertisement
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.query import Info

#: Seconds from a change to its advertisement: the answers of several servers come shortly after each other.
SETTLE_SECONDS = 0.5
#: Seconds by which a wait may be longer than the period: the wait after a failure is, if the period is short.
SLACK_SECONDS = 60.0


class Advertiser:
    """Knows when to advertise: after each registration, and periodically while there is something to say.

    Args:
        period: seconds between two advertisements.
    """

    def __init__(self, period: float) -> None:
        self._period = period
        #: In seconds since the epoch; None while there is nothing to advertise.
        self.next_at: float | None = None
        #: The user's other installations: the infos that each advertised about itself, and when.
        self._others: dict[str, tuple[list[Info], float]] = {}

    def advertise_soon(self, now: float) -> None:
        """Advertise soon: a server has registered or unregistered this installation."""
        self.next_at = now + SETTLE_SECONDS

    def learn(self, infos: Sequence[Info], own_id: str, now: float) -> None:
        """Take over the advertisement of another installation of this user.

        An advertisement begins with its author's own servers. The rest is hearsay. The client does not pass it on,
        because no installation could ever take it back. An empty one says that an installation is not registered any
        more, but not which: the client forgets all, and the remaining ones advertise again.

        Args:
            infos: of an advertisement signed by our own key. Clients that learn from them check the grants.
            now: seconds since the epoch.
        """
        if not infos:
            self._others.clear()
        elif infos[0].installation_id != own_id:
            author = infos[0].installation_id
            self._others[author] = ([info for info in infos if info.installation_id == author], now)

    def due(self, own: Sequence[Info], now: float) -> list[Info] | None:
        """Return the infos to advertise now, own servers first; None if it is not time.

        The list is empty without own servers, see `learn`. Installations that were not heard for three periods are left
        out.
        """
        # A longer wait than the longest possible one means that the clock was set back.
        if self.next_at is None or now < self.next_at <= now + self._period + SLACK_SECONDS:
            return None
        if not own:
            self.next_at = None
            return []
        self.next_at = now + self._period
        fresh = [infos for infos, time in self._others.values() if time > now - 3 * self._period]
        return [*own, *(info for infos in fresh for info in infos)]


def advertisement(
    key: PrivateKey, infos: Sequence[Info], *, topic_key: bytes, timestamp: int, contact_code: bytes = b""
) -> WakuMessage:
    """Return an advertisement, wrapped as clients of the reference read it.

    One that is too large for a node is sent without the lists for contacts: a client that finds no token asks a server.

    Args:
        key: whose contact code topic it is; it signs both layers.
        topic_key: of the contact code topic, 32 bytes.
        timestamp: nanoseconds since the epoch.
        contact_code: a messenger's own ProtocolMessage that is to go with it, see `application.wrap_public`.
    """
    metadata = application.wrap(Type.CONTACT_CODE_ADVERTISEMENT, encode_advertisement(infos), key)
    if len(metadata) + len(contact_code) > envelopes.MOST_MESSAGE_BYTES - envelopes.ENVELOPE_BYTES:
        bare = [replace(info, allowed_key_list=()) for info in infos]
        metadata = application.wrap(Type.CONTACT_CODE_ADVERTISEMENT, encode_advertisement(bare), key)
    name = topics.contact_code_topic(key.public_key)
    data = application.wrap_public(metadata, contact_code)
    return envelopes.to_topic(key, name, topic_key, data, timestamp=timestamp)
