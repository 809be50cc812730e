"""One attempt: a post to gorush, and what it brought."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from wakupush.model.deliveries import DeliveryState
from wakupush.model.failures import Failure
from wakupush.model.notifications import Notification, notif_id
from wakupush.model.platforms import Platform
from wakupush.protocol import notification as texts
from wakupush.runtime import metrics, tracing
from wakupush.server.delivery.settlement import settle

if TYPE_CHECKING:
    from wakupush.gorush.outcomes import Outcome
    from wakupush.model.deliveries import Delivery, Settlement
    from wakupush.model.registrations import Target
    from wakupush.protocol.notification import Dialect
    from wakupush.server.delivery.flower import Lead
    from wakupush.server.delivery.resources import DeliveryResources

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Failures by delivery key, as far as they are final.
Failed = dict[bytes, Failure]


@dataclass(frozen=True, slots=True)
class Posting:
    """A delivery and where it goes; without a target its device is gone."""

    delivery: Delivery
    target: Target | None
    #: Whether Flower shows this attempt. The first ones inside batches are shown if they fail in passing.
    shown: bool = False
    #: If the task that makes this attempt has the delivery's id.
    lead: Lead | None = None

    @property
    def platform(self) -> Platform:
        """Where it goes: that of the delivery, unless its device was registered on another one since."""
        return self.target.platform if self.target else self.delivery.platform


@dataclass(frozen=True, slots=True)
class Attempted:
    """What an attempt brought."""

    #: As gorush told them.
    posted: list[Outcome] = field(default_factory=list)
    #: As they were stored: what gorush's webhook told counts, too.
    outcomes: list[Outcome] = field(default_factory=list)
    failed: Failed = field(default_factory=dict)


def attempt(resources: DeliveryResources, post: list[Posting], *, probe: bool = False) -> Attempted:
    """Post deliveries that are under our lease, and store what comes of it.

    Args:
        resources: of this process.
        post: all of one platform with targets, or all without.
        probe: whether this goes through a route that is broken.
    """
    if post[0].target is None:
        settled = settle(resources, post, [Failure.DEVICE_GONE] * len(post))
        return Attempted(failed=_failed(settled))
    notifications = [
        _notification(resources.settings.gorush.dialect, posting.delivery, posting.target)
        for posting in post
        if posting.target is not None
    ]
    for posting, notification in zip(post, notifications, strict=True):
        # gorush's own log knows the notification by its notif_id.
        facts = {"trace_id": posting.delivery.trace_id, "attempt": posting.delivery.attempt}
        log.debug("posting", notif_id=notification.notif_id, **facts)
    begun, begun_at = time.monotonic(), resources.now()
    answer = resources.gorush.post(notifications)
    platform = post[0].platform
    for posting in post:
        attributes: tracing.Attributes = {"platform": platform.label, "attempt": posting.delivery.attempt}
        tracing.record("post", posting.delivery.trace_id, begun_at, resources.now(), attributes)
    metrics.POST_SECONDS.labels(platform.label).observe(time.monotonic() - begun)
    settled = settle(resources, post, answer.outcomes, retry_after=answer.retry_after, probe=probe)
    outcomes = [settlement.failure for settlement in settled] or answer.outcomes
    return Attempted(answer.outcomes, outcomes, _failed(settled))


def _failed(settled: list[Settlement]) -> Failed:
    return {
        settlement.delivery.delivery_key: settlement.failure
        for settlement in settled
        if settlement.state is DeliveryState.FAILED and settlement.failure is not None
    }


def _notification(dialect: Dialect, delivery: Delivery, target: Target) -> Notification:
    is_ios = target.platform is Platform.IOS
    return Notification(
        notif_id=notif_id(delivery.delivery_key, delivery.attempt),
        token=target.device_token,
        platform=target.platform,
        message=texts.TEXTS[delivery.notification_type],
        topic=target.apn_topic if is_ios else "",
        data=texts.data(
            dialect,
            key_hash=delivery.installation.key_hash,
            installation_id=target.installation_id,
            chat_id=delivery.chat_id,
            message=delivery.message,
        ),
        # A push whose outcome stayed unknown and that is posted again shows once.
        collapse_id=delivery.delivery_key.hex()[:32] if is_ios else "",
    )
