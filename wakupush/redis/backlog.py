"""How much waits in the queues and how much is being worked on, read from Redis at a bounded cost.

The headers of a task say how many messages it carries and since when the oldest waits (see
`wakupush.redis.sending.send_entries`). Of a long queue only a sample of tasks is read, spread evenly over it, inside
Redis: bodies never travel, and are not parsed.
"""

import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from redis import Redis

from wakupush.model.entries import Entry
from wakupush.model.queues import POOLS
from wakupush.model.use import Use
from wakupush.redis.sending import encoded_bytes

#: Tasks of a queue, and bytes of them, that one look reads at most, but both ends always. Up to this the figures are
#: exact. Redis does nothing else meanwhile, and takes half a millisecond for a megabyte.
SAMPLE: Final = 64
SAMPLE_BYTES: Final = 4 * 2**20
#: kombu's hash of the tasks of all queues that were taken and not acknowledged.
UNACKED: Final = "unacked"
UNACKED_INDEX: Final = "unacked_index"
#: Share of Redis' memory that one queue may have; the bytes of a queue if Redis' memory has no limit.
_LIMIT_SHARE: Final = 4
_LIMIT_BYTES: Final = 160 * 2**20
#: Share of a queue's limit from which on chance drops new messages.
DROPPED_FROM: Final = 0.5

# kombu writes a task as JSON with its body first; only what follows the body is parsed. A task that is not ours counts
# as one message of unknown age. -1 means unknown: Lua cuts nil off.
_PARSE: Final = """
local function parsed(text, opening)
    local start = text and string.find(text, '"content-encoding"', 1, true)
    local ok, value = pcall(cjson.decode, start and opening .. string.sub(text, start) or '')
    return ok and type(value) == 'table' and value or {}
end
local function headers(task)
    return type(task) == 'table' and type(task.headers) == 'table' and task.headers or {}
end
"""
_QUEUE: Final = (
    _PARSE
    + """
local length = redis.call('LLEN', KEYS[1])
local bytes = redis.call('MEMORY', 'USAGE', KEYS[1], 'SAMPLES', 0) or 0
local within = math.max(2, math.floor(tonumber(ARGV[2]) * length / math.max(bytes, 1)))
local sample = math.min(length, tonumber(ARGV[1]), within)
local messages, oldest = 0, -1
for number = 0, sample - 1 do
    local position = 0
    if sample > 1 then position = math.floor(number * (length - 1) / (sample - 1)) end
    local header = headers(parsed(redis.call('LINDEX', KEYS[1], position), '{'))
    local seen = tonumber(header.seen)
    messages = messages + (tonumber(header.messages) or 1)
    if seen and (oldest < 0 or seen < oldest) then oldest = seen end
end
if sample > 0 then messages = messages / sample * length end
return cjson.encode({tasks = length, messages = messages, oldest = oldest, bytes = bytes})
"""
)
# A value is the task, its exchange and its routing key, which is the name of its queue.
_IN_WORK: Final = (
    _PARSE
    + """
local length = redis.call('ZCARD', KEYS[2])
local queues, read, bytes = {}, 0, 0
for _, tag in ipairs(redis.call('ZRANGE', KEYS[2], 0, tonumber(ARGV[1]) - 1)) do
    local text = redis.call('HGET', KEYS[1], tag) or ''
    bytes = bytes + #text
    if bytes > tonumber(ARGV[2]) and read > 0 then break end
    local taken = parsed(text, '[{')
    if type(taken[3]) == 'string' then
        local queue = queues[taken[3]] or {tasks = 0, messages = 0}
        queue.tasks = queue.tasks + 1
        queue.messages = queue.messages + (tonumber(headers(taken[1]).messages) or 1)
        queues[taken[3]] = queue
        read = read + 1
    end
end
for _, queue in pairs(queues) do
    queue.tasks = queue.tasks / read * length
    queue.messages = queue.messages / read * length
end
return cjson.encode(queues)
"""
)


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """The waiting tasks of a queue, and those that its pool works on.

    Of a long queue only a sample is read: then messages, and tasks in flight, are estimated.
    """

    #: Tasks that wait, and the messages in them.
    tasks: int
    messages: float
    #: Bytes of Redis' memory that the tasks which wait take.
    bytes: int
    #: When the oldest message of the sample began to wait, in seconds since the epoch; None if none waits. The sample
    #: includes both ends of the queue.
    oldest: float | None
    #: Taken by workers and not acknowledged. They include the tasks of a dead worker until they come back.
    tasks_in_flight: float
    messages_in_flight: float


