"""Handles of libcurl with the options that all our HTTP clients share."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

import pycurl

#: With "Expect" libcurl would wait for a permission before it sends a large body.
_HEADERS: Final = ["Content-Type: application/json", "Expect:"]
_MILLISECONDS: Final = 1000


def curl_handle(*, timeout: float, connect_timeout: float | None = None) -> pycurl.Curl:
    """Return a handle whose requests send JSON by HTTP/1.1, follow no redirect and use no proxy of the environment.

    Neither a Waku node nor gorush answers with a redirect. If one were followed, a POST would become a GET.

    Args:
        timeout: seconds from the beginning of a request to the end of its answer.
        connect_timeout: seconds to wait for a connection, within those; all of them unless given.
    """
    handle = pycurl.Curl()
    handle.setopt(pycurl.HTTPHEADER, _HEADERS)
    set_timeout(handle, timeout)
    if connect_timeout is not None:
        handle.setopt(pycurl.CONNECTTIMEOUT_MS, _milliseconds(connect_timeout))
    handle.setopt(pycurl.NOSIGNAL, 1)  # there are other threads
    handle.setopt(pycurl.PROXY, "")
    handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
    trusted = ssl.get_default_verify_paths()
    if trusted.cafile:
        handle.setopt(pycurl.CAINFO, trusted.cafile)
    if trusted.capath:
        handle.setopt(pycurl.CAPATH, trusted.capath)
    return handle


def set_timeout(handle: pycurl.Curl, seconds: float) -> None:
    """Give the next requests of a handle so many seconds each."""
    handle.setopt(pycurl.TIMEOUT_MS, _milliseconds(seconds))


def keep_within(body: bytearray, most: int) -> Callable[[bytes], int]:
    """Return a writer that keeps at most `most` bytes of an answer; a longer one ends with ``E_WRITE_ERROR``."""

    def take(chunk: bytes) -> int:
        if len(body) + len(chunk) > most:
            return 0  # none of it was taken
        body.extend(chunk)
        return len(chunk)

    return take


def _milliseconds(seconds: float) -> int:
    return max(1, int(_MILLISECONDS * seconds))
