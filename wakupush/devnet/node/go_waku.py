"""A development Waku node with go-waku's REST interface, as one Starlette app.

Implements relay, Store v1, what there is of Store v3, filter, light push, health, info, version and the list of peers,
as go-waku v0.10.0 has them; auto-sharding is not mounted. Store v1 is answered from the node's own archive, and no
peer offers Store v3, whatever ``peerAddr`` says. The node never hangs for good, which a go-waku may after many
subscriptions. The controls are those of `nwaku`. How the node behaves is in `go_waku_state`.
"""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from wakupush.devnet.node.go_values import (
    message_from,
    parse_base64,
    parse_bool,
    parse_int,
    parse_json,
    parse_uint,
    relay_json,
)
from wakupush.devnet.node.go_waku_state import GoWakuNode, HistoryQuery, cursor_of, history
from wakupush.devnet.node.light import GoWakuLight
from wakupush.devnet.node.nwaku import INFO, MESSAGES_PATH, PEER_ADDRESS, VERSION, node_app
from wakupush.devnet.node.state import ArchivedMessage, PublishRefusedError, QueryRefusedError
from wakupush.model.waku_message import WakuMessage

_JSON = "application/json; charset=UTF-8"
_PEER = {
    "id": PEER_ADDRESS.rpartition("/")[2],
    "multiaddrs": [PEER_ADDRESS],
    "protocols": ["/vac/waku/relay/2.0.0"],
    "connected": True,
}
#: The topic that an empty text in a list of subscriptions stands for.
_DEFAULT_TOPIC = "/waku/2/default-waku/proto"
_STORE_V3 = "protocols not supported: [/vac/waku/store-query/3.0.0]"
#: Seconds between looks at whether subscriptions can be changed again.
_LOOK_SECONDS = 0.01

_DEFAULT_PAGE_SIZE, _MAX_PAGE_SIZE = 20, 100
_MAX_CONTENT_TOPICS = 10


def create_app(node: GoWakuNode | None = None) -> Starlette:
    """Return the app of a node; without one it gets a new node with default settings."""
    node = node or GoWakuNode()
    routes = [*GoWakuRest(node).routes(), *GoWakuLight(node).routes()]
    return node_app(node, routes, no_route=_no_route, no_method=_no_method)


class GoWakuRest:
    """go-waku's REST interface to a node."""

    def __init__(self, node: GoWakuNode) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return all routes of the contract."""
        messages = f"{MESSAGES_PATH}{{topic:path}}"
        return [
            Route("/relay/v1/subscriptions", self._subscriptions, methods=["POST", "DELETE"]),
            Route(messages, self._read, methods=["GET"]),
            Route(messages, self._publish, methods=["POST"]),
            Route("/store/v1/messages", self._store_v1, methods=["GET"]),
            Route("/store/v3/messages", self._store_v3, methods=["GET"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/admin/v1/peers", self._peers, methods=["GET"]),
            Route("/admin/v1/peers", self._add_peer, methods=["POST"]),
            Route("/debug/v1/info", self._info, methods=["GET"]),
            Route("/debug/v1/version", self._version, methods=["GET"]),
        ]

    async def _subscriptions(self, request: Request) -> Response:
        try:
            topics = _topics_from(parse_json(await request.body()))
        except ValueError:
            return Response(status_code=400)
        while self._node.is_blocked:  # noqa: ASYNC110 - the dispatcher has the lock, and may for days
            await asyncio.sleep(_LOOK_SECONDS)
        if request.method == "POST":
            self._node.subscribe(topics)
            return _answer(True)
        was_joined = not topics or topics[-1] in self._node.topics  # only the last one's error is reported
        self._node.unsubscribe(topics)
        return _answer(True) if was_joined else _failure()

    async def _read(self, request: Request) -> Response:
        topic = _topic_of(request)
        if topic is None:
            return await _no_route(request)
        messages = self._node.read(topic)
        if messages is None:
            return PlainTextResponse("no subscription found for pubsubTopic", status_code=404)
        return _answer([relay_json(message) for message in messages] or None)

    async def _publish(self, request: Request) -> Response:
        topic = _topic_of(request)
        if topic is None:
            return await _no_route(request)
        try:
            message = message_from(parse_json(await request.body()))
        except ValueError as error:
            return PlainTextResponse(str(error), status_code=400)
        try:
            self._node.publish(topic, message)
        except PublishRefusedError:
            return _failure()
        return _answer(True)

    async def _store_v1(self, request: Request) -> Response:
        try:
            query = _history_query_from(request.query_params)
        except ValueError as error:
            return _store_failed(error, status=400)
        try:
            page, has_more = history(self._node.archive, query)
        except QueryRefusedError as error:
            return _store_failed(error)
        answer: dict[str, Any] = {"messages": [_store_json(entry.message) for entry in page] or None}
        if has_more:
            answer["cursor"] = _cursor_json(page[-1 if query.ascending else 0])
        return _answer(answer)

    async def _store_v3(self, request: Request) -> Response:
        try:
            _check_store_query(request.query_params)
        except ValueError as error:
            return _answer({"status_code": 400, "status_desc": str(error)}, status=400)
        return _store_failed(_why_not_asked(request.query_params))

    async def _health(self, _: Request) -> Response:
        return _answer("Non RLN healthcheck is not implemented", status=501)

    async def _peers(self, _: Request) -> Response:
        return _answer([{**_PEER, "pubsubTopics": sorted(self._node.topics - self._node.lonely_shards)}])

    async def _add_peer(self, _: Request) -> Response:
        return _failure()

    async def _info(self, _: Request) -> Response:
        return _answer(INFO)

    async def _version(self, _: Request) -> Response:
        return _answer(VERSION)


async def _no_route(_: Request, __: Exception | None = None) -> Response:
    return PlainTextResponse("404 page not found\n", status_code=404)


async def _no_method(_: Request, __: Exception | None = None) -> Response:
    return Response(status_code=405)


def _answer(value: object, *, status: int = 200) -> Response:
    return JSONResponse(value, status_code=status, media_type=_JSON)


def _failure() -> Response:
    """Return the relay's answer to everything that it cannot do, which is empty."""
    return Response(status_code=500, media_type=_JSON)


