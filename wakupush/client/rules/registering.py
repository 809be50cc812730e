"""Registering with servers (71, Registering Client): keeps one registration in step at all servers. Sans-IO."""

import math
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Final

from wakupush.client.documents import AnswerName, Hex, Key, document
from wakupush.client.rules.backoff import Backoff
from wakupush.model.failures import Answer, Failure
from wakupush.model.platforms import TokenType
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol.grants import grant
from wakupush.protocol.hashing import shake256_64
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.query import Info
from wakupush.protocol.registration import RegistrationResponse, device_faults, request_id, seal_registration
from wakupush.protocol.sealing import seal

#: Greatest version of a registration.
MOST_VERSION = 2**64 - 1
#: Waits for an answer before a registration is sent again; one that failed temporarily waits as long.
BACKOFF = Backoff(first=5.0, most=3600.0)
#: Seconds after which a client registers everything again; up to a seventh sooner, so that clients spread out.
#: No access token is older than twice that.
RENEW_SECONDS = 7 * 86_400.0
#: Seconds after which a client asks servers about itself; up to a seventh sooner.
CHECK_SECONDS = 86_400.0
#: Waits before a client registers again with a server that lost it again: the first time in a week there is none.
#: A device token that Apple or Google do not know any more dies again with the next push.
REPAIR_BACKOFF = Backoff(first=60.0, most=BACKOFF.most)


_DEVICE_FAULTS: Final = {
    Failure.DEVICE_TOKEN_INVALID: "there is no device token, or it has characters that no token has",
    Failure.APN_TOPIC_INVALID: "a device of APNs needs an APN topic: the bundle id of the app",
    Failure.REGISTRATION_TOO_LARGE: "the device token or the APN topic is too long",
}


@document
@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The device token that Apple or Google gave this installation."""

    token_type: TokenType
    device_token: str = field(repr=False)
    #: The app's bundle id; needed for `TokenType.APN` only.
    apn_topic: str = ""

    def __post_init__(self) -> None:
        """Check what a server would refuse without naming the field.

        Raises:
            ValueError: the text says what is wrong, and quotes nothing.
        """
        message = PushNotificationRegistration(
            token_type=PushNotificationRegistration.TokenType.ValueType(self.token_type),
            device_token=self.device_token,
            apn_topic=self.apn_topic,
        )
        if fault := next(device_faults(message), None):
            raise ValueError(_DEVICE_FAULTS[fault])


@document
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The users and chats that may notify. Chats are given by their ids; the client sends hashes."""

    #: False: registered, but nothing is sent to this device.
    enabled: bool = True
    #: True: only `contacts` learn the access token.
    contacts_only: bool = False
    contacts: tuple[Key, ...] = field(repr=False, default=())
    blocked_chats: tuple[str, ...] = field(repr=False, default=())
    blocked_users: tuple[Key, ...] = field(repr=False, default=())
    muted_chats: tuple[str, ...] = field(repr=False, default=())
    block_mentions: bool = False
    #: Chats whose mentions are wanted.
    mention_chats: tuple[str, ...] = field(repr=False, default=())


class Status(StrEnum):
    """The state of a registration at a server."""

    #: Something is to be sent, now or after a wait.
    DUE = "due"
    #: It was sent, and no answer has come yet.
    ASKED = "asked"
    REGISTERED = "registered"
    #: The server refused the registration: correct the cause first.
    REFUSED = "refused"
    UNREGISTERED = "unregistered"


@document
@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """This installation at one server."""

    server: Key
    #: Whether it is to be registered or unregistered there.
    wanted: bool = True
    status: Status = Status.DUE
    #: The version that was sent last; 0 if nothing was ever sent.
    version: int = 0
    #: The last message, to be sent again if necessary; empty if a new one is due.
    sealed: Hex = field(repr=False, default=b"")
    #: How often it was sent, and how often in a row the version was too low.
    attempts: int = 0
    mismatches: int = 0
    #: When it is sent, or sent again, in seconds since the epoch.
    next_at: float = 0.0
    #: The server's last error.
    error: AnswerName | None = None
    #: How often the server lost the registration, each time within a week of the last, and when it did so last, in
    #: seconds since the epoch.
    losses: int = 0
    lost_at: float = 0.0


@document
@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrarState:
    """The stored state of a registering client."""

    #: None: receiving is off, which is the default.
    device: Device | None = None
    options: Options = Options()
    #: A uuid; anybody who has it may notify.
    access_token: str = field(repr=False, default="")
    enrolments: tuple[Enrolment, ...] = ()
    #: When the client registers again, and since when it uses the access token, in seconds since the epoch. None
    #: if nothing was sent with the token yet.
    renew_at: float | None = None
    token_at: float | None = None
    #: When the client asks servers about itself, in seconds since the epoch; None: at once, if it is registered.
    check_at: float | None = None