def queue_bytes(redis: Redis, names: Collection[str]) -> dict[str, int]:
    """Return how many bytes each of these queues has in Redis; without the tasks that a worker has taken.

    Redis adds up the nodes of the list, without looking into them: 0.3 ms for 160 MB.

    Raises:
        RedisError: Redis does not answer.
    """
    with redis.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.memory_usage(name, samples=0)
        return {name: size or 0 for name, size in zip(names, pipeline.execute(), strict=True)}


def default_limit(redis: Redis) -> int:
    """Return how many bytes a queue may have: a quarter of Redis' ``maxmemory``, 160 MiB if it has none.

    Raises:
        RedisError: Redis does not answer.
    """
    most = cast("dict[str, int]", redis.info("memory")).get("maxmemory", 0)
    return most // _LIMIT_SHARE or _LIMIT_BYTES


def use(redis: Redis) -> Use:
    """Return how full Redis is.

    Raises:
        RedisError: it does not answer.
    """
    memory, clients = (cast("dict[str, int]", redis.info(section)) for section in ("memory", "clients"))
    return Use(
        bytes=memory["used_memory"],
        most_bytes=memory.get("maxmemory", 0),
        connections=clients["connected_clients"],
        most_connections=clients.get("maxclients", 0),
    )


def fitting(
    messages: Sequence[tuple[str, Entry]], sizes: Mapping[str, int], limit: int, draw: Callable[[], float]
) -> list[int]:
    """Return the positions of the messages that fit into their queues, ascending.

    Up to half of its limit a queue takes all, at the limit none. In between chance decides: otherwise the first senders
    would lock out all others.

    Args:
        messages: each with the name of its queue.
        sizes: bytes of these queues.
        limit: bytes of each at most.
        draw: returns random numbers, from 0 to below 1.
    """
    sizes = dict(sizes)
    positions = []
    for position in random.sample(range(len(messages)), len(messages)):
        name, entry = messages[position]
        share = sizes[name] / limit
        if share < 1 and draw() >= (share - DROPPED_FROM) / (1 - DROPPED_FROM):
            sizes[name] += encoded_bytes(entry)
            positions.append(position)
    return sorted(positions)


def look(redis: Redis) -> dict[str, QueueBacklog]:
    """Return the backlog of each queue: waiting tasks, and tasks in flight.

    Raises:
        RedisError: Redis does not answer.
    """
    with redis.pipeline(transaction=False) as pipeline:
        for name in POOLS:
            pipeline.eval(_QUEUE, 1, name, SAMPLE, SAMPLE_BYTES)
        pipeline.eval(_IN_WORK, 2, UNACKED, UNACKED_INDEX, SAMPLE, SAMPLE_BYTES)
        *lengths, in_work = [json.loads(answer) for answer in pipeline.execute()]
    backlogs = {}
    for name, queue in zip(POOLS, lengths, strict=True):
        in_flight = in_work.get(name, {"tasks": 0, "messages": 0})
        backlogs[name] = QueueBacklog(
            tasks=queue["tasks"],
            messages=queue["messages"],
            bytes=queue["bytes"],
            oldest=queue["oldest"] if queue["oldest"] >= 0 else None,
            tasks_in_flight=in_flight["tasks"],
            messages_in_flight=in_flight["messages"],
        )
    return backlogs
