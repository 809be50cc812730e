"""The events that a client reports to its app while it runs."""

from dataclasses import dataclass

from wakupush.client.rules.acquaintances import Acquaintance
from wakupush.client.rules.registering import Enrolment


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A server has answered a registration: the state there now."""

    enrolment: Enrolment


@dataclass(frozen=True, slots=True)
class Lost:
    """A server does not know the registration any more, and the client registers again.

    Often the device token died: ask Apple or Google for it, and pass a new one to `Client.enable_receiving`.
    """

    enrolment: Enrolment


@dataclass(frozen=True, slots=True)
class Advertised:
    """The contact code was advertised, with so many entries."""

    infos: int


@dataclass(frozen=True, slots=True)
class Learned:
    """Something was learned of a user."""

    acquaintance: Acquaintance


@dataclass(frozen=True, slots=True)
class Unsent:
    """Something could not be handed to the node, or not be stored. It is tried again, except a query of `notify`."""

    error: str


Event = Enrolled | Lost | Advertised | Learned | Unsent