class Registrar:
    """Keeps an installation registered with its servers, in the same state at all of them.

    Args:
        key: the key that registers; in anonymous mode not the chat key.
        installation_id: a uuid that never changes.
    """

    def __init__(self, key: PrivateKey, installation_id: str, state: RegistrarState, *, random: Random) -> None:
        self._key = key
        self._installation_id = installation_id
        self.state = state
        self._random = random

    def enable(self, device: Device) -> None:
        """Switch receiving on, or take over a new device token."""
        state = self.state
        if device != state.device:
            self._change(replace(state, device=device, access_token=state.access_token or str(uuid.uuid4())))

    def set_options(self, options: Options) -> None:
        """Change who may notify. A new access token replaces one that users had who may no longer notify."""
        before = self.state.options
        if options == before:
            return
        removed_contacts = set(before.contacts) - set(options.contacts)
        renew = options.contacts_only and (not before.contacts_only or bool(removed_contacts))
        state = replace(self.state, options=options)
        self._change(self._with_new_token(state) if renew and state.access_token else state)

    def set_servers(self, servers: Iterable[PublicKey]) -> None:
        """Be registered with these servers, and with no others."""
        unique = dict.fromkeys(servers)
        present = {enrolment.server for enrolment in self.state.enrolments}
        self._update(
            [
                *(_turn(enrolment, wanted=enrolment.server in unique) for enrolment in self.state.enrolments),
                *(Enrolment(server=server) for server in unique if server not in present),
            ]
        )

    def disable(self) -> None:
        """Switch receiving off and unregister everywhere: also to be done on logout."""
        self.state = replace(self.state, device=None, access_token="", renew_at=None, token_at=None)
        self._update(_turn(enrolment, wanted=False) for enrolment in self.state.enrolments)

    def try_again(self, now: float) -> None:
        """Ask at once servers without a final answer, and those that refused: the cause may have been corrected."""
        self._update(
            replace(_anew(enrolment), sealed=enrolment.sealed, next_at=now)
            if enrolment.status in {Status.DUE, Status.ASKED, Status.REFUSED}
            else enrolment
            for enrolment in self.state.enrolments
        )

    def due(self, now: float) -> list[Enrolment]:
        """Return the enrolments whose sealed messages to send now, and count these as sent."""
        if self._is_kept_registered:
            self._renew(now)
        asking = []
        for enrolment in self.state.enrolments:
            # A longer wait than the longest possible one means that the clock was set back.
            if self._is_pending(enrolment) and not now < enrolment.next_at <= now + BACKOFF.longest:
                attempts = enrolment.attempts + 1
                wait = BACKOFF.wait(attempts, self._random)
                sealed = self._seal(enrolment)
                asking.append(replace(sealed, status=Status.ASKED, attempts=attempts, next_at=now + wait))
                self._put(asking[-1])
        return asking

    def note_sent(self, asking: Enrolment, now: float) -> None:
        """Wait for the answer from now on: a light client may have needed seconds to send the registration."""
        for enrolment in self.state.enrolments:
            if (
                enrolment.server == asking.server
                and enrolment.sealed == asking.sealed
                and enrolment.status is Status.ASKED
            ):
                self._put(replace(enrolment, next_at=now + BACKOFF.wait(enrolment.attempts, self._random)))

    def take_answer(self, signer: PublicKey, response: RegistrationResponse, now: float) -> Enrolment | None:
        """Take a server's answer, and return the state there now; None if it answers nothing that we wait for.

        Args:
            now: seconds since the epoch.
        """
        enrolment = next((enrolment for enrolment in self.state.enrolments if enrolment.server == signer), None)
        is_ours = enrolment is not None and self._is_pending(enrolment) and bool(enrolment.sealed)
        if enrolment is None or not is_ours or response.request_id != request_id(enrolment.sealed):
            return None
        new_enrolment = self._judge(enrolment, response.error, now)
        self._put(new_enrolment)
        if new_enrolment.status is Status.REGISTERED:
            self.note_checked(now)
        return new_enrolment

    @property
    def registered_versions(self) -> dict[PublicKey, int]:
        """The version that each server has confirmed, of those that are to keep the registration."""
        return {
            enrolment.server: enrolment.version
            for enrolment in self.state.enrolments
            if self.state.device is not None and enrolment.wanted and enrolment.status is Status.REGISTERED
        }

    def seconds_to_check(self, now: float) -> float:
        """Return the seconds until the client asks servers about itself; infinite if it is registered nowhere."""
        if not self.registered_versions:
            return math.inf
        check_at = self.state.check_at
        # A longer wait than the longest possible one means that the clock was set back.
        return check_at - now if check_at is not None and now < check_at <= now + CHECK_SECONDS else 0.0

    def note_checked(self, now: float) -> None:
        """Ask servers about this installation in a day."""
        self.state = replace(self.state, check_at=now + self._random.uniform(6 / 7, 1.0) * CHECK_SECONDS)

    def check_soon(self) -> None:
        """Ask servers about this installation at once."""
        self.state = replace(self.state, check_at=None)

    def take_infos(
        self, server: PublicKey, infos: Iterable[Info], versions: Mapping[PublicKey, int], now: float
    ) -> Enrolment | None:
        """Take a server's answer to a query about this user, and return the state there if it lost the registration.

        A server leaves out devices whose token died. One that knows no other device of the user does not answer.

        Args:
            versions: `registered_versions` before the query was sent.
        """
        own_versions = [
            info.version
            for info in infos
            if info.key_hash == self._key.public_key.key_hash and info.installation_id == self._installation_id
        ]
        version = versions.get(server)
        if version is None or max(own_versions, default=-1) >= version:
            return None
        return self.note_loss(server, version, now)

    def note_loss(self, server: PublicKey, version: int, now: float) -> Enrolment | None:
        """Register again with a server that does not know a version any more, and return the state there.

        Returns None if the server is not to know that version any more.
        """
        enrolment = next((enrolment for enrolment in self.state.enrolments if enrolment.server == server), None)
        if enrolment is None or self.registered_versions.get(server) != version:
            return None
        losses = enrolment.losses if 0 <= now - enrolment.lost_at < RENEW_SECONDS else 0
        wait = REPAIR_BACKOFF.wait(losses, self._random) if losses else 0.0
        new_enrolment = replace(_anew(enrolment), next_at=now + wait, losses=losses + 1, lost_at=now)
        self._put(new_enrolment)
        return new_enrolment

    @property
    def next_at(self) -> float | None:
        """When to call `due` again, in seconds since the epoch."""
        times = [enrolment.next_at for enrolment in self.state.enrolments if self._is_pending(enrolment)]
        if self._is_kept_registered and self.state.renew_at is not None:
            times.append(self.state.renew_at)
        return min(times, default=None)

    @property
    def is_registering(self) -> bool:
        """Whether a server still has to confirm the present registration."""
        return any(enrolment.wanted and self._is_pending(enrolment) for enrolment in self.state.enrolments)

    def has_settled(self, servers: Collection[PublicKey] | None = None) -> bool:
        """Return whether these servers, or all, have given a final answer."""
        return not any(
            self._is_pending(enrolment)
            for enrolment in self.state.enrolments
            if servers is None or enrolment.server in servers
        )

    def infos(self) -> list[Info]:
        """Return the infos to advertise: the servers that have the present registration."""
        state = self.state
        lists = self._allowed_key_list() if state.options.contacts_only else ()
        public = self._key.public_key
        return [
            Info(
                key_hash=public.key_hash,
                installation_id=self._installation_id,
                version=enrolment.version,
                access_token="" if state.options.contacts_only else state.access_token,
                allowed_key_list=lists,
                grant=grant(self._key, enrolment.server, state.access_token),
                server_key=enrolment.server.compressed,
            )
            for enrolment in state.enrolments
            if enrolment.status is Status.REGISTERED
        ]

    def registration(self, device: Device, server: PublicKey, version: int) -> PushNotificationRegistration:
        """Return the content of a registration."""
        state, options = self.state, self.state.options
        return PushNotificationRegistration(
            token_type=PushNotificationRegistration.TokenType.ValueType(device.token_type),
            device_token=device.device_token,
            installation_id=self._installation_id,
            access_token=state.access_token,
            enabled=options.enabled,
            version=version,
            allowed_key_list=self._allowed_key_list() if options.contacts_only else (),
            blocked_chat_list=[
                *(shake256_64(chat.encode()) for chat in options.blocked_chats),
                *(user.author_hash for user in options.blocked_users),
            ],
            grant=grant(self._key, server, state.access_token),
            allow_from_contacts_only=options.contacts_only,
            apn_topic=device.apn_topic,
            block_mentions=options.block_mentions,
            allowed_mentions_chat_list=[shake256_64(chat.encode()) for chat in options.mention_chats],
            muted_chat_list=[shake256_64(chat.encode()) for chat in options.muted_chats],
        )

    def unregistration(self, server: PublicKey, version: int) -> PushNotificationRegistration:
        """Return the content of a registration that takes the earlier ones back."""
        return PushNotificationRegistration(
            installation_id=self._installation_id,
            version=version,
            unregister=True,
            grant=grant(self._key, server, ""),
        )

    @property
    def _is_kept_registered(self) -> bool:
        return self.state.device is not None and any(enrolment.wanted for enrolment in self.state.enrolments)

    def _renew(self, now: float) -> None:
        """Register everything again if it is time, with another access token unless the present one is young.

        Registrations do not expire, but a server may have marked a device token as dead, or lost its data.
        """
        state = replace(self.state, token_at=now if self.state.token_at is None else self.state.token_at)
        later = replace(state, renew_at=now + self._random.uniform(6 / 7, 1.0) * RENEW_SECONDS)
        if state.renew_at is None:
            self.state = later
        elif now < state.renew_at <= now + RENEW_SECONDS:
            self.state = state
        else:  # it is time, or the clock was set back
            is_young = state.token_at is not None and 0 <= now - state.token_at < RENEW_SECONDS
            self.state = later if is_young else replace(self._with_new_token(later), token_at=now)
            self._update(
                _anew(enrolment) if enrolment.wanted and enrolment.status is not Status.REFUSED else enrolment
                for enrolment in self.state.enrolments
            )

    def _with_new_token(self, state: RegistrarState) -> RegistrarState:
        return replace(state, access_token=str(uuid.uuid4()), token_at=None)

    def _allowed_key_list(self) -> tuple[bytes, ...]:
        token = self.state.access_token.encode()
        return tuple(seal(self._key.shared_key(contact), token) for contact in self.state.options.contacts)

    def _seal(self, enrolment: Enrolment) -> Enrolment:
        """Return an enrolment with a message to send: the last one if it is stored, or a new version."""
        if enrolment.sealed:
            return enrolment
        server, device = enrolment.server, self.state.device
        version = min(enrolment.version + 2**enrolment.mismatches, MOST_VERSION)
        if enrolment.wanted and device is not None:
            content = self.registration(device, server, version)
        else:
            content = self.unregistration(server, version)
        return replace(enrolment, version=version, sealed=seal_registration(content, self._key, server))

    def _judge(self, enrolment: Enrolment, error: Answer | None, now: float) -> Enrolment:
        enrolment = replace(enrolment, error=error)
        match error:
            case None:
                status = Status.REGISTERED if enrolment.wanted else Status.UNREGISTERED
                return replace(enrolment, status=status, sealed=b"", attempts=0, mismatches=0)
            case Answer.VERSION_MISMATCH if enrolment.version < MOST_VERSION:
                # The answer does not say how far off we are, so the steps double. A server that always says so is asked
                # slowly.
                wait = BACKOFF.wait(enrolment.mismatches, self._random) if enrolment.mismatches else 0.0
                return replace(
                    enrolment,
                    status=Status.DUE,
                    sealed=b"",
                    attempts=0,
                    mismatches=enrolment.mismatches + 1,
                    next_at=now + wait,
                )
            case Answer.INTERNAL_ERROR:
                return replace(
                    enrolment, status=Status.DUE, next_at=now + BACKOFF.wait(enrolment.attempts, self._random)
                )
        return replace(enrolment, status=Status.REFUSED, sealed=b"")

    def _is_pending(self, enrolment: Enrolment) -> bool:
        is_allowed = self.state.device is not None or not enrolment.wanted
        return is_allowed and enrolment.status in {Status.DUE, Status.ASKED}

    def _change(self, state: RegistrarState) -> None:
        self.state = state
        self._update(
            replace(_anew(enrolment), losses=0) if enrolment.wanted else enrolment for enrolment in state.enrolments
        )

    def _put(self, change: Enrolment) -> None:
        self._update(change if enrolment.server == change.server else enrolment for enrolment in self.state.enrolments)

    def _update(self, enrolments: Iterable[Enrolment]) -> None:
        self.state = replace(self.state, enrolments=tuple(enrolments))


def _anew(enrolment: Enrolment) -> Enrolment:
    return replace(enrolment, status=Status.DUE, sealed=b"", attempts=0, mismatches=0, next_at=0.0, error=None)


def _turn(enrolment: Enrolment, *, wanted: bool) -> Enrolment:
    """Return an enrolment that is wanted from now on, or no longer."""
    if enrolment.wanted == wanted:
        return enrolment
    new_enrolment = replace(_anew(enrolment), wanted=wanted)
    return new_enrolment if wanted or enrolment.version else replace(new_enrolment, status=Status.UNREGISTERED)
