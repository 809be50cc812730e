"""What a worker process works with, and the table of the kinds of messages."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from wakupush.gorush.instances import open_gorush
from wakupush.gorush.profiles import load_profiles
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.postgres.old_code import end_if_outdated
from wakupush.redis.celery_app import celery_app
from wakupush.redis.limits import Limiter
from wakupush.runtime.connections.postgres import open_pool
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import Settings
from wakupush.server.delivery.breaker import Breaker
from wakupush.server.delivery.caution import Caution
from wakupush.server.delivery.celery_events import TaskEvents
from wakupush.server.delivery.post_times import PostTimes
from wakupush.server.delivery.posts import Posts
from wakupush.server.delivery.slots import Slots
from wakupush.server.engine.background import ANSWER_THREADS, Followers, Later
from wakupush.server.engine.engine import Engine
from wakupush.server.engine.identity import load_identity
from wakupush.server.engine.kind import Kinds
from wakupush.server.engine.outbox import Outbox, open_publisher
from wakupush.server.engine.rest import RestQueue
from wakupush.server.push.kind import PUSH_REQUESTS
from wakupush.server.query.kind import QUERIES
from wakupush.server.registration.kind import REGISTRATIONS

#: Seconds that Redis has to say which limits hold something back: workers ask inside of a transaction.
LIMITER_SECONDS: Final = 0.2

KINDS: Final = Kinds(REGISTRATIONS, QUERIES, PUSH_REQUESTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker(Engine):
    """Everything that a worker process works with, opened after the fork."""

    def close(self) -> None:
        """Follow up what is committed, publish answers that are held back, wait for open posts; then close all."""
        self.followers.close()
        self.answers.close()
        self.repeats.close()
        self.posts.slots.close()
        self.task_events.close()
        for client in self.gorush.values():
            client.close()
        self.outbox.publisher.close()
        self.limiter.close()
        self.pool.close()
        self.redis.close()


def open_worker(settings: Settings, node: str | None = None, main: int | None = None) -> Worker:
    """Open everything. Postgres, Redis, the node and gorush may be down meanwhile.

    Args:
        settings: with a private key.
        node: the name of the worker in Celery.
        main: id of the process that this one was forked from, which ends if the code is outdated.

    Raises:
        NoIdentityError: there is no private key.
        SettingsError: an address is not valid.
    """
    redis = open_redis(settings.redis)
    app = celery_app(settings)
    pool = open_pool(settings.postgres, partial(end_if_outdated, main=main))
    # A post that outlives its lease is taken for one whose process died.
    breaker = Breaker(redis, settings.breaker, settings.delivery.lease)
    # Without a name: devices whose app is not in the settings any more.
    app_platforms = {AppPlatform(app, platform) for app in (*settings.app_names, "") for platform in Platform}
    timeout = min(LIMITER_SECONDS, settings.redis.timeout)
    # For what a task or an answer that is due can do without.
    impatient = open_redis(settings.redis.model_copy(update={"timeout": timeout}))
    return Worker(
        settings=settings,
        profiles=load_profiles(settings),
        identity=load_identity(settings),
        kinds=KINDS,
        pool=pool,
        redis=redis,
        app=app,
        rest=RestQueue(redis, app),
        limiter=Limiter(impatient),
        outbox=Outbox(pool, open_publisher(settings, impatient)),
        gorush={app: open_gorush(settings.gorush_of(app)) for app in settings.app_names},
        posts=Posts(Slots(app_platforms, settings.gorush.concurrency), breaker, Caution()),
        task_events=TaskEvents(app, node, settings.delivery.max_attempts),
        post_times=PostTimes(),
        answers=Later(ANSWER_THREADS),
        repeats=Later(),
        followers=Followers(),
    )
