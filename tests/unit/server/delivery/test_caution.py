"""How notifications are grouped into posts."""

import math
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakupush.model.deliveries import Delivery
from wakupush.model.failures import Failure, Route
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.model.registrations import Installation, Target
from wakupush.server.delivery import caution as module
from wakupush.server.delivery.caution import Caution
from wakupush.server.delivery.posting import Attempted, Posting, Work
from wakupush.server.delivery.posts import Posts
from wakupush.server.delivery.slots import Slots

APPS = [AppPlatform(app, platform) for app in ("", "nightly") for platform in Platform]
IOS, ANDROID = APPS[:2]


def make(number, app_platform):
    delivery = Delivery(
        delivery_key=number.to_bytes(32, "big"),
        installation=Installation(b"k", number.to_bytes(16, "big")),
        app=app_platform.app,
        platform=app_platform.platform,
        notification_type=NotificationType.MESSAGE,
        chat_id=b"",
        message=b"",
        attempt=1,
        lease=UUID(int=number),
        task_id="",
        trace_id="",
        seen=0.0,
        expires_at=0.0,
    )
    return Posting(
        delivery,
        Target(version=1, installation_id="i", platform=app_platform.platform, device_token="t", apn_topic="a"),
    )


postings = st.lists(st.sampled_from(APPS)).map(
    lambda platforms: [make(number, platform) for number, platform in enumerate(platforms)]
)


@given(postings, st.integers(1, 100))
def test_posts_of_one_platform_within_the_size_in_order(attempts, size):
    posts = Caution().split(attempts, size, 0.0)
    assert posts.keys() == {each.delivery.app_platform for each in attempts}
    for platform, mine in posts.items():
        assert [each for post in mine for each in post] == [
            each for each in attempts if each.delivery.app_platform == platform
        ]
        assert all(1 <= len(post) <= size for post in mine)
        assert sum(len(post) < size for post in mine) <= 1


def test_what_has_no_target_is_in_no_post():
    assert Caution().split([Posting(make(1, IOS).delivery, None)], 50, 0.0) == {}


def test_one_by_one_after_a_failure_of_that_platform_for_a_while():
    attempts = [make(number, platform) for platform in APPS for number in (1, 2)]
    caution = Caution()
    caution.note(IOS, [None, Failure.TOKEN_UNREGISTERED], 1000.0)
    caution.note(ANDROID, [None, None], 1000.0)
    others = [2] * (len(APPS) - 1)
    for now, sizes in ((1000.0, [1, 1]), (1059.9, [1, 1]), (1060.0, [2])):
        posts = caution.split(attempts, 50, now)
        assert [len(post) for platform in APPS for post in posts[platform]] == [*sizes, *others]


def alone(caution, platform, now):
    """Say whether notifications of a platform are posted one by one."""
    posts = caution.split([make(1, platform), make(2, platform)], 50, now)
    return len(posts[platform]) == 2


def test_a_further_failure_prolongs_it():
    caution = Caution()
    caution.note(IOS, [Failure.PLATFORM_UNCLEAR], 0.0)
    caution.note(IOS, [Failure.PLATFORM_UNCLEAR], 50.0)
    caution.note(IOS, [None], 55.0)
    assert alone(caution, IOS, 109.0)
    assert not alone(caution, IOS, 110.0)
    assert not alone(caution, ANDROID, 55.0)


def test_a_post_that_was_not_taken_at_all_is_no_reason():
    caution = Caution()
    caution.note(IOS, [Failure.GORUSH_UNREACHABLE, Failure.GORUSH_THROTTLED], 0.0)
    assert not alone(caution, IOS, 0.0)


def test_a_device_that_spoiled_a_post_is_posted_alone():
    caution = Caution()
    spoiling, other, third = (make(number, IOS) for number in range(3))
    caution.note_refused(spoiling, 0.0)
    assert caution.split([spoiling, other, third], 50, 1.0) == {IOS: [[other, third], [spoiling]]}
    assert caution.split([spoiling], 50, 1.0) == {IOS: [[spoiling]]}
    assert caution.split([spoiling, other], 50, module.REFUSED_SECONDS) == {IOS: [[spoiling, other]]}


