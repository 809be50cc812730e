"""The table of the queues, of the pools that take from them, and of the tasks that travel in them."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue, the pool of workers that has its name, and the task that its messages arrive in."""

    name: str
    #: Name of the Celery task that takes a batch of entries.
    task: str


REGISTRATION: Final = Queue("registration", "wakupush.registration")
QUERY: Final = Queue("query", "wakupush.query")
DISPATCH: Final = Queue("dispatch", "wakupush.dispatch")
QUEUES: Final = {queue.name: queue for queue in (REGISTRATION, QUERY, DISPATCH)}
#: The queue and the pool of messages for devices that no push reached yet: of every kind, in the tasks of their kinds.
REST: Final = "rest"
POOLS: Final = (*QUEUES, REST)
#: The command of its workers.
REST_WORKER: Final = f"worker {REST}"

#: The task of the next attempt of deliveries that failed for the time being, on the dispatch queue.
DELIVER: Final = "wakupush.deliver"
#: The task that applies failures which gorush's webhook reported after delivery, on the dispatch queue.
FEEDBACK: Final = "wakupush.feedback"
