"""Notification profiles as operators write them: the tables `[profiles.NAME]` of the file of settings."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

#: Those of `wakupush.protocol.notification`, which is above this package: its profiles, and what `data` can have.
BUILT_IN: Final = ("spec", "status", "status-2024", "both")
DataKey = Literal["chat_id", "message", "installation_ids", "encryptedMessage", "chatId", "publicKey"]
#: Bytes of JSON that the texts and names of a type may take, so that the rest of 4 KB is enough for the data.
MOST_TEXT_BYTES: Final = 2048
_TEXTS: Final = (
    *("text", "text_key", "text_args", "title", "title_key", "title_args"),
    *("sound", "category", "channel", "deep_link"),
)


def _link(link: str) -> str:
    if link and not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+", link):
        raise PydanticCustomError("link", "a link is expected such as example-app://chats")
    return link


class ContentTable(BaseModel):
    """What notifications of a type show, and how they behave; a type has what it does not say from its profile."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = ""
    """Text that the device shows."""
    text_key: str = ""
    """Instead of `text`, its key in the app's own translations."""
    text_args: tuple[str, ...] = ()
    """Values for the placeholders of that translation."""
    title: str = ""
    """Title above the text; empty: none."""
    title_key: str = ""
    """Instead of `title`, its key in the app's own translations."""
    title_args: tuple[str, ...] = ()
    """Values for the placeholders of that translation."""
    sound: str = ""
    """`default`, or the name of a sound in the app; empty: none. Since Android 8 the channel decides."""
    badge: StrictBool = False
    """iOS: whether the app's icon gets a 1, as the server does not know how many messages are unread."""
    mutable_content: StrictBool = False
    """iOS: whether the app's notification service extension may change the notification before it shows."""
    content_available: StrictBool = False
    """iOS: whether the notification also wakes the app in the background."""
    category: str = ""
    """iOS: the category, which decides about buttons; empty: none."""
    thread_id: StrictBool = False
    """iOS: whether the notifications of a chat stand together, under a keyed digest of installation and chat."""
    channel: str = ""
    """Android: the id of the channel; empty: the app's default one."""
    priority: Literal["high", "normal"] = "high"
    """`high`: at once; `normal`: when it suits the battery of the device."""
    data_only: tuple[Literal["ios", "android"], ...] = ()
    """Platforms on which the app gets data alone, and shows what it likes: `["android"]`. On iOS that is a background
    push of priority normal; Apple lets through a few of these an hour."""
    deep_link: str = Field(default="", json_schema_extra={"pattern": "^([A-Za-z][A-Za-z0-9+.-]*:[!-~]+)?$"})
    """Where the app opens, as `deepLink` in the data; empty: none."""
    expiration: StrictBool = True
    """Whether Apple and Google drop the notification when the server would drop it, by
    `WAKUPUSH_DELIVERY__MESSAGE_TIME_TO_LIVE` and the like; if not, after about four weeks."""

    _is_link = field_validator("deep_link")(_link)

    @field_validator("text_key", "title_key")
    @classmethod
    def _stands_alone(cls, key: str, info: ValidationInfo) -> str:
        literal = str(info.field_name).removesuffix("_key")
        if key and info.data.get(literal):
            raise PydanticCustomError("texts", "there is {literal} already", {"literal": literal})
        return key

    @field_validator("text_args", "title_args")
    @classmethod
    def _stand_beside_a_key(cls, args: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        key = str(info.field_name).replace("args", "key")
        # Firebase's library would refuse the notification, and gorush would not say so.
        if args and not info.data.get(key):
            raise PydanticCustomError("args", "{key} is missing beside it", {"key": key})
        return args

    def inherit(self, values: Mapping[str, Any]) -> "ContentTable":
        """Return these fields, and from the values of all fields those that are not set here."""
        own = {name: getattr(self, name) for name in self.model_fields_set}
        replaced = set(own)
        for part in ("text", "title"):
            # A text replaces a key, and the other way round.
            if own.keys() & {part, f"{part}_key"}:
                replaced |= {part, f"{part}_key", f"{part}_args"}
        inherited = {name: values[name] for name in ContentTable.model_fields if name not in replaced}
        return ContentTable.model_construct(**inherited, **own)


class ProfileTable(ContentTable):
    """A profile: what all types have in common, and what a type has of its own."""

    data: tuple[DataKey, ...] = ("chat_id", "message", "installation_ids")
    """Keys of the data: those of the specification (`chat_id`, `message`, `installation_ids`) and of Status
    (`encryptedMessage`, `chatId`, `publicKey`)."""
    message: ContentTable = Field(default=ContentTable(), validate_default=True)
    """Of a message."""
    mention: ContentTable = Field(default=ContentTable(), validate_default=True)
    """Of a mention or a reply."""
    join_request: ContentTable = Field(default=ContentTable(), validate_default=True)
    """Of a request to join a community."""
    contact_request: ContentTable = Field(default=ContentTable(), validate_default=True)
    """Of a contact request."""

    @field_validator("message", "mention", "join_request", "contact_request")
    @classmethod
    def _inherits(cls, table: ContentTable, info: ValidationInfo) -> ContentTable:
        if not ContentTable.model_fields.keys() <= info.data.keys():
            return table  # A field of the profile itself has an error.
        content = table.inherit(info.data)
        if not (content.text or content.text_key) and set(content.data_only) != {"ios", "android"}:
            raise PydanticCustomError("text", "text or text_key is missing, here and in the profile")
        texts = json.dumps([getattr(content, name) for name in _TEXTS])
        size = len(texts) + 5 * sum(map(texts.count, "<>&"))
        if size > MOST_TEXT_BYTES:
            raise PydanticCustomError(
                "size", "its texts take {size} bytes of JSON, more than {most}", {"size": size, "most": MOST_TEXT_BYTES}
            )
        return content


def _own_name(name: str) -> str:
    if name in BUILT_IN:
        raise PydanticCustomError("built_in", "this profile is built in: another name is expected")
    return name


ProfileName = Annotated[str, Field(pattern="^[a-z0-9_-]+$"), AfterValidator(_own_name)]


def keys_of(table: Sequence[str]) -> list[str]:
    """Return the keys that a table can have, which is `profiles.NAME` or `profiles.NAME.TYPE`, here without dots."""
    return list((ProfileTable if len(table) == 2 else ContentTable).model_fields)  # noqa: PLR2004
