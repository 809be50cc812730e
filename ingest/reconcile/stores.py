"""Which Stores are walked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush.runtime.urls import node_name

if TYPE_CHECKING:
    from wakupush.runtime.settings import Settings


def stores_of(settings: Settings) -> dict[str, str]:
    """Return the URLs of the nodes whose Stores are walked, by their names."""
    return {node_name(url): url for url in settings.reconcile.stores} or settings.waku.nodes
