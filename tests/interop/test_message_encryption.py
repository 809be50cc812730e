"""Sealed messages are opened by an independent implementation of 26/WAKU2-PAYLOAD, and its messages by this one.

The other side is npm's ``@waku/message-encryption`` (js-waku), run by Node.js in ``peer.js``, through the encoders and
decoders that clients use. Compared are the payload of a WakuMessage, in both directions, what is refused, and who
signed. Not compared are the other fields of a WakuMessage (the node's REST interface carries those here), the keys of
symmetric topics (js-waku derives none) and what lies inside of the data. Where the two differ, `DIFFERENCES` says how.
"""

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from wakupush.model.failures import Failure
from wakupush.protocol import ecies, payload
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256
from wakupush.protocol.keys import PrivateKey, PublicKey

HERE = Path(__file__).parent
OLDEST_NODE = 20


def missing():
    """What to install before these tests can run."""
    node = shutil.which("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout if node else ""
    if not (found := re.match(r"v(\d+)\.", version)) or int(found[1]) < OLDEST_NODE:
        return f"install Node.js {OLDEST_NODE} or newer with npm, then run: make setup-node"
    if not (HERE / "node_modules/@waku/message-encryption").is_dir():
        return "@waku/message-encryption is not installed, run: make setup-node"
    return None


MISSING = missing()
if MISSING and os.environ.get("CI") != "true":
    pytest.skip(MISSING, allow_module_level=True)


def test_peer_is_installed():
    assert not MISSING, MISSING  # on CI nothing is skipped in silence


class Peer:
    def __init__(self, process):
        self.process = process

    def ask(self, **request):
        request = {name: value.hex() if isinstance(value, bytes) else value for name, value in request.items()}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "peer.js has ended"
        return json.loads(answer)

    def seal(self, mode, data, sign_with=None):
        key = RECIPIENT.public_key.uncompressed if mode == "asymmetric" else SHARED
        signer = sign_with and sign_with.secret
        return bytes.fromhex(self.ask(do="seal", mode=mode, key=key, signer=signer, data=data)["payload"])

    def open(self, mode, sealed, key=None):
        """Return the data and the signer, or None where it is refused."""
        key = key or (RECIPIENT.secret if mode == "asymmetric" else SHARED)
        answer = self.ask(do="open", mode=mode, key=key, payload=sealed)
        if "refused" in answer:
            return None
        return bytes.fromhex(answer["data"]), answer["signer"] and PublicKey.from_hex(answer["signer"])


@pytest.fixture(scope="module")
def peer():
    if MISSING:
        pytest.skip(MISSING)
    command = ["node", "peer.js"]
    with subprocess.Popen(command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Peer(process)
        process.stdin.close()
        assert process.wait(60) == 0


SIGNER, RECIPIENT, STRANGER = (
    PrivateKey(hashlib.sha256(name).digest()) for name in (b"signer", b"recipient", b"other")
)
SHARED = hashlib.sha256(b"shared").digest()

MODES = ("asymmetric", "symmetric")
#: With the sizes where the padding is longest and shortest, and where the size takes one byte more.
SIZES = (0, 1, 100, 188, 189, 190, 253, 254, 255, 256, 257, 1000, 65535, 65536)

each_mode = pytest.mark.parametrize("mode", MODES)
each_signer = pytest.mark.parametrize("signer", [None, SIGNER], ids=["unsigned", "signed"])
each_size = pytest.mark.parametrize("size", SIZES)


def seal(mode, data, sign_with=None):
    if mode == "asymmetric":
        return payload.seal_asymmetric(data, RECIPIENT.public_key, sign_with)
    return payload.seal_symmetric(data, SHARED, sign_with)


def open_(mode, sealed, key=None):
    if mode == "asymmetric":
        return payload.open_asymmetric(sealed, PrivateKey(key) if key else RECIPIENT)
    return payload.open_symmetric(sealed, key or SHARED)


def outcome(mode, sealed, key=None):
    """What `Peer.open` returns, of our side."""
    with contextlib.suppress(Refused):
        content = open_(mode, sealed, key)
        return content.data, content.signer
    return None


@each_mode
@each_signer
@each_size
def test_ours_is_opened(peer, mode, signer, size):
    data = random.Random(size).randbytes(size)
    assert peer.open(mode, seal(mode, data, signer)) == (data, signer and SIGNER.public_key)


@each_mode
@each_signer
@each_size
def test_theirs_is_opened(peer, mode, signer, size):
    data = random.Random(size).randbytes(size)
    content = open_(mode, sealed := peer.seal(mode, data, signer))
    assert (content.data, content.signer) == (data, signer and SIGNER.public_key)
    # Both pad by the same rule: 1 to 256 bytes, to a multiple of 256 with the signature.
    assert len(sealed) == len(ours := seal(mode, data, signer))
    assert len(content.padding) == len(open_(mode, ours).padding)


def seal_encoded(mode, encoded, monkeypatch):
    """Seal what `payload.encode` would not return."""
    with monkeypatch.context() as patch:
        patch.setattr(payload, "encode", lambda *_: encoded)
        return seal(mode, b"")


def signed(encoded, recovery_offset=0):
    signature = SIGNER.sign(keccak256(encoded))
    return encoded + signature[:-1] + bytes([signature[-1] + recovery_offset])


@each_mode
def test_another_key(peer, mode):
    for sealed in (seal(mode, b"data", SIGNER), peer.seal(mode, b"data", SIGNER)):
        assert peer.open(mode, sealed, STRANGER.secret) is outcome(mode, sealed, STRANGER.secret) is None


@each_mode
def test_every_changed_part_is_refused(peer, mode):
    sealed = seal(mode, b"data", SIGNER)
    for position in (0, 1, 40, 64, 65, 80, 81, 200, -33, -32, -29, -28, -13, -12, -1):
        changed = bytearray(sealed)
        changed[position] ^= 1
        assert peer.open(mode, bytes(changed)) is outcome(mode, bytes(changed)) is None, position


@each_mode
def test_truncated_is_refused(peer, mode):
    sealed = seal(mode, b"data")
    for length in (0, 1, 12, 27, 28, 64, 65, 112, 113, len(sealed) - 1):
        assert peer.open(mode, sealed[:length]) is outcome(mode, sealed[:length]) is None, length


@each_mode
def test_who_signed_other_data(peer, mode, monkeypatch):
    encoded = bytearray(payload.encode(b"data", SIGNER))
    encoded[2] ^= 1
    opened = peer.open(mode, sealed := seal_encoded(mode, bytes(encoded), monkeypatch))
    assert opened == outcome(mode, sealed)  # the same signer, whom nobody knows
    assert opened[1] != SIGNER.public_key


#: A multiple of 256 is a rule for senders only; and a size may take more bytes than it needs.
LENIENT = {
    "no padding": b"\x01\x04data",
    "little padding": b"\x01\x04data" + bytes(3),
    "much padding": b"\x01\x04data" + bytes(1000),
    "size of two bytes": b"\x02\x04\x00data" + bytes(249),
    "size of three bytes": b"\x03\x04\x00\x00data" + bytes(248),
    "unknown flags": b"\xf9\x04data" + bytes(250),
    "signed": signed(b"\x05\x04data" + bytes(185)),
    "signed without padding": signed(b"\x05\x04data"),
}


@each_mode
@pytest.mark.parametrize("encoded", LENIENT.values(), ids=LENIENT)
def test_unusual_encodings(peer, mode, encoded, monkeypatch):
    sealed = seal_encoded(mode, encoded, monkeypatch)
    signer = SIGNER.public_key if encoded[0] & 0b100 else None
    assert peer.open(mode, sealed) == outcome(mode, sealed) == (b"data", signer)


@each_mode
def test_recovery_byte_of_ethereum(peer, mode, monkeypatch):
    sealed = seal_encoded(mode, signed(b"\x05\x04data" + bytes(185), recovery_offset=27), monkeypatch)
    assert peer.open(mode, sealed) is outcome(mode, sealed) is None


#: What js-waku makes of it, and what this server does. js-waku takes the bytes that there are where a size points
#: behind the end, into the signature too, and refuses an encoding without a size, which go-waku takes for empty.
DIFFERENCES = {
    "size behind the end": (b"\x01\xffdata", b"data", Failure.PAYLOAD_MALFORMED),
    "size into the signature": (
        signed(b"\x05\x05data"),
        b"data" + signed(b"\x05\x05data")[6:7],
        Failure.PAYLOAD_MALFORMED,
    ),
    "no size": (b"\x00data", None, b""),
}


@each_mode
@pytest.mark.parametrize("name", DIFFERENCES)
def test_known_differences(peer, mode, name, monkeypatch):
    encoded, theirs, ours = DIFFERENCES[name]
    sealed = seal_encoded(mode, encoded, monkeypatch)
    opened = peer.open(mode, sealed)
    assert (opened and opened[0]) == theirs
    if isinstance(ours, Failure):
        with pytest.raises(Refused) as refused:
            open_(mode, sealed)
        assert refused.value.failure is ours
    else:
        assert open_(mode, sealed).data == ours


def leading_zero(sealed):
    return RECIPIENT.shared_key(PublicKey(sealed[:65]))[0] == 0


# One shared secret of 256 begins with a zero byte, which implementations with big integers lose.
def test_ours_with_a_leading_zero_in_the_secret(peer, monkeypatch):
    ephemeral = next(
        key
        for number in range(1, 10_000)
        if RECIPIENT.shared_key((key := PrivateKey(number.to_bytes(32, "big"))).public_key)[0] == 0
    )
    monkeypatch.setattr(ecies.PrivateKey, "generate", lambda: ephemeral)
    sealed = seal("asymmetric", b"data", SIGNER)
    assert leading_zero(sealed)
    assert peer.open("asymmetric", sealed) == (b"data", SIGNER.public_key)


def test_theirs_with_a_leading_zero_in_the_secret(peer):
    sealed = next(filter(leading_zero, (peer.seal("asymmetric", b"data") for _ in range(10_000))))
    assert outcome("asymmetric", sealed) == (b"data", None)
