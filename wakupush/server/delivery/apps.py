"""Which apps there are, and which of them a device belongs to."""

from wakupush.model.platforms import AppPlatform, Platform
from wakupush.model.registrations import Registration, Target
from wakupush.runtime.settings import Settings


def app_platforms(settings: Settings) -> list[AppPlatform]:
    """Return all apps of the settings on all platforms."""
    return [AppPlatform(app, platform) for app in settings.app_names for platform in Platform]


def app_of(device: Registration | Target, settings: Settings) -> str | None:
    """Return the name of the app that a device belongs to; None if no app of the settings takes it."""
    # The numbers of token types are those of platforms.
    platform = device.platform if isinstance(device, Target) else device.token_type
    return settings.app_of(device.apn_topic, firebase=int(platform) == Platform.ANDROID)
