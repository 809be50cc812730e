"""A name server for one machine, of which every name is an address of loopback, and which can fall silent."""

import contextlib
import socket
import struct
import threading

#: Addresses that no name server of the machine has, so that port 53 is free there.
_ADDRESSES = tuple(f"127.0.77.{number}" for number in range(1, 255))
_HEADER = struct.Struct(">HHHHHH")
#: An answer, recursive; the name is that of the question, the type A, and it may not be kept.
_ANSWERED, _RECORD = 0x8180, struct.Struct(">HHHIH4s")
_TYPE_A, _IN, _NAME_OF_QUESTION = 1, 1, 0xC00C


class Resolver:
    """Answers to queries by UDP.

    Raises:
        OSError: we may not; only root may.
    """

    def __init__(self) -> None:
        self.is_silent = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.address = self._bind()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nothing any more."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waking:
            waking.sendto(b"", (self.address, 53))
        self._thread.join()
        self._socket.close()

    def _bind(self) -> str:
        for address in _ADDRESSES:
            with contextlib.suppress(OSError):  # another one is at it
                self._socket.bind((address, 53))
                return address
        raise OSError("port 53 of loopback is not ours to take")

    def _serve(self) -> None:
        while True:
            query, sender = self._socket.recvfrom(4096)
            if not query:
                return
            if not self.is_silent:
                self._socket.sendto(_answer(query), sender)


def _answer(query: bytes) -> bytes:
    number, *_ = _HEADER.unpack_from(query)
    end = query.index(0, _HEADER.size) + 5
    kind = int.from_bytes(query[end - 4 : end - 2])
    record = _RECORD.pack(_NAME_OF_QUESTION, _TYPE_A, _IN, 0, 4, socket.inet_aton("127.0.0.1"))
    records = [record] if kind == _TYPE_A else []
    return _HEADER.pack(number, _ANSWERED, 1, len(records), 0, 0) + query[_HEADER.size : end] + b"".join(records)
