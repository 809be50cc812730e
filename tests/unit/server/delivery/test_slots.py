"""How the slots for posts are shared out among apps and platforms."""

import pytest

from wakupush.model.platforms import AppPlatform, Platform
from wakupush.runtime.settings import CANARY
from wakupush.server.delivery.slots import Slots


@pytest.mark.parametrize(
    "shares",
    [
        {"": 8},
        {"": 8, CANARY: 1},
        {"release": 8, "": 1},
        {"release": 4, "nightly": 4, "": 1},
        {"release": 8, CANARY: 1, "": 1},
    ],
    ids=lambda shares: ", ".join(app or "nameless" for app in shares),
)
def test_apps_that_post_share_all_slots(shares):
    slots = Slots([AppPlatform(app, platform) for app in shares for platform in Platform], 16)
    assert {app: slots.reserve(AppPlatform(app, Platform.IOS), 99) for app in shares} == shares
    slots.close()


def test_storing_an_outcome_is_not_a_hung_post():
    slots, ios = Slots([AppPlatform("", Platform.IOS)], 1), AppPlatform("", Platform.IOS)
    slots.begin(ios)
    assert slots.hang(ios, 0.0)
    slots.end(ios)
    assert not slots.hang(ios, 0.0)
    slots.close()
