"""Who sends what on a day: the clients of a chaos run, who live on, and some who come and go."""

from __future__ import annotations

import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace

from chaos.clients import MANNERS, Fleet, Post
from chaos.plan import Fate, Sent
from wakupush.devnet import messages
from wakupush.devnet.stack import SHARDS
from wakupush.pb.push_notification_pb2 import PushNotificationRequest
from wakupush.protocol import envelopes, topics
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey, PublicKey

#: Of clients among whom each manner is found.
SEED, USERS = "year 13", 40
#: Days after which a device registers again, and a newcomer leaves.
RENEWAL_DAYS = 6.5
STAY_DAYS = 3
#: Of a day: messages of any kind, messages that are not for the server, and users who come.
ANY, FOREIGN, NEWCOMERS = 140, 30, 2


class Inhabitants:
    """Clients.

    Args:
        server: whom they register with.
        repeat_days: age of the push requests that are repeated.
    """

    def __init__(self, server: PublicKey, repeat_days: int) -> None:
        self._server, self._repeat_days = server, repeat_days
        self._fleet = Fleet(SEED, server, USERS)
        self._devices = [device for user in self._fleet.users for device in user.devices]
        #: A device that registers on the first day, renews, and is notified each day.
        self._witness = next(device for device in self._devices if device.manner.name == "steady")
        #: A device whose token is dead, and that never renews.
        self._lost_fleet = Fleet("lost", server, 1)
        self._lost = self._lost_fleet.users[0].devices[0]
        self._lost.manner = next(manner for manner in MANNERS if manner.name == "dead")
        self._newcomers: deque[Fleet] = deque()
        self._repeats: dict[int, list[Callable[[], Post]]] = defaultdict(list)
        self._renewals = 0.0

    def first_day(self) -> list[Post]:
        """Return the registrations of all, before anything else is sent."""
        return [*self._fleet.register_all(), self._lost_fleet.register(self._lost)]

    def day(self, number: int) -> list[Post]:
        """Return the messages of a day; a registration comes before those about its device."""
        # What they remember to repeat is of this day, but for what this class repeats.
        self._fleet.forget()
        posts = [*self._renew(), *self._come(number), *self._leave(), *self._repeat(number)]
        posts += [self._fleet.next() for _ in range(ANY)]
        daily = [self._fleet.notify_plainly(self._witness) for _ in range(3)]
        self._repeats[number] = self._fleet.latest(len(daily))
        return [*posts, *daily, *(self._foreign() for _ in range(FOREIGN)), *self._part()]

    def lost(self) -> Post:
        """Return a push request for the device whose token died."""
        return self._lost_fleet.notify_plainly(self._lost)

    def roll_call(self) -> list[Post]:
        """Return a push request for each device that stayed."""
        return [self._fleet.notify_plainly(device) for device in self._devices]

    def _renew(self) -> list[Post]:
        begin = int(self._renewals)
        self._renewals += len(self._devices) / RENEWAL_DAYS
        count = len(self._devices)
        return [self._fleet.register(self._devices[at % count]) for at in range(begin, int(self._renewals))]

    def _come(self, number: int) -> list[Post]:
        self._newcomers.append(Fleet(f"newcomers of day {number}", self._server, NEWCOMERS))
        return self._newcomers[-1].register_all()

    def _leave(self) -> list[Post]:
        if len(self._newcomers) <= STAY_DAYS:
            return []
        fleet = self._newcomers.popleft()
        return [fleet.register(device, unregister=True) for user in fleet.users for device in user.devices]

    def _repeat(self, number: int) -> list[Post]:
        """Return old push requests in new envelopes: they are answered, and no push follows."""
        posts = [make() for make in self._repeats.pop(number - self._repeat_days, ())]
        return [replace(post, sent=tuple(_settled(message) for message in post.sent)) for post in posts]

    def _foreign(self) -> Post:
        other = PrivateKey.generate().public_key
        message = messages.to_server(PrivateKey.generate(), other, Type.PUSH_NOTIFICATION_REQUEST, b"")
        topic = topics.content_topic(topics.partitioned_topic(self._server))
        return Post(SHARDS[0], (replace(message, content_topic=topic),), ())

    def _part(self) -> list[Post]:
        """Return one part of a message whose other parts never come."""
        inner = PushNotificationRequest(message_id=secrets.token_bytes(3000)).SerializeToString()
        kind = Type.PUSH_NOTIFICATION_REQUEST
        parts = envelopes.to_key(
            PrivateKey.generate(), self._server, kind, inner, timestamp=time.time_ns(), most_bytes=2500
        )
        return [Post(SHARDS[0], (parts[0],), ())]


def _settled(message: Sent) -> Sent:
    return replace(message, items=tuple(replace(item, fate=Fate.MAY) for item in message.items))
