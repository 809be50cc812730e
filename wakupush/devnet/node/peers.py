"""A network of development nodes: each hands its messages to the nodes that were added as its peers.

=======================  ===================================================================================
``POST /dev/peers``      ``{"url": ...}``: hand everything to this node's ``/dev/messages`` too, from now on
``POST /dev/network``    ``{"hears": false}`` makes it deaf to its peers, ``{"speaks": false}`` mute, true ends it;
                         ``{"lonelyShards": [...]}`` takes all its peers away on these shards, ``[]`` brings them back
=======================  ===================================================================================
"""

import asyncio
from contextlib import suppress

import httpx2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from wakupush.devnet.node.state import DevelopmentNode
from wakupush.model.waku_message import WakuMessage
from wakupush.waku.codec import encode_message


class Peers:
    """The peers of a node."""

    def __init__(self, node: DevelopmentNode) -> None:
        self._node = node
        self._urls: list[str] = list(node.settings.peers)
        self._speaks = True
        self._hears = True
        self._tasks: set[asyncio.Task[None]] = set()
        #: By the URL of a peer: first the messages that are on their way there, then those that wait.
        self._queues: dict[str, list[tuple[str, WakuMessage]]] = {}
        self._http: httpx2.AsyncClient | None = None
        node.forward = self._forward

    def routes(self) -> list[Route]:
        """Return the routes that this module's table lists."""
        return [
            Route("/dev/peers", self._add, methods=["POST"]),
            Route("/dev/network", self._cut, methods=["POST"]),
        ]

    async def _cut(self, request: Request) -> Response:
        switches = await request.json()
        self._hears = switches.get("hears", self._hears)
        self._speaks = switches.get("speaks", self._speaks)
        self._node.lonely_shards = set(switches.get("lonelyShards", self._node.lonely_shards))
        return JSONResponse({"hears": self._hears, "speaks": self._speaks})

    def hears(self, pubsub_topic: str) -> bool:
        """Return whether messages of a topic arrive that peers relay."""
        return self._hears and pubsub_topic not in self._node.lonely_shards

    async def _add(self, request: Request) -> Response:
        url = (await request.json())["url"]
        if url not in self._urls:
            self._urls.append(url)
        return JSONResponse(self._urls)

    def _forward(self, pubsub_topic: str, message: WakuMessage) -> None:
        for url in self._urls if self._speaks and pubsub_topic not in self._node.lonely_shards else ():
            queue = self._queues.setdefault(url, [])
            queue.append((pubsub_topic, message))
            if len(queue) == 1:
                task = asyncio.get_running_loop().create_task(self._hand_over(url))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _hand_over(self, url: str) -> None:
        """Hand over a peer's queue. Messages that arrive during a request share the next: connections are costly."""
        # No connection is kept, because none would be closed when the node ends.
        self._http = self._http or httpx2.AsyncClient(
            limits=httpx2.Limits(max_keepalive_connections=0), trust_env=False
        )
        queue = self._queues[url]
        while queue:
            together = list(queue)
            for topic in dict.fromkeys(topic for topic, _ in together):
                messages = [encode_message(message) for its, message in together if its == topic]
                with suppress(httpx2.HTTPError):  # a peer that is down misses it
                    await self._http.post(f"{url}/dev/messages", json={"pubsubTopic": topic, "messages": messages})
            del queue[: len(together)]
