"""How a client behaves, as its app decides."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How a client behaves."""

    #: Devices of a user that are notified at most; the specification asks for at least 3.
    most_devices: int = 3
    #: Seconds between two advertisements.
    advertise_every: float = 6 * 3600.0
    #: True: registers with a separate key instead of the chat key. The first use of an account decides.
    anonymous: bool = False
    #: A messenger's own ProtocolMessage with the bundles of its contact code, which goes with each advertisement. Not
    #: in anonymous mode: servers would learn the chat key from it.
    contact_code: bytes = field(repr=False, default=b"")

    def __post_init__(self) -> None:
        if self.most_devices < 3:  # noqa: PLR2004 - the specification's number
            raise ValueError("at least 3 devices are to be notified")
