"""The account of a client."""

from __future__ import annotations

from dataclasses import dataclass

from wakupush.protocol.keys import PrivateKey


@dataclass(frozen=True, slots=True)
class Account:
    """A user on one device.

    In anonymous mode `push_key` is not the chat key. Servers learn only `push_key`, which is a secret between the user
    and those who may notify.
    """

    #: The chat key.
    key: PrivateKey
    #: A uuid.
    installation_id: str
    #: The key that registers and is notified.
    push_key: PrivateKey

    @classmethod
    def of(cls, key: PrivateKey, installation_id: str, push_key: PrivateKey | None = None) -> Account:
        """Return an account; it is anonymous if a push key is given."""
        return cls(key, installation_id, push_key or key)

    @property
    def is_anonymous(self) -> bool:
        """Whether servers do not learn the chat key."""
        return self.push_key is not self.key
