"""secp256k1 by raw calls of libsecp256k1 through coincurve's private bindings.

coincurve's own objects compute each value several times: a new key costs them four multiplications, where one is
needed. The tests compare these calls with those objects.
"""

import threading
from types import TracebackType
from typing import Any, Final

from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT

from wakupush.protocol.secp256k1_constants import (
    COMPRESSED_BYTES,
    PRIVATE_BYTES,
    RECOVERY_IDS,
    SIGNATURE_BYTES,
    UNCOMPRESSED_BYTES,
    Point,
)

_CTX: Final = GLOBAL_CONTEXT.ctx
# Names of C types are parsed once.
_POINT, _SIGNATURE, _INT, _SIZE, _X, _RS, _SHORT, _LONG = map(
    ffi.typeof,
    (
        "secp256k1_pubkey *",
        "secp256k1_ecdsa_recoverable_signature *",
        "int *",
        "size_t *",
        "unsigned char[32]",
        "unsigned char[64]",
        "unsigned char[33]",
        "unsigned char[65]",
    ),
)


def is_secret(secret: bytes) -> bool:
    """Return whether bytes are a private key: 32 of them, above zero and below the order of the group."""
    return len(secret) == PRIVATE_BYTES and bool(lib.secp256k1_ec_seckey_verify(_CTX, secret))


def point_of(secret: bytes) -> Point:
    """Return the public key of a private key (32 bytes)."""
    point = ffi.new(_POINT)
    lib.secp256k1_ec_pubkey_create(_CTX, point, secret)
    return Point(point)


def parse(data: bytes) -> Point | None:
    """Return the point that these 33 or 65 bytes encode, None if they encode no point."""
    point = ffi.new(_POINT)
    return Point(point) if lib.secp256k1_ec_pubkey_parse(_CTX, point, data, len(data)) else None


def compressed(point: Point) -> bytes:
    """Return the 33 bytes of a point."""
    return _serialise(point, _SHORT, COMPRESSED_BYTES, lib.SECP256K1_EC_COMPRESSED)


def uncompressed(point: Point) -> bytes:
    """Return the 65 bytes of a point, ``04`` first."""
    return _serialise(point, _LONG, UNCOMPRESSED_BYTES, lib.SECP256K1_EC_UNCOMPRESSED)


def shared_x(point: Point, secret: bytes) -> bytes | None:
    """Return the ECDH X coordinate, 32 bytes with its leading zeros, in constant time; None if a key is not valid.

    Raises:
        BaseException: a signal handler raised this during the call: `KeyboardInterrupt`, or Celery's soft time limit.
    """
    x_bytes = ffi.new(_X)
    # The plain multiplication runs in variable time, which a server's long-lived key must not use.
    if lib.secp256k1_ecdh(_CTX, x_bytes, point, secret, _copy_x, ffi.NULL):
        return bytes(ffi.buffer(x_bytes))
    error, _interruption.error = _interruption.error, None
    if error is not None:
        raise error
    return None


def sign(digest: bytes, secret: bytes) -> bytes:
    """Return the recoverable signature r | s | v (65 bytes, v 0 or 1, low s, RFC 6979) of a digest (32 bytes)."""
    signature, compact, recovery_id = ffi.new(_SIGNATURE), ffi.new(_RS), ffi.new(_INT)
    lib.secp256k1_ecdsa_sign_recoverable(_CTX, signature, digest, secret, ffi.NULL, ffi.NULL)
    lib.secp256k1_ecdsa_recoverable_signature_serialize_compact(_CTX, compact, recovery_id, signature)
    return bytes(ffi.buffer(compact)) + bytes((recovery_id[0],))


def recover(digest: bytes, signature: bytes) -> Point | None:
    """Return the key that signed a digest (32 bytes) with r | s | v (65 bytes, v 0 to 3); None if no key did."""
    if len(signature) != SIGNATURE_BYTES or signature[64] not in RECOVERY_IDS:
        return None
    native_signature, point = ffi.new(_SIGNATURE), ffi.new(_POINT)
    if not lib.secp256k1_ecdsa_recoverable_signature_parse_compact(_CTX, native_signature, signature, signature[64]):
        return None
    return Point(point) if lib.secp256k1_ecdsa_recover(_CTX, point, native_signature, digest) else None


def _serialise(point: Point, kind: Any, length: int, flags: int) -> bytes:
    out = ffi.new(kind)
    lib.secp256k1_ec_pubkey_serialize(_CTX, out, ffi.new(_SIZE, length), point, flags)
    return bytes(ffi.buffer(out))


class _Interruption(threading.local):
    error: BaseException | None = None


_interruption = _Interruption()


def _keep(_kind: type[BaseException], error: BaseException, _traceback: TracebackType) -> None:
    _interruption.error = error


# Signal handlers run as soon as C calls Python, so mostly here. What they raise cannot pass through C: cffi would
# print it and go on.
@ffi.callback("int(unsigned char *, const unsigned char *, const unsigned char *, void *)", onerror=_keep)  # type: ignore[untyped-decorator]  # cffi has no types
def _copy_x(output: Any, x: Any, _y: Any, _data: Any) -> int:
    ffi.memmove(output, x, 32)
    return 1
