"""A development Waku node with nwaku's REST interface, as one Starlette app.

Implements relay, store v3, filter, light push, health, info, version and the list of peers, as nwaku of December 2025
has them. Every store query is answered from the node's own archive, whatever ``peerAddr`` says, and the node is its own
service node of filter and light push. The REST contract is the app's only public part for processes; tests and the
demo may also use those of `controls` (``/dev/log``, ``/dev/counters``, ``/dev/faults``), of `peers`, and these:

======================  =====================================================================================
``POST /dev/restart``   what a restart does: REST subscriptions and unread messages are gone, the archive stays
``POST /dev/messages``  messages that peers relay to the node: ``{"pubsubTopic": ..., "messages": [...]}``, each as
                        in a publish request
======================  =====================================================================================

An entry of ``/dev/log`` is ``{seq, pubsubTopic, contentTopic, hash, arrivedAt}``, the hash in 0x-hex and the arrival
in Unix seconds; duplicates do not appear. How a node behaves is in `state`, nwaku's REST interface in `NwakuRest`, and
go-waku's in `go_waku`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from wakupush.devnet.controls import Fault, FaultInjection, control_routes
from wakupush.devnet.node.light import NwakuLight
from wakupush.devnet.node.peers import Peers
from wakupush.devnet.node.state import (
    ArchivedMessage,
    DevelopmentNode,
    PublishRefusedError,
    QueryRefusedError,
    StoreQuery,
)
from wakupush.model.waku_message import INT64_MAX, INT64_MIN, WakuMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import ExceptionHandler

VERSION = "wakupush-devnet"
INFO = {
    "listenAddresses": ["/ip4/127.0.0.1/tcp/60000/p2p/16Uiu2HAmDevnetDevnetDevnetDevnetDevnetDevnetDevnetDe"],
    "enrUri": "enr:-devnet",
}
PEER_ADDRESS = "/ip4/127.0.0.1/tcp/60001/p2p/16Uiu2HAmPretendedPeerPretendedPeerPretendedPeerPretend"
_PEER = {
    "multiaddr": PEER_ADDRESS,
    "protocols": ["/vac/waku/relay/2.0.0", "/vac/waku/store-query/3.0.0"],
    "connected": "Connected",
    "agent": VERSION,
    "origin": "Static",
    "score": None,
}

MESSAGES_PATH = "/relay/v1/messages/"
_CONTENT_TYPES = ("application/json", "text/plain")
_SHARD = re.compile(r"/waku/2/rs/(\d{1,5})/(\d{1,5})", re.ASCII)
_MAX_UINT16 = 2**16 - 1
_MAX_UINT32 = 2**32 - 1
_MAX_META = 64

_MESSAGE_FIELDS = {
    "payload": str,
    "contentTopic": str,
    "version": int,
    "timestamp": int,
    "meta": str,
    "ephemeral": bool,
}

_HASH_SIZE = 32
_DEFAULT_PAGE_SIZE, _MAX_PAGE_SIZE = 20, 100
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "y", "1", "on"), True),
    **dict.fromkeys(("", "false", "no", "n", "0", "off"), False),
}


def create_app(node: DevelopmentNode | None = None) -> Starlette:
    """Return the app of a node; without one it gets a new node with default settings."""
    node = node or DevelopmentNode()
    routes = [*NwakuRest(node).routes(), *NwakuLight(node, _message_from, _relay_json).routes()]
    return node_app(node, routes, no_route=_no_route, no_method=_no_route)


def node_app(
    node: DevelopmentNode, routes: list[Route], *, no_route: ExceptionHandler, no_method: ExceptionHandler
) -> Starlette:
    """Return the app of a node: its REST interface, and the controls.

    Args:
        node: what the controls watch and restart.
        routes: of the REST interface.
        no_route: answers a request to an unknown path.
        no_method: answers a request with a method that its path does not have.
    """
    faults: list[Fault] = []
    peers = Peers(node)

    async def restart(_: Request) -> Response:
        node.restart()
        return PlainTextResponse("OK")

    async def relay(request: Request) -> Response:
        try:
            body = json.loads(await request.body())
            messages = [_message_from(message) for message in body["messages"]]
            for message in messages if peers.hears else ():
                node.publish(body["pubsubTopic"], message)
        except (ValueError, LookupError, TypeError, PublishRefusedError) as error:
            return _refused(error)
        return PlainTextResponse("OK")

    app = Starlette(
        routes=[
            *routes,
            *peers.routes(),
            *control_routes(faults, node.log, node.numbers),
            Route("/dev/restart", restart, methods=["POST"]),
            Route("/dev/messages", relay, methods=["POST"]),
        ],
        middleware=[Middleware(FaultInjection, faults=faults)],
        exception_handlers={404: no_route, 405: no_method},
    )
    app.router.redirect_slashes = False
    return app


class NwakuRest:
    """nwaku's REST interface to a node."""

    def __init__(self, node: DevelopmentNode) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return all routes of the contract."""
        messages = f"{MESSAGES_PATH}{{topic:path}}"
        return [
            Route("/relay/v1/subscriptions", self._subscriptions, methods=["POST", "DELETE"]),
            Route(messages, self._read, methods=["GET"]),
            Route(messages, self._publish, methods=["POST"]),
            Route("/store/v3/messages", self._store, methods=["GET"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/admin/v1/peers", self._peers, methods=["GET"]),
            *(Route(path, self._info, methods=["GET"]) for path in ("/info", "/debug/v1/info")),
            *(Route(path, self._version, methods=["GET"]) for path in ("/version", "/debug/v1/version")),
        ]

    async def _subscriptions(self, request: Request) -> Response:
        try:
            topics = await _json_body(request)
        except ValueError as error:
            return _refused(error)
        if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
            return _refused("the body must be a list of pubsub topics")
        if wrong := [topic for topic in topics if not _is_shard(topic)]:
            return _refused(f"Invalid pubsub topic(s): @{json.dumps(wrong)}")
        if request.method == "POST":
            self._node.subscribe(topics)
        else:
            self._node.unsubscribe(topics)
        return PlainTextResponse("OK")

    async def _read(self, request: Request) -> Response:
        topic = _topic_of(request)
        if topic is None:
            return await _no_route(request)
        messages = self._node.read(topic)
        if messages is None:
            return Response(status_code=404)
        return JSONResponse([_relay_json(message) for message in messages])

    async def _publish(self, request: Request) -> Response:
        topic = _topic_of(request)
        if topic is None:
            return await _no_route(request)
        try:
            self._node.publish(topic, _message_from(await _json_body(request)))
        except PublishRefusedError as error:
            return _refused(f"Failed to publish: {error}")
        except ValueError as error:
            return _refused(error)
        return PlainTextResponse("OK")

    async def _store(self, request: Request) -> Response:
        try:
            query = _query_from(request.query_params)
        except ValueError as error:
            return _refused(error)
        try:
            page = self._node.archive.query(query)
        except QueryRefusedError as error:
            return PlainTextResponse(f"BAD_RESPONSE: {error}", status_code=500)
        answer: dict[str, Any] = {
            "requestId": uuid.uuid4().hex,
            "statusCode": 200,
            "statusDesc": "OK",
            "messages": [_store_json(entry, with_data=query.include_data) for entry in page.messages],
        }
        if page.cursor is not None:
            answer["paginationCursor"] = f"0x{page.cursor.hex()}"
        return JSONResponse(answer)

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"nodeHealth": "READY", "protocolsHealth": [{"Relay": "READY"}, {"Store": "READY"}]})

    async def _peers(self, _: Request) -> Response:
        shards = sorted(int(topic.rpartition("/")[2]) for topic in self._node.topics)
        return JSONResponse([{**_PEER, "shards": shards}])

    async def _info(self, _: Request) -> Response:
        return JSONResponse(INFO)

    async def _version(self, _: Request) -> Response:
        return PlainTextResponse(VERSION)


async def _no_route(_request: Request, _: Exception | None = None) -> Response:
    return _refused("Bad request initiated. Invalid path or method used.")


def _refused(reason: object) -> Response:
    return PlainTextResponse(str(reason), status_code=400)


def _topic_of(request: Request) -> str | None:
    """Return the pubsub topic of a relay path, None unless it is one percent-encoded segment."""
    segment = request.scope["raw_path"].decode("ascii").removeprefix(MESSAGES_PATH)
    return unquote(segment) if segment and "/" not in segment else None


def _is_shard(topic: str) -> bool:
    match = _SHARD.fullmatch(topic)
    return match is not None and all(int(number) <= _MAX_UINT16 for number in match.groups())


async def _json_body(request: Request) -> Any:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in _CONTENT_TYPES:
        raise ValueError(f"Content-Type must be one of {', '.join(_CONTENT_TYPES)}")
    return json.loads(await request.body())


def _message_from(body: Any) -> WakuMessage:
    """Return the message of a publish request; ValueError says what is wrong with it."""
    if not isinstance(body, dict):
        raise ValueError("the body must be an object")  # noqa: TRY004 - the caller maps ValueError to 400
    fields = {name: body[name] for name in _MESSAGE_FIELDS if name in body}
    for name, value in fields.items():
        if type(value) is not _MESSAGE_FIELDS[name]:
            raise ValueError(f"{name} must be a {_MESSAGE_FIELDS[name].__name__}")
    for name in ("payload", "contentTopic"):
        if not fields.get(name, "").strip():
            raise ValueError(f"Field `{name}` is missing or empty")
    message = WakuMessage(
        payload=_base64(fields["payload"]),
        content_topic=fields["contentTopic"],
        version=fields.get("version", 0),
        timestamp=fields.get("timestamp", 0) or time.time_ns(),
        meta=_base64(fields.get("meta", "")),
        ephemeral=fields.get("ephemeral", False),
    )
    if not 0 <= message.version <= _MAX_UINT32 or not INT64_MIN <= message.timestamp <= INT64_MAX:
        raise ValueError("version or timestamp is out of range")
    if len(message.meta) > _MAX_META:
        raise ValueError(f"meta is longer than {_MAX_META} bytes")
    return message


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not standard padded base64: {error}") from error


def _query_from(parameters: Mapping[str, str]) -> StoreQuery:
    """Return the query of a store request; ValueError says which parameter is wrong."""
    given = {name: value for name, value in parameters.items() if value}
    hashes = [_hash(text) for text in given.get("hashes", "").split(",") if text]
    page_size = int(given.get("pageSize", "0"))
    include_data = _BOOLEANS.get(given.get("includeData", "").lower())
    if include_data is None:
        raise ValueError("includeData must be true or false")
    return StoreQuery(
        pubsub_topic=given.get("pubsubTopic"),
        content_topics=frozenset(given["contentTopics"].split(",")) if "contentTopics" in given else None,
        start_time=_time(given.get("startTime")),
        end_time=_time(given.get("endTime")),
        hashes=frozenset(hashes) if hashes else None,
        include_data=include_data,
        ascending=given.get("ascending", "true") == "true",
        page_size=min(page_size, _MAX_PAGE_SIZE) if page_size > 0 else _DEFAULT_PAGE_SIZE,
        cursor=_hash(given["cursor"]) if "cursor" in given else None,
    )


def _time(text: str | None) -> int | None:
    """Return nanoseconds; a number that is not positive counts as not given."""
    time_ns = int(text or "0")
    return time_ns if time_ns > 0 else None


def _hash(text: str) -> bytes:
    digest = bytes.fromhex(text.removeprefix("0x"))
    if len(digest) != _HASH_SIZE:
        raise ValueError(f"a message hash has {_HASH_SIZE} bytes")
    return digest


def _relay_json(message: WakuMessage) -> dict[str, Any]:
    return {**_store_message_json(message), "proof": ""}


def _store_json(entry: ArchivedMessage, *, with_data: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"messageHash": f"0x{entry.hash.hex()}"}
    if with_data:
        answer |= {"message": _store_message_json(entry.message), "pubsubTopic": entry.pubsub_topic}
    return answer


def _store_message_json(message: WakuMessage) -> dict[str, Any]:
    return {
        "payload": base64.b64encode(message.payload).decode(),
        "contentTopic": message.content_topic,
        "version": message.version,
        "timestamp": message.timestamp,
        **({"meta": base64.b64encode(message.meta).decode()} if message.meta else {}),
        "ephemeral": message.ephemeral,
    }
