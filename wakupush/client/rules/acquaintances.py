"""The users that a client may notify: their devices, servers and access tokens. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from wakupush.client.documents import Key, document
from wakupush.protocol.grants import is_granted
from wakupush.protocol.keys import InvalidKeyError, PrivateKey, PublicKey
from wakupush.protocol.query import Info, find_token
from wakupush.protocol.uuids import is_uuid

#: Seconds for which an access token is used without asking again. A time more than that ahead is of a wrong clock.
KEEP_SECONDS = 86_400.0
#: Seconds before servers are asked again about a user of whom they knew nothing.
ABSENT_SECONDS = 3600.0
#: Installations of a user that are kept, and servers of an installation.
MOST_INSTALLATIONS, MOST_SERVERS = 20, 10


@document
@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A server through which a device can be notified."""

    installation_id: str
    server: Key
    #: Empty once the server has said that the token is wrong, or that the device is not registered.
    access_token: str = field(repr=False)
    #: The version of the registration that the token comes from.
    version: int
    #: When it was learned, in seconds since the epoch; negative once the server has said that the token is wrong.
    learned_at: float


@document
@dataclass(frozen=True, slots=True, kw_only=True)
class Acquaintance:
    """A user's known devices, servers and access tokens."""

    #: The key that is registered.
    user: Key
    ways: tuple[Way, ...] = ()
    #: When each installation was last active, in seconds since the epoch.
    activity: dict[str, float] = field(default_factory=dict)
    #: When servers were last asked about the user.
    asked_at: float | None = None
    #: If the user is anonymous: the key that is registered instead of this one. A secret between the user and us.
    push_key: Key | None = field(repr=False, default=None)

    def learn(self, infos: Iterable[Info], *, asker: PrivateKey, server: PublicKey | None, now: float) -> Acquaintance:
        """Return the acquaintance with these infos added, without those of other users or without a valid grant.

        Args:
            infos: from an advertisement, or from the answer to a query.
            asker: our chat key, which opens tokens that are sealed for contacts.
            server: who answered; None for an advertisement, which names its servers.
            now: seconds since the epoch.
        """
        ways = {(way.installation_id, way.server): way for way in self.ways}
        for info in infos:
            way = _way(info, self.user, asker, server, now)
            if way is None:
                continue
            place = (way.installation_id, way.server)
            before = ways.get(place)
            if (
                before is None
                or way.version > before.version
                or (way.version == before.version and _may(before, server))
            ):
                ways.pop(place, None)
                ways[place] = way
        return replace(self, ways=_bound(ways.values()))

    def with_activity(self, installation_id: str, at: float) -> Acquaintance:
        """Return the acquaintance with the time at which an installation was active."""
        if at <= self.activity.get(installation_id, 0.0):
            return self
        activity = {**self.activity, installation_id: at}
        latest = sorted(activity, key=activity.__getitem__, reverse=True)[:MOST_INSTALLATIONS]
        return replace(self, activity={installation_id: activity[installation_id] for installation_id in latest})

    def without_token(
        self, installation_id: str, server: PublicKey, access_token: str, *, is_wrong: bool = False
    ) -> Acquaintance:
        """Return the acquaintance without a token that a server has refused; servers may be asked again.

        Args:
            is_wrong: whether the device is registered, with another token: then servers are asked until one tells it.
        """
        refused = (installation_id, server, access_token)
        ways = (
            replace(way, access_token="", learned_at=-1.0 if is_wrong else way.learned_at)
            if (way.installation_id, way.server, way.access_token) == refused
            else way
            for way in self.ways
        )
        return replace(self, ways=tuple(ways), asked_at=None)

    def with_asked_at(self, now: float) -> Acquaintance:
        """Return the acquaintance with the time at which servers were asked."""
        return replace(self, asked_at=now)

    def usable(self, now: float) -> list[Way]:
        """Return the ways whose tokens may be used."""
        return [way for way in self.ways if way.access_token and abs(now - way.learned_at) < KEEP_SECONDS]

    def is_to_be_asked(self, now: float) -> bool:
        """Return whether to ask servers: a device has no token that may be used, and servers were not asked lately.

        Each device counts separately: one that is on advertises for hours, and says nothing of another device that was
        closed days ago and waits for pushes.
        """
        usable = {way.installation_id for way in self.usable(now)}
        is_old = any(
            (way.access_token or way.learned_at < 0) and way.installation_id not in usable for way in self.ways
        )
        return (is_old or not usable) and (self.asked_at is None or abs(now - self.asked_at) >= ABSENT_SECONDS)

    def devices(self, now: float, *, most: int, only: Sequence[str] | None = None) -> dict[str, list[Way]]:
        """Return the devices to notify, the one that was active last first, each with its ways.

        If all of a device's tokens are old, the old ones are returned: they may still be valid.

        Args:
            now: seconds since the epoch.
            only: the installations that a message is for; None for all known ones.
        """
        ways_by_id: dict[str, list[Way]] = {}
        usable = self.usable(now)
        fresh = {way.installation_id for way in usable}
        for way in [*usable, *(way for way in self.ways if way.access_token and way.installation_id not in fresh)]:
            if only is None or way.installation_id in only:
                ways_by_id.setdefault(way.installation_id, []).append(way)
        latest = sorted(ways_by_id, key=lambda installation_id: self.activity.get(installation_id, 0.0), reverse=True)
        return {installation_id: ways_by_id[installation_id] for installation_id in latest[:most]}


def _way(info: Info, user: PublicKey, asker: PrivateKey, server: PublicKey | None, now: float) -> Way | None:
    """Return the way that an info names.

    None if the info is another user's, is not for us, has no valid grant, or its installation id is not a uuid.
    """
    if info.key_hash != user.key_hash or not is_uuid(info.installation_id):
        return None
    try:
        server = server or PublicKey(info.server_key)
    except InvalidKeyError:
        return None
    token = find_token(info, user, asker)
    if token is None or not is_granted(info.grant, user, server, token):
        return None
    return Way(
        installation_id=info.installation_id, server=server, access_token=token, version=info.version, learned_at=now
    )


def _may(before: Way, server: PublicKey | None) -> bool:
    """Return whether the same version may be learned again: an old advertisement must not bring a wrong token back."""
    return bool(before.access_token) or server is not None


def _bound(ways: Iterable[Way]) -> tuple[Way, ...]:
    by_device: dict[str, list[Way]] = {}
    for way in sorted(ways, key=lambda way: way.learned_at, reverse=True):
        of_device = (
            by_device.setdefault(way.installation_id, [])
            if len(by_device) < MOST_INSTALLATIONS
            else by_device.get(way.installation_id)
        )
        if of_device is not None and len(of_device) < MOST_SERVERS:
            of_device.append(way)
    return tuple(way for of_device in by_device.values() for way in reversed(of_device))
