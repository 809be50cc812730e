"""How much waits in the queues and how much is being worked on, read from Redis at a bounded cost.

The headers of a task say how many messages it carries and since when the oldest waits (see
`wakupush.redis.sending.send_entries`). Of a long queue only a sample of tasks is read, spread evenly over it, inside
Redis: bodies never travel.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, cast

from wakupush.model.backlog import QueueBacklog
from wakupush.model.queues import QUEUES

if TYPE_CHECKING:
    from redis import Redis

#: Tasks of a queue that one look reads at most. Up to this number the figures are exact.
SAMPLE: Final = 64
#: Where kombu keeps the tasks of all queues that were taken and not acknowledged.
UNACKED: Final = "unacked"
UNACKED_INDEX: Final = "unacked_index"

# A task is JSON; one that is not ours counts as one message of unknown age. -1 means unknown: Lua cuts nil off.
_QUEUE: Final = """
local length = redis.call('LLEN', KEYS[1])
local sample = math.min(length, tonumber(ARGV[1]))
local messages, oldest = 0, -1
for number = 0, sample - 1 do
    local position = 0
    if sample > 1 then position = math.floor(number * (length - 1) / (sample - 1)) end
    local count, seen = 1, nil
    local ok, task = pcall(cjson.decode, redis.call('LINDEX', KEYS[1], position))
    if ok and type(task) == 'table' and type(task.headers) == 'table' then
        count = tonumber(task.headers.messages) or 1
        seen = tonumber(task.headers.seen)
    end
    messages = messages + count
    if seen and (oldest < 0 or seen < oldest) then oldest = seen end
end
if sample > 0 then messages = messages / sample * length end
return cjson.encode({tasks = length, messages = messages, oldest = oldest})
"""
# A value is the task, its exchange and its routing key, which is the name of its queue.
_TAKEN: Final = """
local length = redis.call('ZCARD', KEYS[2])
local found, read = {}, 0
for _, tag in ipairs(redis.call('ZRANGE', KEYS[2], 0, tonumber(ARGV[1]) - 1)) do
    local ok, taken = pcall(cjson.decode, redis.call('HGET', KEYS[1], tag) or '')
    if ok and type(taken) == 'table' and type(taken[3]) == 'string' then
        local queue = found[taken[3]] or {tasks = 0, messages = 0}
        local headers = type(taken[1]) == 'table' and taken[1].headers
        queue.tasks = queue.tasks + 1
        queue.messages = queue.messages + (type(headers) == 'table' and tonumber(headers.messages) or 1)
        found[taken[3]] = queue
        read = read + 1
    end
end
for _, queue in pairs(found) do
    queue.tasks = queue.tasks / read * length
    queue.messages = queue.messages / read * length
end
return cjson.encode(found)
"""


def look(redis: Redis) -> dict[str, QueueBacklog]:
    """Return what waits and what is worked on, by queue.

    Raises:
        RedisError: Redis does not answer.
    """
    with redis.pipeline(transaction=False) as pipeline:
        for name in QUEUES:
            pipeline.eval(_QUEUE, 1, name, SAMPLE)
        pipeline.eval(_TAKEN, 2, UNACKED, UNACKED_INDEX, SAMPLE)
        *waiting, taken = [json.loads(answer) for answer in cast("list[bytes]", pipeline.execute())]
    found = {}
    for name, queue in zip(QUEUES, waiting, strict=True):
        in_flight = taken.get(name, {"tasks": 0, "messages": 0})
        found[name] = QueueBacklog(
            tasks=queue["tasks"],
            messages=queue["messages"],
            oldest=queue["oldest"] if queue["oldest"] >= 0 else None,
            tasks_in_flight=in_flight["tasks"],
            messages_in_flight=in_flight["messages"],
        )
    return found
