"""What a device wants, as far as it bears on a notification: written as its lists."""

from wakupush.model.registrations import Preferences


def preferences(
    asked,
    *,
    access_token,
    enabled=True,
    token_died=False,
    block_mentions=False,
    blocked_chat_list=(),
    muted_chat_list=(),
    allowed_mentions_chat_list=(),
):
    """Return the preferences of a device that bear on an item of a request."""
    return Preferences(
        token_fits=asked.access_token == access_token,
        token_died=token_died,
        enabled=enabled,
        block_mentions=block_mentions,
        author_blocked=asked.author in blocked_chat_list,
        chat_blocked=asked.chat_id in blocked_chat_list,
        chat_muted=asked.chat_id in muted_chat_list,
        mention_allowed=asked.chat_id in allowed_mentions_chat_list,
    )
