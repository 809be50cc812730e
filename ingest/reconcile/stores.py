"""Which Stores are walked, and how they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from wakupush.runtime.settings import Settings


def stores_of(settings: Settings) -> dict[str, str]:
    """Return the URLs of the nodes whose Stores are walked, by their names."""
    return {node_name(url): url for url in settings.reconcile.stores or [settings.waku.url]}


def node_name(url: str) -> str:
    """Return how a node is called in watermarks, metrics and logs: host, port and path, never a password."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.hostname}:{port}{parts.path.rstrip('/')}"
