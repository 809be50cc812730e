"""What the engine works with."""

from dataclasses import dataclass

from celery import Celery
from redis import Redis

from wakupush.redis.limits import Limiter
from wakupush.server.delivery.sender import Sender
from wakupush.server.engine.background import Followers, Later
from wakupush.server.engine.kind import Kinds
from wakupush.server.engine.outbox import Outbox
from wakupush.server.engine.rest import RestQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine(Sender):
    """What handles messages, besides what sends notifications."""

    kinds: Kinds
    redis: Redis
    #: For sending tasks.
    app: Celery
    rest: RestQueue
    limiter: Limiter
    outbox: Outbox
    #: Publish answers to push requests when they are due, and answers once more.
    answers: Later
    repeats: Later
    followers: Followers
