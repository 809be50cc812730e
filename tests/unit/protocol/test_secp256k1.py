"""The raw calls of libraries do what their public objects do, which take their place where they are gone."""

import os
import signal
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakupush.model.failures import Failure
from wakupush.protocol import application, payload, secp256k1
from wakupush.protocol import secp256k1_public as public
from wakupush.protocol import secp256k1_raw as raw
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256, keccak256_public
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.payload import Payload, Signature

secrets = st.integers(1, secp256k1.ORDER - 1).map(lambda number: number.to_bytes(32, "big"))
digests = st.binary(min_size=32, max_size=32)
#: Numbers at the edges of the group and of the field, and any others.
numbers = st.one_of(
    st.sampled_from(
        [0, 1, 2, 5, *(edge + by for edge in (secp256k1.ORDER, secp256k1.PRIME) for by in (-2, -1, 0, 1)), 2**256 - 1]
    ),
    st.integers(0, 2**256 - 1),
    st.integers(0, secp256k1.PRIME - secp256k1.ORDER),
)
SECRET = bytes(range(1, 33))


def test_raw_calls_are_where_they_were():
    assert secp256k1.parse is raw.parse
    assert keccak256 is not keccak256_public


@given(st.binary(max_size=1000))
def test_hashes(data):
    assert keccak256(data) == keccak256_public(data)


@given(secrets)
def test_keys(secret):
    point, public_point = raw.point_of(secret), public.point_of(secret)
    assert raw.is_secret(secret)
    assert public.is_secret(secret)
    for written, other in ((raw.compressed, public.compressed), (raw.uncompressed, public.uncompressed)):
        assert written(point) == other(public_point)
        assert raw.uncompressed(raw.parse(written(point))) == public.uncompressed(public.parse(other(public_point)))


@pytest.mark.parametrize("module", [raw, public])
@pytest.mark.parametrize("number", [0, secp256k1.ORDER, secp256k1.ORDER + 1, 2**256 - 1])
def test_what_is_no_secret(module, number):
    assert not module.is_secret(number.to_bytes(32, "big"))
    assert not module.is_secret(SECRET[:31])
    assert not module.is_secret(SECRET + b"\0")


@given(st.sampled_from([b"\2", b"\3", b"\4", b"\5"]), st.binary(max_size=70))
def test_what_is_no_point(first, rest):
    point, public_point = raw.parse(first + rest), public.parse(first + rest)
    assert (public_point and public.compressed(public_point)) == (point and raw.compressed(point))


@given(secrets, secrets)
def test_shared_keys(ours, theirs):
    assert raw.shared_x(raw.point_of(theirs), ours) == public.shared_x(public.point_of(theirs), ours)


@pytest.mark.parametrize("module", [raw, public])
def test_no_secret_shares_nothing(module):
    assert module.shared_x(module.point_of(SECRET), bytes(32)) is None


class InterruptedByTestError(Exception):
    """What the signal handler of the next test raises."""


def test_errors_of_signal_handlers_leave_key_agreement():
    # As for Ctrl-C and Celery's soft time limit. Most of the time goes into C, which an exception cannot pass.
    point = secp256k1.point_of(SECRET)
    shared = secp256k1.shared_x(point, SECRET)
    raised_below = set()

    def interrupt(_number, frame):
        raised_below.add(frame.f_code.co_name)
        raise InterruptedByTestError

    def compute_for_ever():
        for expected in repeat(shared):
            assert secp256k1.shared_x(point, SECRET) == expected

    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        for _ in range(100):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)
            with pytest.raises(InterruptedByTestError):
                compute_for_ever()
            assert secp256k1.shared_x(point, SECRET) == shared
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert "_copy_x" in raised_below


@given(secrets, digests)
def test_signatures(secret, digest):
    signature = raw.sign(digest, secret)
    assert signature == public.sign(digest, secret)
    signer = raw.compressed(raw.recover(digest, signature))
    assert signer == public.compressed(public.recover(digest, signature)) == raw.compressed(raw.point_of(secret))
    assert secp256k1.is_recoverable(signature)


@given(numbers, numbers, st.integers(0, 255), digests)
def test_signatures_of_strangers(r, s, v, digest):
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big") + bytes([v])
    point, public_point = raw.recover(digest, signature), public.recover(digest, signature)
    assert (public_point and public.compressed(public_point)) == (point and raw.compressed(point))
    assert secp256k1.is_recoverable(signature) == (point is not None)


@given(st.binary(max_size=70), digests)
def test_signatures_of_any_length(signature, digest):
    if len(signature) != secp256k1.SIGNATURE_BYTES:
        assert not secp256k1.is_recoverable(signature)
        assert raw.recover(digest, signature) is public.recover(digest, signature) is None


def without_signer(digest):
    """Return a signature whose key would be the point at infinity, as one can make who chooses its nonce."""
    nonce = 7
    point = secp256k1.uncompressed(secp256k1.point_of(nonce.to_bytes(32, "big")))
    x, y = int.from_bytes(point[1:33], "big"), int.from_bytes(point[33:], "big")
    s = int.from_bytes(digest, "big") * pow(nonce, -1, secp256k1.ORDER) % secp256k1.ORDER
    return (x % secp256k1.ORDER).to_bytes(32, "big") + s.to_bytes(32, "big") + bytes([y & 1])


def test_invalid_signer_fails_on_access():
    signature = without_signer(keccak256(b"signed"))
    assert secp256k1.is_recoverable(signature)
    assert secp256k1.recover(keccak256(b"signed"), signature) is None
    sender = PrivateKey(SECRET)
    signed = application.wrap(Type.PUSH_NOTIFICATION_REQUEST, b"inner", sender)
    opened = application.read(Payload(signed, Signature(b"signed", signature)))
    assert opened.signer == sender.public_key
    with pytest.raises(Refused) as refused:
        application.read(Payload(b"\x12\x05inner", Signature(b"signed", signature)))
    assert refused.value.failure is Failure.SIGNATURE_INVALID


@pytest.mark.parametrize("size", [0, 1, 500])
def test_signer_is_recovered_on_access(size):
    data, signer = os.urandom(size), PrivateKey(SECRET)
    assert payload.decode(payload.encode(data, signer)).signer == signer.public_key
    assert payload.decode(payload.encode(data)).signer is None


def test_impossible_signature_is_refused():
    encoded = payload.encode(b"data", PrivateKey(SECRET))
    for r in (0, 5, secp256k1.ORDER):  # 5 is no X coordinate
        with pytest.raises(Refused) as refused:
            payload.decode(encoded[:-65] + r.to_bytes(32, "big") + encoded[-33:])
        assert refused.value.failure is Failure.SIGNATURE_INVALID
