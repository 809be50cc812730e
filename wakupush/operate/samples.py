"""Notifications with values that are made up: to look at, and to push to a device for a test."""

import time
from dataclasses import dataclass
from uuid import UUID, uuid4

from wakupush.gorush.instances import open_gorush
from wakupush.gorush.profiles import load_profiles
from wakupush.model.deliveries import NO_LEASE, Delivery
from wakupush.model.failures import Failure, Route, Token
from wakupush.model.notifications import Notification, NotificationType
from wakupush.model.platforms import Platform
from wakupush.model.registrations import Installation, Target
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.notification import Profile, notification
from wakupush.runtime.settings import Settings
from wakupush.runtime.usage import UsageError
from wakupush.server.delivery.retry import times_to_live

#: The thread ids of a server come from its own key.
_IDENTITY = Identity.of(PrivateKey(b"\1" * 32))


def sample(settings: Settings, profile: Profile, kind: NotificationType, target: Target, key: bytes) -> Notification:
    """Return what gorush gets for a notification of a type.

    Args:
        target: the device.
        key: 32 bytes, of the delivery.
    """
    now = time.time()
    delivery = Delivery(
        delivery_key=key,
        installation=Installation(b"\xaa" * 64, bytes(16)),
        platform=target.platform,
        notification_type=kind,
        chat_id=b"\xcc" * 64,
        message=b"an encrypted message",
        attempt=1,
        lease=NO_LEASE,
        task_id="",
        trace_id="",
        seen=now,
        expires_at=now + times_to_live(settings.delivery)[kind],
    )
    return notification(profile, delivery, target, _IDENTITY, now)


def target(platform: Platform, device_token: str, topic: str) -> Target:
    """Return a device."""
    return Target(
        version=1,
        installation_id=str(UUID(int=0)),
        platform=platform,
        device_token=device_token,
        apn_topic=topic,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePush:
    """What became of a notification that was posted to gorush."""

    app: str
    #: None if gorush handed it to its platform without an error.
    failure: Failure | None
    seconds: float
    #: What to do now.
    advice: str


def push(settings: Settings, device: Target, kind: NotificationType) -> SamplePush:
    """Post one notification to a device, through the gorush of its app; nothing is stored.

    Raises:
        UsageError: no app of the settings takes the device.
    """
    app = settings.app_of(device.apn_topic, firebase=device.platform is Platform.ANDROID)
    if app is None:
        raise UsageError(f"no app of the settings takes a device with the topic {device.apn_topic!r}")
    gorush = open_gorush(settings.gorush_of(app))
    start = time.monotonic()
    try:
        made_up = sample(settings, load_profiles(settings).of(app), kind, device, uuid4().bytes + uuid4().bytes)
        [failure] = gorush.post([made_up]).outcomes
    finally:
        gorush.close()
    return SamplePush(app=app, failure=failure, seconds=time.monotonic() - start, advice=_advice(failure))


def _advice(failure: Failure | None) -> str:
    if failure is None:
        return "look at the device. If nothing shows, look at gorush's log: Firebase's failures are there alone"
    if failure.token is not Token.UNTOUCHED or failure is Failure.TOKEN_DOUBTED:
        return "the token is dead, or of another app, APNs environment or Firebase project than gorush's credentials"
    if failure.route is Route.BROKEN:
        return "gorush, its credentials or the platform: see gorush's log, and `wakupush doctor`"
    return "see gorush's log"
