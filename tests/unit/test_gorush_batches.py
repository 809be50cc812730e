from hypothesis import given
from hypothesis import strategies as st

from wakupush.gorush.batches import Caution, split
from wakupush.model.failures import Failure
from wakupush.model.notifications import Notification
from wakupush.model.platforms import Platform

IOS, ANDROID = Platform.IOS, Platform.ANDROID


def make(number, platform):
    return Notification(notif_id=f"n{number}", token="t", platform=platform, message="m", data={})


notifications = st.lists(st.sampled_from(Platform)).map(
    lambda platforms: [make(number, platform) for number, platform in enumerate(platforms)]
)


@given(notifications, st.integers(1, 100))
def test_posts_of_one_platform_within_the_size_in_order(due, size):
    posts = split(due, size, Caution(), 0.0)
    assert posts.keys() == {each.platform for each in due}
    for platform, mine in posts.items():
        assert [each for post in mine for each in post] == [each for each in due if each.platform is platform]
        assert all(1 <= len(post) <= size for post in mine)
        assert sum(len(post) < size for post in mine) <= 1


def test_one_by_one_after_a_failure_of_that_platform_for_a_while():
    due = [make(number, platform) for platform in Platform for number in (1, 2)]
    caution = Caution(seconds=60.0)
    caution.note(IOS, [None, Failure.TOKEN_UNREGISTERED], 1000.0)
    caution.note(ANDROID, [None, None], 1000.0)
    for now, sizes in ((1000.0, [1, 1, 2]), (1059.9, [1, 1, 2]), (1060.0, [2, 2])):
        posts = split(due, 50, caution, now)
        assert [len(post) for platform in Platform for post in posts[platform]] == sizes


def test_a_further_failure_prolongs_it():
    caution = Caution(seconds=60.0)
    caution.note(IOS, [Failure.PLATFORM_UNCLEAR], 0.0)
    caution.note(IOS, [Failure.PLATFORM_UNCLEAR], 50.0)
    caution.note(IOS, [None], 55.0)
    assert caution.advised(IOS, 109.0)
    assert not caution.advised(IOS, 110.0)
    assert not caution.advised(ANDROID, 55.0)


def test_a_post_that_was_not_taken_at_all_is_no_reason():
    caution = Caution()
    caution.note(IOS, [Failure.GORUSH_UNREACHABLE, Failure.GORUSH_THROTTLED], 0.0)
    assert not caution.advised(IOS, 0.0)
