"""Devices: the registrations of users, and the rows that the server makes of them."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from wakupush.model.platforms import Platform, TokenType


@dataclass(frozen=True, slots=True, order=True)
class Installation:
    """A device of a user: the key of most tables."""

    #: SHAKE-256 of the user's key, 64 bytes.
    key_hash: bytes
    #: Keyed hash of the installation id, 16 bytes.
    installation_hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A registration that passed every check; an unregistration has its first two fields alone."""

    installation_id: str
    #: 1 to 2^64 - 1.
    version: int
    token_type: TokenType
    device_token: str = field(repr=False)
    access_token: str = field(repr=False)
    #: 65 bytes.
    grant: bytes = field(repr=False)
    enabled: bool
    apn_topic: str
    allow_from_contacts_only: bool
    block_mentions: bool
    allowed_key_list: tuple[bytes, ...] = field(repr=False)
    blocked_chat_list: tuple[bytes, ...] = field(repr=False)
    muted_chat_list: tuple[bytes, ...] = field(repr=False)
    allowed_mentions_chat_list: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregistration:
    """A registration with `unregister` set: nothing but its version counts."""

    installation_id: str
    version: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored version of an installation, with which a new registration is compared."""

    version: int
    #: Keyed digest of the request id, 16 bytes.
    request_digest: bytes
    registered: bool
    #: True where the platform said that the device token is gone.
    token_died: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A registration or unregistration to be stored."""

    installation: Installation
    request_digest: bytes
    registration: Registration | Unregistration
    #: The app that a registration is for; empty if the server does not tell apps apart.
    app: str = ""
    #: Id (8 bytes) of the server's key that it was sealed to and that its grant names; None for the root.
    server_key: bytes | None = None

    @property
    def row(self) -> Stored:
        """What decides whether a later registration is newer."""
        return Stored(self.registration.version, self.request_digest, isinstance(self.registration, Registration))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationRow:
    """A registration's row as the database holds it: its secrets are sealed, its lists of chats are digests."""

    installation: Installation
    version: int
    #: Keyed digest of the request id, 16 bytes; empty if no registration counts as its repeat.
    request_digest: bytes
    registered: bool
    #: None in an unregistered row, as are all fields below.
    token_type: TokenType | None
    enabled: bool | None
    allow_from_contacts_only: bool | None
    block_mentions: bool | None
    sealed_device: bytes | None = field(repr=False)
    sealed_allowed_key_list: bytes | None = field(repr=False)
    blocked_chat_digests: bytes | None = field(repr=False)
    muted_chat_digests: bytes | None = field(repr=False)
    allowed_mentions_chat_digests: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class AnswerSizes:
    """What is known of users, by key hash, before their devices are loaded."""

    #: Bytes that an answer tells of each user with devices, at most.
    bytes_by_user: Mapping[bytes, int] = field(default_factory=dict)
    #: The users with a device that a push once reached.
    proven: AbstractSet[bytes] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriedDevice:
    """The part of a registered device that a query may reveal."""

    #: 64 bytes.
    key_hash: bytes
    #: Id of the server's key that the grant names, see `Change`.
    server_key: bytes | None = None
    installation_id: str
    version: int
    access_token: str = field(repr=False)
    #: 65 bytes.
    grant: bytes = field(repr=False)
    allow_from_contacts_only: bool
    allowed_key_list: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """The names in a notification, as keyed digests of 16 bytes: see `wakupush.protocol.at_rest`."""

    installation: Installation
    #: Empty if the device already gave its access token to contacts only: a newer token is then no reason to stop.
    access_token: bytes = field(repr=False)
    chat: bytes = field(repr=False)
    author: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """The preferences of a registered device that concern one notification."""

    #: Whether the notification has the device's access token; if not, nothing below was looked up.
    token_fits: bool
    #: True where the platform said that the device token is gone.
    token_died: bool
    enabled: bool = False
    block_mentions: bool = False
    #: Whether the author is in blocked_chat_list, and in which of the lists the chat is.
    author_blocked: bool = False
    chat_blocked: bool = False
    chat_muted: bool = False
    mention_allowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a notification is sent to."""

    version: int
    installation_id: str
    platform: Platform
    device_token: str = field(repr=False)
    apn_topic: str
    #: Whether the platform doubted the device token lately.
    suspected: bool = False
    #: Whether the platform ever took a push to it; if not, a stranger may have made the token up.
    proven: bool = False


@dataclass(frozen=True, slots=True)
class Receiver:
    """A registered device that a push request names."""

    preferences: Preferences
    #: None if the access token is wrong.
    target: Target | None
    #: Whether it gives its access token to contacts only.
    contacts_only: bool = False
