"""What strangers send, and the ways in which it may be refused."""

from functools import partial

import pytest

from wakupush.protocol import registration
from wakupush.protocol.errors import Refused
from wakupush.protocol.keys import PrivateKey

CLIENT, SERVER = PrivateKey(b"\1" * 32), PrivateKey(b"\2" * 32)
SHARED = CLIENT.shared_key(SERVER.public_key)
TOKEN = "0fd8121c-34b8-4ceb-b88e-5acbf94501ad"
open_registration = partial(registration.open_registration, most_bytes=10_000)


def attempt(call, *args, allowed=Refused):
    """Return the value, None where the call raises what it may; anything else that it raises fails the test."""
    try:
        return call(*args)
    except allowed:
        return None


def failure_of(call, *args, **kwargs):
    """Return the failure with which a call refuses what it is given."""
    with pytest.raises(Refused) as refused:
        call(*args, **kwargs)
    return refused.value.failure
