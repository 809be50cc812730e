"""URLs of HTTP APIs, and addresses of Waku nodes, as settings and commands take them."""

import re
from typing import Final
from urllib.parse import urlsplit, urlunsplit

_MULTIADDRESS: Final = re.compile(
    r"/(ip4|ip6|dns|dns4|dns6)/[^/\s]+/tcp/(?P<port>\d{1,5})(/[a-z0-9-]+)*/p2p/[1-9A-HJ-NP-Za-km-z]{46,64}", re.ASCII
)
_LAST_PORT: Final = 65_535


def is_http(url: str) -> bool:
    """Return whether it is a URL of http or https that names a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def without_user(url: str) -> str:
    """Return the printable part of a URL: without a user and a password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def is_multiaddress(address: str) -> bool:
    """Return whether it is a multiaddress by which a Waku node can dial another one: host, TCP port and peer id."""
    match = _MULTIADDRESS.fullmatch(address)
    return match is not None and 0 < int(match["port"]) <= _LAST_PORT


def peer_name(address: str) -> str:
    """Return the name of a node in watermarks, metrics and logs, by its multiaddress: host and port."""
    _, _, host, _, port, *_ = address.split("/")
    return f"{host}:{port}"


def node_name(url: str) -> str:
    """Return the name of a node in watermarks, metrics and logs: host, port and path, never a password."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.hostname}:{port}{parts.path.rstrip('/')}"
