"""Filter and light push of a development node, as nwaku and as go-waku. The node is its own service node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_plus

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from wakupush.devnet.node.filter_state import RequestLimit
from wakupush.devnet.node.state import PublishRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from wakupush.devnet.node.state import DevelopmentNode
    from wakupush.model.waku_message import WakuMessage

    Decode = Callable[[Any], WakuMessage]
    Encode = Callable[[WakuMessage], Mapping[str, Any]]

_SUBSCRIPTIONS = "/filter/v2/subscriptions"
_MESSAGES = "/filter/v2/messages/"
_PUSH = "/lightpush/v1/message"
_MOST_TOPICS = 100
_JSON = "application/json; charset=UTF-8"


class NwakuLight:
    """nwaku's REST interface.

    Args:
        node: whose filter is read.
        decode: reads a published message; raises ValueError.
        encode: writes a message that is read.
    """

    def __init__(self, node: DevelopmentNode, decode: Decode, encode: Encode) -> None:
        self._node = node
        self._decode = decode
        self._encode = encode

    def routes(self) -> list[Route]:
        """Return all routes of the contract."""
        return [
            Route(_SUBSCRIPTIONS, self._subscribe, methods=["POST", "PUT", "DELETE"]),
            Route(f"{_SUBSCRIPTIONS}/all", self._unsubscribe_all, methods=["DELETE"]),
            Route(f"{_SUBSCRIPTIONS}/{{id}}", self._ping, methods=["GET"]),
            Route(f"{_MESSAGES}{{path:path}}", self._read, methods=["GET"]),
            Route(_PUSH, self._push, methods=["POST"]),
        ]

    async def _subscribe(self, request: Request) -> Response:
        try:
            body = json.loads(await request.body())
            request_id, topics = body["requestId"], body["contentFilters"]
        except (ValueError, KeyError, TypeError):
            return PlainTextResponse("Failed to decode request", status_code=400)
        shard = body.get("pubsubTopic", "")
        if not self._node.filter.limit.admits():
            return _status(request_id, "TOO_MANY_REQUESTS", 429)
        if request.method == "DELETE":
            all_did = self._node.filter.unsubscribe(shard, topics)
            return _status(request_id, "OK" if all_did else "NOT_FOUND", 200 if all_did else 404)
        if not topics or shard not in self._node.topics:
            return _status(request_id, "BAD_REQUEST", 400)
        self._node.filter.subscribe(shard, topics)
        return _status(request_id, "OK")

    async def _unsubscribe_all(self, request: Request) -> Response:
        self._node.filter.unsubscribe_all()
        return _status(json.loads(await request.body())["requestId"], "OK")

    async def _ping(self, request: Request) -> Response:
        request_id = request.path_params["id"]
        if not self._node.filter.limit.admits():
            return _status(request_id, "TOO_MANY_REQUESTS", 429)
        if not self._node.filter.is_subscribed:
            return _status(request_id, "NOT_FOUND: peer has no subscriptions", 404)
        return _status(request_id, "OK")

    async def _read(self, request: Request) -> Response:
        topic = request.scope["raw_path"].decode("ascii").removeprefix(_MESSAGES)
        if "/" in topic:
            return PlainTextResponse("Bad request initiated. Invalid path or method used.", status_code=400)
        messages = self._node.filter.read(unquote(topic))
        if messages is None:
            return PlainTextResponse("Not subscribed to topic", status_code=400)
        return JSONResponse([self._encode(message) for message in messages])

    async def _push(self, request: Request) -> Response:
        try:
            body = json.loads(await request.body())
            message = self._decode(body.get("message"))
            self._node.publish(body.get("pubsubTopic") or "", message)
        except PublishRefusedError as error:
            return PlainTextResponse(str(error), status_code=503)
        except (ValueError, AttributeError) as error:
            return PlainTextResponse(f"Failed to decode request: {error}", status_code=400)
        return PlainTextResponse("OK")


class GoWakuLight:
    """go-waku's REST interface; see `NwakuLight`."""

    def __init__(self, node: DevelopmentNode, decode: Decode, encode: Encode) -> None:
        self._node = node
        self._decode = decode
        self._encode = encode
        self._pushes = RequestLimit(requests=1, seconds=1.0)

    def routes(self) -> list[Route]:
        """Return all routes of the contract."""
        return [
            Route(_SUBSCRIPTIONS, self._subscribe, methods=["POST"]),
            Route(_SUBSCRIPTIONS, self._unsubscribe, methods=["DELETE"]),
            Route(_SUBSCRIPTIONS, self._ping, methods=["GET"]),
            Route(f"{_SUBSCRIPTIONS}/all", self._unsubscribe_all, methods=["DELETE"]),
            Route(f"{_SUBSCRIPTIONS}/{{id}}", self._ping, methods=["GET"]),
            Route(f"{_MESSAGES}{{path:path}}", self._read, methods=["GET"]),
            Route(_PUSH, self._push, methods=["POST"]),
        ]

    async def _subscribe(self, request: Request) -> Response:
        try:
            body = json.loads(await request.body())
        except ValueError:
            return Response(status_code=400)
        shard, topics = body.get("pubsubTopic", ""), body.get("contentFilters") or []
        request_id = body.get("requestId", "")
        if topics:
            if len(topics) > _MOST_TOPICS or not self._node.filter.limit.admits() or shard not in self._node.topics:
                return _go_status(request_id, "subscription failed", 400)
            self._node.filter.subscribe(shard, topics)
        return _go_status(request_id, "OK")

    async def _unsubscribe(self, request: Request) -> Response:
        body = json.loads(await request.body())
        all_did = self._node.filter.unsubscribe(body["pubsubTopic"], body["contentFilters"])
        return _go_status(body["requestId"], "OK" if all_did else "can't unsubscribe from devnet")

    async def _unsubscribe_all(self, request: Request) -> Response:
        self._node.filter.unsubscribe_all()
        return _go_status(json.loads(await request.body())["requestId"], "OK")

    async def _ping(self, request: Request) -> Response:
        request_id = request.path_params.get("id", "")
        if not request_id:
            return _go_status("", "bad request id", 400)
        if not self._node.filter.limit.admits():
            return _go_status(request_id, "ping request failed", 500)
        if not self._node.filter.is_subscribed:
            return _go_status(request_id, "peer has no subscription", 404)
        return _go_status(request_id, "OK")

    async def _read(self, request: Request) -> Response:
        segments = request.scope["raw_path"].decode("ascii").removeprefix(_MESSAGES).split("/")
        parts = [unquote_plus(segment) for segment in segments]
        if not all(parts) or len(parts) > 2:  # noqa: PLR2004 - a shard and a topic
            return PlainTextResponse("404 page not found\n", status_code=404)
        # Without a shard it is that of auto-sharding, which knows cluster 1 only.
        shard, topic = parts if len(parts) == 2 else ("/waku/2/rs/1/4", parts[0])  # noqa: PLR2004 - likewise
        messages = self._node.filter.read(topic, shard)
        if messages is None:
            text = f"not subscribed to pubsubTopic:{shard} contentTopic: {topic}"
            return PlainTextResponse(text, status_code=404)
        return JSONResponse([self._encode(message) for message in messages], media_type=_JSON)

    async def _push(self, request: Request) -> Response:
        try:
            body = json.loads(await request.body())
        except ValueError:
            return Response(status_code=400)
        if not body.get("message"):
            return PlainTextResponse("waku message is required", status_code=400)
        shard = body.get("pubsubTopic")
        try:
            message = self._decode(body["message"])
        except ValueError as error:
            return PlainTextResponse(str(error), status_code=503)
        refusal = self._hand_over(shard, message)
        if refusal is not None:
            return PlainTextResponse(refusal, status_code=503)
        return JSONResponse(content=True, media_type=_JSON)

    def _hand_over(self, shard: Any, message: WakuMessage) -> str | None:
        """Give a message to the service node; return its error text if it does not take it, else None."""
        if shard not in self._node.topics:
            return "no suitable remote peers"
        if not self._pushes.admits():
            return "lightpush errorexceeds the rate limit"
        try:
            self._node.publish(shard, message)
        except PublishRefusedError:
            return "lightpush errorCould not publish message: message size exceeds gossipsub max message size"
        return None


def _status(request_id: str, text: str, status: int = 200) -> Response:
    return JSONResponse({"requestId": request_id, "statusDesc": text}, status_code=status)


def _go_status(request_id: str, text: str, status: int = 200) -> Response:
    return JSONResponse({"requestId": request_id, "statusDesc": text}, status_code=status, media_type=_JSON)
