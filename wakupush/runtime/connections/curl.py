"""Handles of libcurl with the options that all our HTTP clients share."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import Final

import pycurl

from wakupush.runtime.connections.sockets import has_input

#: With "Expect" libcurl would wait for a permission before it sends a large body.
_HEADERS: Final = ["Content-Type: application/json", "Expect:"]
_MILLISECONDS: Final = 1000


def curl_handle(*, timeout: float | None, connect_timeout: float | None = None) -> pycurl.Curl:
    """Return a handle whose requests send JSON by HTTP/1.1, follow no redirect and use no proxy of the environment.

    Neither a Waku node nor gorush answers with a redirect. If one were followed, a POST would become a GET.

    Args:
        timeout: seconds from the beginning of a request to the end of its answer; None leaves them to the caller.
        connect_timeout: seconds to wait for a connection, within those; all of them unless given.
    """
    handle = pycurl.Curl()
    handle.setopt(pycurl.HTTPHEADER, _HEADERS)
    if timeout is not None:
        set_timeout(handle, timeout)
    if connect_timeout is not None:
        handle.setopt(pycurl.CONNECTTIMEOUT_MS, _milliseconds(connect_timeout))
    handle.setopt(pycurl.NOSIGNAL, 1)  # there are other threads
    handle.setopt(pycurl.PROXY, "")
    handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        handle.setopt(pycurl.CAINFO, paths.cafile)
    if paths.capath:
        handle.setopt(pycurl.CAPATH, paths.capath)
    return handle


def set_timeout(handle: pycurl.Curl, seconds: float) -> None:
    """Give the next requests of a handle so many seconds each."""
    handle.setopt(pycurl.TIMEOUT_MS, _milliseconds(seconds))


def set_content(handle: pycurl.Curl, content: bytes | None) -> None:
    """Make the next request of a handle a POST with this content, or a GET without any.

    If a kept connection breaks before any answer, libcurl sends the request again, unless its content comes from a
    function: curl cannot read that twice, so a POST fails. libcurl never repeats a request that may have been sent.
    """
    if content is None:
        handle.setopt(pycurl.HTTPGET, 1)
        handle.setopt(pycurl.HTTPHEADER, ["Content-Type:"])  # none
    else:
        handle.setopt(pycurl.POST, 1)
        handle.setopt(pycurl.HTTPHEADER, _HEADERS)
        handle.setopt(pycurl.READFUNCTION, BytesIO(content).read)
        handle.setopt(pycurl.POSTFIELDSIZE_LARGE, len(content))


class CurlHandles:
    """Handles to one server, whose connections are kept: as many as there are requests at the same time.

    Args:
        make: returns a new handle.
    """

    def __init__(self, make: Callable[[], pycurl.Curl]) -> None:
        self._make = make
        self._idle: list[pycurl.Curl] = []

    @contextmanager
    def take(self) -> Iterator[pycurl.Curl]:
        """Yield a handle that no other thread has; an error closes its connection."""
        handle = self._open()
        try:
            yield handle
        except BaseException:
            handle.close()
            raise
        self._idle.append(handle)

    def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop().close()

    def _open(self) -> pycurl.Curl:
        with suppress(IndexError):
            while True:
                handle = self._idle.pop()
                if not _is_closed(handle):
                    return handle
                handle.close()
        return self._make()


def _is_closed(handle: pycurl.Curl) -> bool:
    """Return whether the server has closed a handle's kept connection: nothing else makes an idle one readable."""
    descriptor = handle.getinfo(pycurl.ACTIVESOCKET)
    return descriptor >= 0 and has_input(descriptor)


def keep_within(body: bytearray, most: int) -> Callable[[bytes], int]:
    """Return a writer that keeps at most `most` bytes of an answer; a longer one ends with ``E_WRITE_ERROR``."""

    def take(chunk: bytes) -> int:
        if len(body) + len(chunk) > most:
            return 0  # curl took no byte of it
        body.extend(chunk)
        return len(chunk)

    return take


def _milliseconds(seconds: float) -> int:
    return max(1, int(_MILLISECONDS * seconds))
