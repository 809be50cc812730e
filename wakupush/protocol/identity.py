"""The server's keys: those that clients know, and those that are derived from its root."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from wakupush.model.platforms import Platform
from wakupush.model.registrations import Installation, Target
from wakupush.protocol import topics
from wakupush.protocol.at_rest import AtRest
from wakupush.protocol.keys import InvalidKeyError, PrivateKey, PublicKey

_DIGEST_BYTES = 16
_KEY_ID_BYTES = 8
_TRACE_BYTES = 8


@dataclass(frozen=True, slots=True)
class Identity:
    """The server's key pairs, and keys derived by HKDF from its root, which no rotation changes.

    A server whose key was never rotated has one key, which is its root, too.
    """

    #: With which clients register now.
    private_key: PrivateKey
    #: With which clients registered before; what they send to these keys is still read and answered.
    previous: tuple[PrivateKey, ...]
    root: PrivateKey
    #: The keys to which messages on a content topic of the server's own may be sealed.
    by_topic: Mapping[str, tuple[PrivateKey, ...]]
    #: The public keys by the ids that registrations have of them, see `id_of`.
    by_id: Mapping[bytes | None, PublicKey]
    #: Makes the key of a purpose, 32 bytes.
    _derive: Callable[[str], bytes] = field(repr=False)
    #: Seals messages that one worker opened and another one handles. It is derived from today's key, and goes with it.
    opened_key: bytes = field(repr=False)
    #: Seals segments while `rebuild` puts them together.
    segment_key: bytes = field(repr=False)
    #: Seals the data that a job of the pipeline hands to its executors, which have the private key too.
    pipeline_key: bytes = field(repr=False)
    #: Keys that seal columns of the database.
    at_rest: AtRest = field(repr=False)

    @classmethod
    def of(
        cls, private_key: PrivateKey, *, previous: tuple[PrivateKey, ...] = (), root: PrivateKey | None = None
    ) -> Identity:
        """Return the identity of private keys.

        Args:
            private_key: the key of today.
            previous: keys of before that are not retired.
            root: None if no key ever took the place of this one.
        """
        root = root or private_key
        keys = private_key, *previous
        derive = partial(_derive, root)
        return cls(
            private_key,
            previous,
            root,
            _by_topic(keys),
            {_key_id(key.public_key, root): key.public_key for key in keys},
            _derive=cache(derive),
            opened_key=_derive(private_key, "opened"),
            segment_key=derive("segment"),
            pipeline_key=derive("pipeline"),
            at_rest=AtRest.of(derive),
        )

    @property
    def public_key(self) -> PublicKey:
        """The key that clients register with."""
        return self.private_key.public_key

    @property
    def keys(self) -> tuple[PrivateKey, ...]:
        """Today's key, and the previous ones."""
        return self.private_key, *self.previous

    def key_of(self, public_key: PublicKey) -> PrivateKey:
        """Return the private key of one of the server's public keys.

        Raises:
            KeyError: it is none of them.
        """
        for key in self.keys:
            if key.public_key == public_key:
                return key
        raise KeyError("the server does not hold the private key of this public key")

    def id_of(self, public_key: PublicKey) -> bytes | None:
        """Return the id (8 bytes) by which a registration names the key of its grant; None stands for the root."""
        return _key_id(public_key, self.root)

    def installation(self, key_hash: bytes, installation_id: str) -> Installation:
        """Return the key of an installation's rows: its id is kept as a keyed hash (16 bytes)."""
        return Installation(key_hash, _digest(self._derive("installation id"), key_hash, installation_id.encode()))

    def request_digest(self, request_id: bytes) -> bytes:
        """Return the keyed digest (16 bytes) by which a repeated registration is recognised."""
        return _digest(self._derive("request id"), request_id)

    def device_digest(self, target: Target) -> bytes:
        """Return the keyed digest (16 bytes) of a device, the same for every user who registers it.

        It covers all by which a platform finds the device: for APNs, the same token with another topic is another one.
        """
        topic = target.apn_topic if target.platform is Platform.IOS else ""
        parts = bytes([target.platform]), topic.encode(), target.device_token.encode()
        return _digest(self._derive("device"), *parts)

    def thread_id(self, installation: Installation, chat_id: bytes) -> str:
        """Return the name (32 hex digits) under which a device shows the notifications of a chat together.

        Each installation has its own, so that Apple cannot tell who shares a chat.
        """
        return _digest(self._derive("thread"), installation.key_hash, installation.installation_hash, chat_id).hex()

    def pseudonyms(self, installation: Installation, period: int) -> tuple[bytes, bytes]:
        """Return the pseudonyms (16 bytes each) of a user and an installation in events of a period.

        Args:
            period: its number, see `wakupush.model.events.period_of`.
        """
        return _pseudonyms(self._derive("pseudonym"), installation, period)

    def user_pseudonym(self, key_hash: bytes, period: int) -> bytes:
        """Return the pseudonym (16 bytes) of a user in events of a period."""
        return _digest(self._derive("pseudonym"), _number(period), key_hash)

    def queried_pseudonym(self, key_hash: bytes, period: int) -> bytes:
        """Return the pseudonym (16 bytes) of a user in a period's events of queries; no other event has it."""
        return _digest(self._derive("queried"), _number(period), key_hash)

    def pseudonym(self, key_hash: bytes) -> bytes:
        """Return the digest (16 bytes) of a user in the names of counters; no event has it."""
        return _digest(self._derive("pseudonym"), key_hash)

    def event_trace_id(self, trace_id: str) -> str:
        """Return the trace id that the stored events of a message have, 16 hex digits.

        Logs and spans have the message's own, which anyone who archives the network can compute.

        Args:
            trace_id: of the message, 16 hex digits.
        """
        return _digest(self._derive("trace"), trace_id.encode())[:_TRACE_BYTES].hex()