def test_the_latest_spoilers_are_remembered(monkeypatch):
    monkeypatch.setattr(module, "MOST_REFUSED", 2)
    caution = Caution()
    first, second, third = (make(number, IOS) for number in range(3))
    for refused in (first, second, first, third):
        caution.note_refused(refused, 0.0)
    assert caution.split([first, second, third], 50, 1.0) == {IOS: [[second], [first], [third]]}


class ClosedBreaker:
    def take_probes(self, *_):
        return None

    def is_closed(self, _):
        return True

    def note(self, *_, **__):
        """Take note of nothing."""


class ProbingBreaker(ClosedBreaker):
    """Lets three probes through, and counts those that are over."""

    over = 0

    def take_probes(self, *_):
        return 3

    def note(self, _, routes, *, probe):
        self.over += probe and not routes


@pytest.mark.parametrize(("breaker", "probes"), [(ClosedBreaker(), 0), (ProbingBreaker(), 2)])
def test_what_finds_no_thread_is_put_back(breaker, probes, monkeypatch):
    slots, delivered, put_back = Slots([IOS], 4), [], []
    submit = slots._threads.submit

    def submit_once(work):
        monkeypatch.setattr(slots._threads, "submit", fail)
        return submit(work)

    def fail(_):
        raise RuntimeError("can't start new thread")

    def attempt(post, _):
        delivered.extend(post)
        return Attempted(outcomes=[None], routes=[Route.WORKS])

    monkeypatch.setattr(slots._threads, "submit", submit_once)
    postings = [make(number, IOS) for number in range(4)]
    work = Work(attempt, put_back.extend, 1, math.inf)
    [future] = Posts(slots, breaker, Caution()).start(postings, work, scheduled=False)
    assert future.result(30) == {}
    slots.close()
    assert sorted(put_back + delivered, key=postings.index) == postings
    assert delivered == postings[:1]
    assert slots.reserve(IOS, 9) == 4
    assert getattr(breaker, "over", 0) == probes


def test_a_time_limit_gives_slots_back():
    class OutOfTime(Exception):
        """As Celery raises it, in the middle of a look into Redis."""

    class Silent(ClosedBreaker):
        def take_probes(self, *_):
            raise OutOfTime

    slots = Slots([IOS], 4)
    with pytest.raises(OutOfTime):
        Posts(slots, Silent(), Caution()).start([make(1, IOS)], Work(None, None, 1, math.inf), scheduled=True)
    assert slots.reserve(IOS, 9) == 4
    slots.close()


@pytest.mark.parametrize(
    ("spoiling", "most_posts"),
    [((), 1), ((7,), 15), ((0,), 15), ((99,), 15), (range(0, 100, 20), 60), (range(100), 111)],
    ids=["none", "one", "first", "last", "one_in_20", "all"],
)
def test_few_posts_find_what_gorush_refuses(spoiling, most_posts):
    """It refuses the whole post. Each notification that spoils none gets through, each that does fails alone."""
    slots, sizes, alone, delivered = Slots([IOS], 1), [], [], []

    def attempt(post, _):
        sizes.append(len(post))
        numbers = [int.from_bytes(posting.delivery.delivery_key, "big") for posting in post]
        if not set(numbers).isdisjoint(spoiling):
            if len(post) > 1:
                return Attempted(refused=post)
            alone.extend(numbers)
            return Attempted(outcomes=[Failure.GORUSH_REFUSED])
        delivered.extend(numbers)
        return Attempted(outcomes=[None] * len(post))

    work = Work(attempt, lambda postings: pytest.fail(f"{len(postings)} are put back"), 100, math.inf)
    posts = Posts(slots, ClosedBreaker(), Caution())
    [future] = posts.start([make(number, IOS) for number in range(100)], work, scheduled=False)
    assert future.result() == {}
    slots.close()
    assert sorted(alone) == sorted(spoiling)
    assert sorted(delivered) == sorted(set(range(100)) - set(spoiling))
    assert len(sizes) <= most_posts
