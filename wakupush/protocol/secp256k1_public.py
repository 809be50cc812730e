"""secp256k1 by public objects: slower than `raw`, whose functions these are."""

from typing import cast

import coincurve
from cryptography.hazmat.primitives.asymmetric import ec

from wakupush.protocol.secp256k1_constants import PRIVATE_BYTES, RECOVERY_IDS, SIGNATURE_BYTES, Point


def is_secret(secret: bytes) -> bool:
    """Return whether bytes are a private key: 32 of them, above zero and below the order of the group."""
    if len(secret) != PRIVATE_BYTES:
        return False
    try:
        coincurve.PrivateKey(secret)
    except ValueError:
        return False
    return True


def point_of(secret: bytes) -> Point:
    """Return the public key of a private key (32 bytes)."""
    return Point(coincurve.PrivateKey(secret).public_key)


def parse(data: bytes) -> Point | None:
    """Return the point that these 33 or 65 bytes encode, None if they encode no point."""
    try:
        return Point(coincurve.PublicKey(data))
    except ValueError:
        return None


def compressed(point: Point) -> bytes:
    """Return the 33 bytes of a point."""
    return cast("coincurve.PublicKey", point).format(compressed=True)


def uncompressed(point: Point) -> bytes:
    """Return the 65 bytes of a point, ``04`` first."""
    return cast("coincurve.PublicKey", point).format(compressed=False)


def shared_x(point: Point, secret: bytes) -> bytes | None:
    """Return the ECDH X coordinate, 32 bytes with its leading zeros, in constant time; None if a key is not valid."""
    # coincurve's multiplication runs in variable time, which a server's long-lived key must not use.
    if not is_secret(secret):
        return None
    curve = ec.SECP256K1()
    own = ec.derive_private_key(int.from_bytes(secret, "big"), curve)
    return own.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(curve, uncompressed(point)))


def sign(digest: bytes, secret: bytes) -> bytes:
    """Return the recoverable signature r | s | v (65 bytes, v 0 or 1, low s, RFC 6979) of a digest (32 bytes)."""
    return coincurve.PrivateKey(secret).sign_recoverable(digest, hasher=None)


def recover(digest: bytes, signature: bytes) -> Point | None:
    """Return the key that signed a digest (32 bytes) with r | s | v (65 bytes, v 0 to 3); None if no key did."""
    if len(signature) != SIGNATURE_BYTES or signature[64] not in RECOVERY_IDS:
        return None
    try:
        return Point(coincurve.PublicKey.from_signature_and_message(signature, digest, hasher=None))
    except Exception:  # noqa: BLE001 - it raises bare ones
        return None