def _store_failed(reason: object, *, status: int = 500) -> Response:
    return _answer({"messages": None, "error_message": str(reason)}, status=status)


def _topic_of(request: Request) -> str | None:
    """Return the pubsub topic of a relay path, None unless it is one percent-encoded segment."""
    segment = request.scope["raw_path"].decode("ascii").removeprefix(MESSAGES_PATH)
    return unquote_plus(segment) if segment and "/" not in segment else None


def _topics_from(body: Any) -> list[str]:
    if body is None:
        return []
    if not isinstance(body, list) or not all(isinstance(topic, str | None) for topic in body):
        raise ValueError("not a list of texts")
    return [topic or _DEFAULT_TOPIC for topic in body]


def _store_json(message: WakuMessage) -> dict[str, Any]:
    optional = {"version": message.version, "timestamp": message.timestamp}
    return {
        "payload": base64.b64encode(message.payload).decode(),
        "contentTopic": message.content_topic,
        **{name: value for name, value in optional.items() if value},
    }


def _cursor_json(entry: ArchivedMessage) -> dict[str, str]:
    stored_at, digest = cursor_of(entry)
    return {
        "pubsubTopic": entry.pubsub_topic,
        "senderTime": str(entry.message.timestamp),
        "storeTime": str(stored_at),
        "digest": base64.b64encode(digest).decode(),
    }


def _history_query_from(parameters: Mapping[str, str]) -> HistoryQuery:
    """Return the query of a Store v1 request; ValueError says which parameter is wrong."""
    arguments = {name: value for name, value in parameters.items() if value}
    _check_address(arguments)
    times = {name: parse_int(arguments.get(name, "0")) for name in ("startTime", "endTime", "senderTime", "storeTime")}
    digest = parse_base64(arguments.get("digest", ""), url_safe=True)
    return HistoryQuery(
        pubsub_topic=arguments.get("pubsubTopic", ""),
        content_topics=tuple(arguments["contentTopics"].split(",")) if "contentTopics" in arguments else (),
        start_time=times["startTime"],
        end_time=times["endTime"],
        cursor=(times["storeTime"], digest) if arguments.keys() & {"senderTime", "storeTime", "digest"} else None,
        ascending=parse_bool(arguments.get("ascending", "true")),
        page_size=min(parse_uint(arguments.get("pageSize", "0")) or _DEFAULT_PAGE_SIZE, _MAX_PAGE_SIZE),
    )


def _check_store_query(parameters: Mapping[str, str]) -> None:
    """Read a Store v3 request; ValueError says which parameter is wrong."""
    arguments = {name: value for name, value in parameters.items() if value}
    _check_address(arguments)
    try:
        parse_bool(arguments.get("includeData", "false"))
    except ValueError:
        raise ValueError("invalid value for includeData. Use true|false") from None
    for text in arguments.get("hashes", "").split(","):
        parse_base64(text, url_safe=True)
    if "hashes" in arguments and arguments.keys() & {"pubsubTopic", "contentTopics"}:
        raise ValueError("cant use content filters while specifying message hashes")
    if "hashes" not in arguments and not arguments.keys() >= {"pubsubTopic", "contentTopics"}:
        raise ValueError("pubsubTopic and contentTopics are required")
    for name in ("startTime", "endTime"):
        parse_int(arguments.get(name, "0"))
    parse_base64(arguments.get("cursor", ""), url_safe=True)
    parse_bool(arguments.get("ascending", "true"))
    parse_uint(arguments.get("pageSize", "0"))


def _why_not_asked(parameters: Mapping[str, str]) -> str:
    """Return why no peer was asked a Store v3 query that reads well."""
    if "peerAddr" not in parameters:
        if "hashes" in parameters:
            return "a peer ID or multiaddress is required when checking for message hashes"
        return f"failed to negotiate protocol: {_STORE_V3}"
    if parameters.get("contentTopics", "").count(",") >= _MAX_CONTENT_TOPICS:
        return "exceeds the maximum number of ContentTopics allowed"
    start, end = (parse_int(parameters.get(name) or "0") for name in ("startTime", "endTime"))
    return "invalid time range" if start > end > 0 else _STORE_V3


def _check_address(arguments: Mapping[str, str]) -> None:
    address = arguments.get("peerAddr", "/")
    if not address.startswith("/"):
        raise ValueError(f'failed to parse multiaddr "{address}": must begin with /')
