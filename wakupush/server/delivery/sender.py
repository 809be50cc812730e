"""What sends notifications, and stores what became of them."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from psycopg_pool import ConnectionPool

from wakupush.gorush.client import Gorush
from wakupush.gorush.instances import Instances
from wakupush.gorush.profiles import Profiles
from wakupush.protocol.identity import Identity
from wakupush.runtime.settings import Settings
from wakupush.server.delivery.celery_events import TaskEvents
from wakupush.server.delivery.post_times import PostTimes
from wakupush.server.delivery.posts import Posts


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """What a delivery needs on its way."""

    settings: Settings
    profiles: Profiles
    identity: Identity
    pool: ConnectionPool
    #: By the name of the app. An app without one is not in the settings any more.
    gorush: Mapping[str, Gorush | Instances]
    #: For posts to gorush, some of which stay open longer than the task that made them.
    posts: Posts
    post_times: PostTimes
    task_events: TaskEvents
    #: The name of this process in events.
    worker: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")
    #: Seconds since the epoch.
    now: Callable[[], float] = time.time