def parse(text: str) -> Identity:
    """Return the identity that a key file holds: a line with 64 hex digits, and after a rotation some more.

    These begin with ``previous`` or ``root``, a space, and 64 hex digits; see `to_text`.

    Raises:
        InvalidKeyError: it is not written so; the text repeats nothing of it.
    """
    first, *lines = text.strip().split("\n")
    others: dict[str, list[PrivateKey]] = {"previous": [], "root": []}
    for line in filter(None, map(str.strip, lines)):
        name, _, digits = line.partition(" ")
        if name not in others:
            raise InvalidKeyError("a line after the first begins with neither `previous` nor `root`")
        others[name].append(PrivateKey.from_hex(digits.strip()))
    if len(others["root"]) > 1:
        raise InvalidKeyError("it names two roots")
    return Identity.of(
        PrivateKey.from_hex(first.strip()), previous=tuple(others["previous"]), root=next(iter(others["root"]), None)
    )


def to_text(identity: Identity) -> str:
    """Return the text of a key file, see `parse`. It is secret."""
    lines = [identity.private_key.secret.hex(), *(f"previous {key.secret.hex()}" for key in identity.previous)]
    if identity.root.public_key != identity.public_key:
        lines.append(f"root {identity.root.secret.hex()}")
    return "\n".join(lines) + "\n"


def _key_id(public_key: PublicKey, root: PrivateKey) -> bytes | None:
    return None if public_key == root.public_key else public_key.key_hash[:_KEY_ID_BYTES]


def _by_topic(keys: tuple[PrivateKey, ...]) -> dict[str, tuple[PrivateKey, ...]]:
    by_topic: dict[str, tuple[PrivateKey, ...]] = {}
    for key in keys:
        for topic in topics.server_content_topics(key.public_key):
            by_topic[topic] = (*by_topic.get(topic, ()), key)
    return by_topic


def _derive(private_key: PrivateKey, name: str) -> bytes:
    info = b"wakupush/1 " + name.encode()
    return HKDF(SHA256(), length=32, salt=None, info=info).derive(private_key.secret)


@lru_cache(maxsize=4096)
def _pseudonyms(key: bytes, installation: Installation, period: int) -> tuple[bytes, bytes]:
    """Return both pseudonyms; cached, because each event of a delivery asks for them."""
    user = _number(period), installation.key_hash
    return _digest(key, *user), _digest(key, *user, installation.installation_hash)


def _number(period: int) -> bytes:
    return period.to_bytes(8, "big", signed=True)


def _digest(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")[:_DIGEST_BYTES]
