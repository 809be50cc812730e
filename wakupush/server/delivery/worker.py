"""What a worker works with."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from wakupush.gorush.client import Gorush
from wakupush.gorush.instances import Instances, open_gorush
from wakupush.model.notifications import NotificationType
from wakupush.protocol.identity import Identity
from wakupush.redis.celery_app import celery_app
from wakupush.redis.limits import Limiter
from wakupush.runtime.connections.postgres import open_pool
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import Settings
from wakupush.server.background import Followers, Latencies, Later
from wakupush.server.delivery.breaker import Breaker
from wakupush.server.delivery.caution import Caution
from wakupush.server.delivery.celery_events import TaskEvents
from wakupush.server.delivery.posts import Posts
from wakupush.server.delivery.retry import times_to_live
from wakupush.server.delivery.slots import Slots
from wakupush.server.identity import load_identity
from wakupush.server.outdated import end_if_outdated
from wakupush.server.resources import Resources, open_publisher


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker(Resources):
    """Resources, with the key, the way to gorush, and what handles messages."""

    identity: Identity
    gorush: Gorush | Instances
    breaker: Breaker
    #: For posts to gorush, some of which stay open longer than the task that made them.
    posts: Posts
    task_events: TaskEvents
    limiter: Limiter
    #: How long answers waited for posts, and the thread that holds back answers that had no post to wait for.
    latencies: Latencies
    later: Later
    followers: Followers
    #: Seconds after which deliveries expire.
    times_to_live: Mapping[NotificationType, float]

    def close(self) -> None:
        """Follow up what is committed, publish answers that are held back, wait for open posts; then close all."""
        self.followers.close()
        self.later.close()
        self.posts.slots.close()
        self.task_events.close()
        self.gorush.close()
        Resources.close(self)


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
    # A post that outlives its lease is taken for one whose process died.
    breaker = Breaker(redis, settings.breaker, settings.delivery.lease)
    return Worker(
        settings=settings,
        pool=open_pool(settings.postgres, partial(end_if_outdated, main=main)),
        redis=redis,
        publisher=open_publisher(settings, redis),
        app=app,
        identity=load_identity(settings),
        gorush=open_gorush(settings.gorush),
        breaker=breaker,
        posts=Posts(Slots(settings.gorush.concurrency), breaker, Caution()),
        task_events=TaskEvents(app, node, settings.delivery.max_attempts),
        limiter=Limiter(redis),
        latencies=Latencies(),
        later=Later(),
        followers=Followers(),
        times_to_live=times_to_live(settings.delivery),
    )
