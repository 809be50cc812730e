"""The profiles of this server: those built in, and those that the operator wrote."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.protocol.notification import PROFILES, Content, Profile
from wakupush.runtime.profiles import ContentTable, ProfileTable
from wakupush.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class Profiles:
    """Chooses the profile of each delivery."""

    default: Profile
    #: The profiles of the apps, by their names.
    by_app: Mapping[str, Profile]

    def of(self, app: str) -> Profile:
        """Return the profile of an app; of one that is not in the settings, the default."""
        return self.by_app.get(app, self.default)


def load_profiles(settings: Settings) -> Profiles:
    """Return the profiles of a server with these settings."""
    by_app = {app: load_profile(settings, settings.gorush_of(app).dialect) for app in settings.apps}
    return Profiles(load_profile(settings, settings.gorush.dialect), by_app)


def load_profile(settings: Settings, name: str) -> Profile:
    """Return the profile of that name.

    Raises:
        KeyError: there is none.
    """
    return PROFILES[name] if name in PROFILES else _profile(settings.profiles[name])


def _profile(table: ProfileTable) -> Profile:
    contents = {}
    for kind in NotificationType:
        content: ContentTable = getattr(table, kind.label)
        contents[kind, Platform.IOS] = _ios(content)
        contents[kind, Platform.ANDROID] = _android(content)
    return Profile(data_keys=table.data, contents=contents)


def _ios(table: ContentTable) -> Content:
    if Platform.IOS.label in table.data_only:
        # Apple takes background pushes with this priority alone.
        fields: dict[str, Any] = {"content_available": True, "push_type": "background", "priority": "normal"}
        return Content(text="", fields=fields, deep_link=table.deep_link, expires=table.expiration)
    fields = {
        "sound": table.sound,
        "badge": int(table.badge),
        "mutable_content": table.mutable_content,
        "content_available": table.content_available,
        "category": table.category,
        "priority": table.priority,
    }
    text = table.text
    if table.text_key or table.title_key:
        # gorush drops `message` if the alert has any other part but `title`.
        text = ""
        fields["alert"] = _set(
            {
                "body": table.text,
                "loc-key": table.text_key,
                "loc-args": list(table.text_args),
                "title": table.title,
                "title-loc-key": table.title_key,
                "title-loc-args": list(table.title_args),
            }
        )
    else:
        fields["title"] = table.title
    return Content(
        text=text,
        fields=_set(fields),
        deep_link=table.deep_link,
        has_thread_id=table.thread_id,
        expires=table.expiration,
    )


def _android(table: ContentTable) -> Content:
    if Platform.ANDROID.label in table.data_only:
        fields: dict[str, Any] = {"priority": table.priority}
        return Content(text="", fields=fields, deep_link=table.deep_link, expires=table.expiration)
    notification = _set(
        {
            "body_loc_key": table.text_key,
            "body_loc_args": list(table.text_args),
            "title_loc_key": table.title_key,
            "title_loc_args": list(table.title_args),
            "channel_id": table.channel,
            "sound": table.sound,
        }
    )
    fields = {
        "title": table.title,
        "priority": table.priority,
        "android": _set({"notification": notification}),
    }
    return Content(text=table.text, fields=_set(fields), deep_link=table.deep_link, expires=table.expiration)


def _set(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without those that are empty or off."""
    return {name: value for name, value in fields.items() if value}
