"""URLs of HTTP APIs, as settings and commands take them."""

from urllib.parse import urlsplit, urlunsplit


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


def node_name(url: str) -> str:
    """Return the name of a node in watermarks, metrics and logs: host, port and path, never a password."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.hostname}:{port}{parts.path.rstrip('/')}"
