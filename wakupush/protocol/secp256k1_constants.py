"""The sizes of secp256k1."""

from typing import Final, NewType

#: A parsed public key, as the library has it.
Point = NewType("Point", object)

COMPRESSED_BYTES, UNCOMPRESSED_BYTES, PRIVATE_BYTES, SIGNATURE_BYTES = 33, 65, 32, 65
#: Order of the group, and prime of the field.
ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
PRIME: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEFFFFFC2F
#: The last byte of a signature: which of the points with its X coordinate is meant.
RECOVERY_IDS: Final = range(4)
