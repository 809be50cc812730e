"""Handles of libcurl, as every client of ours wants them."""

from __future__ import annotations

import ssl
from typing import Final

import pycurl

#: "Expect" would make libcurl wait for a leave to send what is large.
_HEADERS: Final = ["Content-Type: application/json", "Expect:"]
_MILLISECONDS: Final = 1000


def curl_handle(timeout: float) -> pycurl.Curl:
    """Return a handle whose requests send JSON by HTTP/1.1, follow no redirect and use no proxy of the environment.

    A redirect is no answer of a Waku node or of gorush: followed, it would turn a POST into a GET.

    Args:
        timeout: seconds from the beginning of a request to the end of its answer.
    """
    handle = pycurl.Curl()
    handle.setopt(pycurl.HTTPHEADER, _HEADERS)
    set_timeout(handle, timeout)
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
    handle.setopt(pycurl.TIMEOUT_MS, max(1, int(_MILLISECONDS * seconds)))
