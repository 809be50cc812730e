"""Watching how many device tokens are reported dead."""

from __future__ import annotations

import structlog

from wakupush.model.platforms import Platform
from wakupush.runtime import metrics
from wakupush.server.delivery.tokens import stopped
from wakupush.server.resources import Resources

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def watch_marking(resources: Resources) -> frozenset[Platform]:
    """Report the platforms on which so many tokens are bad that none is marked dead; an alarm for the operator."""
    with resources.pool.connection() as connection:
        platforms = stopped(connection, resources.settings.tokens)
    for platform in Platform:
        metrics.TOKEN_MARKING_STOPPED.labels(platform.label).set(platform in platforms)
        if platform in platforms:
            log.error("token_marking_stopped", platform=platform.label)
    return platforms
