"""Filter and light push of a development node, as nwaku and as go-waku. The node is its own service node."""

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, unquote_plus

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from wakupush.devnet.node import go_values
from wakupush.devnet.node.filter_state import Bucket, Outcome
from wakupush.devnet.node.nwaku_values import (
    BodyRefusedError,
    NoContentTypeError,
    UndecodableError,
    json_body,
    message_from,
    message_json,
    refusal_of,
    text,
)
from wakupush.devnet.node.state import MOST_META, DevelopmentNode, PublishRefusedError
from wakupush.model.waku_message import WakuMessage

_SUBSCRIPTIONS = "/filter/v2/subscriptions"
_MESSAGES = "/filter/v2/messages/"
_PUSH, _PUSH_V3 = "/lightpush/v1/message", "/lightpush/v3/message"
_JSON = "application/json; charset=UTF-8"
#: nwaku's answer to a message that it knows already, to one of another shard, and without peers; and that of v3.
_NOT_PUBLISHED, _NO_PEERS = "not_published_to_any_peer", "No peers for topic, skipping publish"


class NwakuLight:
    """nwaku's REST interface."""

    def __init__(self, node: DevelopmentNode) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return all routes of the contract."""
        return [
            Route(_SUBSCRIPTIONS, self._subscribe, methods=["POST", "PUT"]),
            Route(_SUBSCRIPTIONS, self._unsubscribe, methods=["DELETE"]),
            Route(f"{_SUBSCRIPTIONS}/all", self._unsubscribe_all, methods=["DELETE"]),
            Route(f"{_SUBSCRIPTIONS}/{{id}}", self._ping, methods=["GET"]),
            Route(f"{_MESSAGES}{{path:path}}", self._read, methods=["GET"]),
            Route(_PUSH, self._push, methods=["POST"]),
            Route(_PUSH_V3, self._push_v3, methods=["POST"]),
        ]

    async def _subscribe(self, request: Request) -> Response:
        return await self._change(request, self._node.filter.subscribe)

    async def _unsubscribe(self, request: Request) -> Response:
        return await self._change(request, self._node.filter.unsubscribe)

    async def _change(self, request: Request, change: Callable[[str, list[str]], Outcome]) -> Response:
        try:
            request_id, shard, topics = _filter_request(await _filter_body(request))
        except BodyRefusedError as error:
            return _filter_refusal(error)
        return _status(request_id, change(shard, topics))

    async def _unsubscribe_all(self, request: Request) -> Response:
        try:
            body = await _filter_body(request)
            if not isinstance(body, dict) or not isinstance(body.get("requestId"), str) or len(body) > 1:
                raise UndecodableError
        except BodyRefusedError as error:
            return _filter_refusal(error)
        return _status(body["requestId"], self._node.filter.unsubscribe_all())

    async def _ping(self, request: Request) -> Response:
        return _status(request.path_params["id"], self._node.filter.ping())

    async def _read(self, request: Request) -> Response:
        topic = segment_of(request, _MESSAGES)
        if topic is None:
            return text("", 404)
        messages = self._node.filter.read(topic)
        if messages is None:
            return text(f"Not subscribed to topic: {topic}", 400)
        return JSONResponse([message_json(message) for message in messages])

    async def _push(self, request: Request) -> Response:
        try:
            shard, body = _push_request(await json_body(request, empty="Missing content body"))
        except BodyRefusedError as error:
            return refusal_of(error)
        try:
            message = message_from(body)
        except UndecodableError as error:
            return refusal_of(error)
        except BodyRefusedError as error:
            return text(f"Invalid message: {error}", 400)
        refusal = self._hand_over(shard, message)
        return text("OK") if refusal is None else text(f"Failed to request a message push: {refusal}", 503)

    async def _push_v3(self, request: Request) -> Response:
        try:
            shard, body = _push_request(await json_body(request, empty="Missing content body"))
            message = message_from(body)
        except UndecodableError as error:
            return _pushed(400, f"Invalid push request! {_nim_error(str(error))}")
        except BodyRefusedError as error:
            return _pushed(400, f"Invalid message! {error}")
        refusal = self._hand_over(shard, message)
        if refusal is None:
            return JSONResponse({"relayPeerCount": 1})
        return _pushed(505, _NO_PEERS) if refusal == _NOT_PUBLISHED else _pushed(500, refusal)

    def _hand_over(self, shard: str, message: WakuMessage) -> str | None:
        """Give a message to the service node; return its error text if it does not take it, else None."""
        if not shard:
            return "Pubsub topic must be specified when static sharding is enabled"
        if len(message.meta) > MOST_META:
            return 'decode_rpc_failure: (kind: InvalidLengthField, field: "meta")'
        if shard not in self._node.topics:
            return _NOT_PUBLISHED
        try:
            is_new = self._node.publish(shard, message)
        except PublishRefusedError as error:
            return str(error)
        return None if is_new else _NOT_PUBLISHED


async def _filter_body(request: Request) -> Any:
    content_type = request.headers.get("content-type")
    if content_type not in {None, "application/json"}:
        raise BodyRefusedError("Wrong Content-Type, expected application/json")
    return await json_body(request)


def _filter_request(body: Any) -> tuple[str, str, list[str]]:
    """Return request id, shard, empty if there is none, and content topics of a subscription, or of its end."""
    match body:
        case {"requestId": str(request_id), "contentFilters": [_, *_] as topics, **rest}:
            shard = rest.pop("pubsubTopic", "")
            if not rest and isinstance(shard, str) and all(isinstance(topic, str) for topic in topics):
                return request_id, shard, topics
    raise UndecodableError


def _push_request(body: Any) -> tuple[str, Any]:
    match body:
        case {"message": message, **rest}:
            shard = rest.pop("pubsubTopic", "")
            if not rest and isinstance(shard, str):
                return shard, message
    raise UndecodableError


def _filter_refusal(error: BodyRefusedError) -> Response:
    if isinstance(error, NoContentTypeError):
        return refusal_of(error)
    # The one text has a colon elsewhere, and a full stop here.
    failure = _nim_error(str(error).replace("decode: ", "decode. "))
    return _status("unknown", (HTTPStatus.BAD_REQUEST, f"BAD_REQUEST: Failed to decode request: {failure}"))


def _nim_error(reason: str) -> str:
    """Return an error of a body as nwaku prints it."""
    kind = f'(status: 400 Bad Request, message: "{reason}", contentType: "text/plain")'
    return f"(status: 400 Bad Request, headers: , kind: Error, errobj: {kind})"


def _pushed(status: int, description: str) -> Response:
    return JSONResponse({"statusDesc": description}, status)


class GoWakuLight:
    """go-waku's REST interface."""

    def __init__(self, node: DevelopmentNode) -> None:
        self._node = node
        self._pushes = Bucket(1, 1.0)

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
        outcome = self._node.filter.subscribe(body.get("pubsubTopic", ""), body.get("contentFilters") or [])
        return _status(body.get("requestId", ""), outcome, _JSON)

    async def _unsubscribe(self, request: Request) -> Response:
        body = json.loads(await request.body())
        outcome = self._node.filter.unsubscribe(body["pubsubTopic"], body["contentFilters"])
        return _status(body["requestId"], outcome, _JSON)

    async def _unsubscribe_all(self, request: Request) -> Response:
        request_id = json.loads(await request.body())["requestId"]
        return _status(request_id, self._node.filter.unsubscribe_all(), _JSON)

    async def _ping(self, request: Request) -> Response:
        request_id = request.path_params.get("id", "")
        if not request_id:
            return _status("", (HTTPStatus.BAD_REQUEST, "bad request id"), _JSON)
        return _status(request_id, self._node.filter.ping(), _JSON)

    async def _read(self, request: Request) -> Response:
        segments = request.scope["raw_path"].decode("ascii").removeprefix(_MESSAGES).split("/")
        parts = [unquote_plus(segment) for segment in segments]
        if not all(parts) or len(parts) > 2:  # noqa: PLR2004 - a shard and a topic
            return PlainTextResponse("404 page not found\n", status_code=404)
        # Without a shard it is that of auto-sharding, which knows cluster 1 only.
        shard, topic = parts if len(parts) == 2 else ("/waku/2/rs/1/4", parts[0])  # noqa: PLR2004 - likewise
        messages = self._node.filter.read(topic, shard)
        if messages is None:
            reason = f"not subscribed to pubsubTopic:{shard} contentTopic: {topic}"
            return PlainTextResponse(reason, status_code=404)
        return JSONResponse([go_values.relay_json(message) for message in messages], media_type=_JSON)

    async def _push(self, request: Request) -> Response:
        try:
            body = json.loads(await request.body())
        except ValueError:
            return Response(status_code=400)
        if not body.get("message"):
            return PlainTextResponse("waku message is required", status_code=400)
        shard = body.get("pubsubTopic")
        try:
            message = go_values.message_from(body["message"])
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


def segment_of(request: Request, path: str) -> str | None:
    """Return the rest of a path, decoded; None unless it is one percent-encoded segment."""
    segment = request.scope["raw_path"].decode("ascii").removeprefix(path)
    return unquote(segment) if segment and "/" not in segment else None


def _status(request_id: str, outcome: Outcome, media_type: str = "application/json") -> Response:
    status, description = outcome
    return JSONResponse({"requestId": request_id, "statusDesc": description}, status, media_type=media_type)
