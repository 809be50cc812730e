"""The operations of secp256k1: raw calls of libsecp256k1, or public objects where another coincurve has moved these."""

from wakupush.protocol.secp256k1_constants import ORDER, PRIME, RECOVERY_IDS, SIGNATURE_BYTES

try:
    from wakupush.protocol.secp256k1_raw import (
        compressed,
        is_secret,
        parse,
        point_of,
        recover,
        shared_x,
        sign,
        uncompressed,
    )
except (AttributeError, ImportError):
    from wakupush.protocol.secp256k1_public import (
        compressed,
        is_secret,
        parse,
        point_of,
        recover,
        shared_x,
        sign,
        uncompressed,
    )

__all__ = [
    "compressed",
    "is_recoverable",
    "is_secret",
    "parse",
    "point_of",
    "recover",
    "shared_x",
    "sign",
    "uncompressed",
]


def is_recoverable(signature: bytes) -> bool:
    """Return whether `recover` finds a key by this signature (65 bytes), at a tenth of its cost.

    There is one exception: a signer can make a signature whose key would be the point at infinity. Nobody else can.
    """
    if len(signature) != SIGNATURE_BYTES or signature[64] not in RECOVERY_IDS:
        return False
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    x = r if signature[64] < 2 else r + ORDER  # noqa: PLR2004 - bit 1: X was beyond the order
    return 0 < r < ORDER and 0 < s < ORDER and x < PRIME and parse(b"\2" + x.to_bytes(32, "big")) is not None
