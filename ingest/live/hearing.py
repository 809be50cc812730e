"""What each of several nodes hears: which misses other people's messages, and whose beacons no other node hears.

It compares only messages for this server. Other people sent them; our own answers come back from a deaf node, too. The
number of a node's peers proves nothing, so it is not used. Each shard is judged by itself: a node may have peers on one
and none on another.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from wakupush.redis.left_out import NodeFault

#: Seconds for which a heard message counts.
WINDOW_SECONDS: Final = 60.0
#: Seconds within which every node hears a message that one node has heard or published.
SETTLED_SECONDS: Final = 8.0
#: Seconds without a read that worked after which a node does not answer.
SILENT_SECONDS: Final = 5.0
#: The most messages to compare in a second.
COMPARED_PER_SECOND: Final = 20
#: Messages, or beacons, without which nothing is said about a node.
LEAST_HEARD: Final = 5
LEAST_BEACONS: Final = 3
#: Share of what it should hear, or be heard with, below which a node is deaf or mute. It is less than a half: of two
#: processes that read the same nodes during an upgrade, each sees half of what one of them hears.
LEAST_SHARE: Final = 0.2


@dataclass(slots=True)
class _Sound:
    """A message for this server, or a beacon."""

    shard: str
    #: Monotonic seconds of when it was first heard, or published.
    at: float
    #: The node that it was published on; empty for other people's.
    source: str = ""
    #: The nodes that heard it.
    nodes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Hearing:
    """Compares the messages that nodes hear. Its memory is bounded by `COMPARED_PER_SECOND` and `WINDOW_SECONDS`."""

    nodes: tuple[str, ...]
    shards: tuple[str, ...]
    #: Monotonic seconds.
    now: Callable[[], float] = time.monotonic
    #: By message hash (32 bytes), the oldest first.
    _sounds: OrderedDict[bytes, _Sound] = field(default_factory=OrderedDict)
    #: By node and shard: since when it has been read without a failure, and when it was last read.
    _read_since: dict[tuple[str, str], float] = field(default_factory=dict)
    _last_reads: dict[tuple[str, str], float] = field(default_factory=dict)
    #: The current second, and how many messages of others were first noted in it.
    _second: int = 0
    _noted_in_second: int = 0
    _lock: Lock = field(default_factory=Lock)

    def note_read(self, node: str, shard: str) -> None:
        """Note that a node answered."""
        now = self.now()
        with self._lock:
            self._read_since.setdefault((node, shard), now)
            self._last_reads[node, shard] = now

    def note_failure(self, node: str, shard: str) -> None:
        """Note that a node did not answer, or forgot its subscription: messages missed now do not make it deaf."""
        with self._lock:
            self._read_since.pop((node, shard), None)

    def note_heard(self, node: str, shard: str, hashes: Iterable[bytes]) -> None:
        """Note messages of others that are for this server (hashes of 32 bytes)."""
        now = self.now()
        with self._lock:
            self._forget(now)
            if int(now) != self._second:
                self._second, self._noted_in_second = int(now), 0
            for digest in hashes:
                sound = self._sounds.get(digest)
                if sound is None and self._noted_in_second < COMPARED_PER_SECOND:
                    self._noted_in_second += 1
                    sound = self._sounds[digest] = _Sound(shard, now)
                if sound is not None:
                    sound.nodes.add(node)

    def note_beacon(self, node: str, shard: str, beacon: bytes) -> None:
        """Note that a beacon (its hash, 32 bytes) is about to be published on a node."""
        with self._lock:
            self._sounds[beacon] = _Sound(shard, self.now(), source=node)

    def forget_beacon(self, beacon: bytes) -> None:
        """Forget a beacon that its node did not take."""
        with self._lock:
            self._sounds.pop(beacon, None)

    def note_beacons_heard(self, node: str, hashes: Iterable[bytes]) -> None:
        """Note messages that may be beacons (hashes of 32 bytes); others are passed over."""
        with self._lock:
            for digest in hashes:
                if (sound := self._sounds.get(digest)) is not None and sound.source:
                    sound.nodes.add(node)

    def faults(self) -> Mapping[tuple[str, str], NodeFault]:
        """Return the faults of the nodes, by name and shard."""
        now = self.now()
        with self._lock:
            self._forget(now)
            sounds = [sound for sound in self._sounds.values() if sound.at <= now - SETTLED_SECONDS]
            since, last_reads = dict(self._read_since), dict(self._last_reads)
        silent = {
            node
            for node in self.nodes
            if now - max((at for (of, _), at in last_reads.items() if of == node), default=-1e9) > SILENT_SECONDS
        }
        answering = [node for node in self.nodes if node not in silent]
        faults = {(node, shard): NodeFault.UNREACHABLE for node in silent for shard in self.shards}
        for shard in self.shards:
            on_shard = [sound for sound in sounds if sound.shard == shard]
            deaf = {node for node in answering if _is_deaf(node, on_shard, since)}
            faults |= {(node, shard): NodeFault.DEAF for node in deaf}
            able = [node for node in answering if node not in deaf]
            hearing = {node for node in able if _has_heard(node, on_shard)}
            faults |= {(node, shard): NodeFault.MUTE for node in able if _is_mute(node, on_shard, hearing)}
        return faults

    def _forget(self, now: float) -> None:
        while self._sounds and next(iter(self._sounds.values())).at < now - WINDOW_SECONDS:
            self._sounds.popitem(last=False)


def _is_deaf(node: str, sounds: Iterable[_Sound], read_since: Mapping[tuple[str, str], float]) -> bool:
    """Return whether a node misses messages of a shard that others heard while it was read."""
    flags = [
        node in sound.nodes
        for sound in sounds
        if not sound.source and sound.nodes - {node} and read_since.get((node, sound.shard), sound.at + 1) <= sound.at
    ]
    return _is_below(flags, LEAST_HEARD)


def _has_heard(node: str, sounds: Iterable[_Sound]) -> bool:
    return any(node in sound.nodes and sound.source != node for sound in sounds)


def _is_mute(node: str, sounds: Iterable[_Sound], hearing: set[str]) -> bool:
    """Return whether no other node that hears a shard gets the messages that are published on a node."""
    listeners = hearing - {node}
    flags = [not listeners.isdisjoint(sound.nodes) for sound in sounds if sound.source == node]
    return bool(listeners) and _is_below(flags, LEAST_BEACONS)


def _is_below(flags: list[bool], least: int) -> bool:
    return len(flags) >= least and sum(flags) < LEAST_SHARE * len(flags)
