"""A development Waku node with nwaku's REST interface, as one Starlette app.

Implements relay, store v3, filter, light push, health, info, version and the lists of peers, as a nwaku 0.38.1 was
recorded (docs/reference/contracts/waku-rest.md, section 6). The node is its own service node of filter and light push.
A store query with ``peerAddr`` goes to the development node whose REST port the multiaddress names. The REST contract
is the app's only public part for processes; tests and the demo may also use those of `controls` (``/dev/log``,
``/dev/counters``, ``/dev/faults``), of `peers`, and these:

======================  =====================================================================================
``POST /dev/restart``   what a restart does: REST subscriptions and unread messages are gone, the archive stays
``POST /dev/messages``  messages that peers relay to the node: ``{"pubsubTopic": ..., "messages": [...]}``, each as
                        in a publish request
======================  =====================================================================================

An entry of ``/dev/log`` is ``{seq, pubsubTopic, contentTopic, hash, arrivedAt}``, the hash in 0x-hex and the arrival
in Unix seconds; duplicates do not appear. How a node behaves is in `state`, nwaku's REST interface in `NwakuRest`, and
go-waku's in `go_waku`.
"""

import json
import re
import secrets
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ExceptionHandler

from wakupush.devnet.controls import AnswerHeader, Fault, FaultInjection, control_routes
from wakupush.devnet.node.light import NwakuLight, segment_of
from wakupush.devnet.node.nwaku_values import (
    BodyRefusedError,
    UndecodableError,
    json_body,
    message_from,
    message_json,
    refusal_of,
    text,
)
from wakupush.devnet.node.peers import Peers
from wakupush.devnet.node.state import (
    ArchivedMessage,
    DevelopmentNode,
    PublishRefusedError,
    QueryRefusedError,
    StoreQuery,
)
from wakupush.model.waku_message import INT64_MAX, INT64_MIN

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
    "origin": "UnknownOrigin",
}
#: There is always a peer, which peers are added or not.
_HEALTH = {
    "nodeHealth": "READY",
    "connectionStatus": "PartiallyConnected",
    "protocolsHealth": [{"Relay": "READY"}, {"Store": "READY"}],
}

MESSAGES_PATH = "/relay/v1/messages/"
_PEER_ADDRESS = re.compile(r"/(ip4|dns4)/(?P<host>[^/]+)/tcp/(?P<port>\d{1,5})/p2p/(?P<id>\w+)", re.ASCII)
_SHARD = re.compile(r"/waku/2/rs/(\d{1,5})/(\d{1,5})", re.ASCII)
_MAX_UINT16 = 2**16 - 1
_HASH_SIZE = 32
_DEFAULT_PAGE_SIZE, _MAX_PAGE_SIZE = 20, 100
_INTEGER = re.compile(r"[+-]?\d{1,30}", re.ASCII)
_NO_HEX = re.compile("[^0-9A-Fa-f]")
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "y", "1", "on"), True),
    **dict.fromkeys(("", "false", "no", "n", "0", "off"), False),
}


def create_app(node: DevelopmentNode | None = None) -> Starlette:
    """Return the app of a node; without one it gets a new node with default settings."""
    node = node or DevelopmentNode()
    routes = [*NwakuRest(node).routes(), *NwakuLight(node).routes()]
    middleware = [Middleware(AnswerHeader, name="connection", value="close")]
    return node_app(node, routes, no_route=_no_route, no_method=_no_route, middleware=middleware)


def node_app(
    node: DevelopmentNode,
    routes: list[Route],
    *,
    no_route: ExceptionHandler,
    no_method: ExceptionHandler,
    middleware: Sequence[Middleware] = (),
) -> Starlette:
    """Return the app of a node: its REST interface, and the controls.

    Args:
        node: what the controls watch and restart.
        routes: of the REST interface.
        no_route: answers a request to an unknown path.
        no_method: answers a request with a method that its path does not have.
        middleware: what else changes its answers.
    """
    faults: list[Fault] = []
    peers = Peers(node)

    async def restart(_: Request) -> Response:
        node.restart()
        return PlainTextResponse("OK")

    async def wipe(_: Request) -> Response:
        node.archive.wipe()
        return PlainTextResponse("OK")

    async def relay(request: Request) -> Response:
        try:
            body = json.loads(await request.body())
            messages = [message_from(message) for message in body["messages"]]
            for message in messages if peers.hears(body["pubsubTopic"]) else ():
                node.publish(body["pubsubTopic"], message)
        except (ValueError, LookupError, TypeError, PublishRefusedError) as error:
            return text(error, 400)
        return PlainTextResponse("OK")

    app = Starlette(
        routes=[
            *routes,
            *peers.routes(),
            *control_routes(faults, node.log, node.numbers),
            Route("/dev/restart", restart, methods=["POST"]),
            Route("/dev/archive", wipe, methods=["DELETE"]),
            Route("/dev/messages", relay, methods=["POST"]),
        ],
        middleware=[*middleware, Middleware(FaultInjection, faults=faults)],
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
            Route("/admin/v1/peers/relay", self._relay_peers, methods=["GET"]),
            *(Route(path, self._info, methods=["GET"]) for path in ("/info", "/debug/v1/info")),
            *(Route(path, self._version, methods=["GET"]) for path in ("/version", "/debug/v1/version")),
        ]

    async def _subscriptions(self, request: Request) -> Response:
        try:
            topics = await json_body(request)
            if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
                raise UndecodableError
        except BodyRefusedError as error:
            return refusal_of(error)
        if wrong := [topic for topic in topics if not _is_shard(topic)]:
            return text(f"Invalid pubsub topic(s): @{json.dumps(wrong)}", 400)
        if request.method == "POST":
            self._node.subscribe(topics)
        else:
            self._node.unsubscribe(topics)
        return text("OK")

    async def _read(self, request: Request) -> Response:
        topic = segment_of(request, MESSAGES_PATH)
        messages = None if topic is None else self._node.read(topic)
        if messages is None:
            return text("", 404)
        return JSONResponse([{**message_json(message), "proof": ""} for message in messages])

    async def _publish(self, request: Request) -> Response:
        topic = segment_of(request, MESSAGES_PATH)
        if topic is None:
            return text("", 404)
        try:
            message = message_from(await json_body(request))
        except BodyRefusedError as error:
            return refusal_of(error)
        try:
            is_new = self._node.publish(topic, message)
        except PublishRefusedError as error:
            return text(f"Failed to publish: {error}", 400)
        if not is_new:
            self._node.hear_again(topic, message)
        return text("OK")

    async def _store(self, request: Request) -> Response:
        try:
            query = _query_from(request.query_params)
        except ValueError as error:
            return text(error, 400)
        if peer := request.query_params.get("peerAddr"):
            return await _ask_peer(peer, request.query_params)
        try:
            messages, cursor = self._node.archive.query(query)
        except QueryRefusedError as error:
            return text(f"error in handleSelfStoreRequest: BAD_RESPONSE: archive error: {error}", 500)
        answer: dict[str, Any] = {
            "requestId": "",
            "statusCode": 200,
            "statusDesc": "OK",
            "messages": [_store_json(entry, with_data=query.include_data) for entry in messages],
        }
        if cursor is not None:
            answer["paginationCursor"] = f"0x{cursor.hex()}"
        return JSONResponse(answer)

    async def _health(self, _: Request) -> Response:
        return JSONResponse(_HEALTH)

    async def _peers(self, _: Request) -> Response:
        return JSONResponse([self._peer(self._node.topics)])

    async def _relay_peers(self, _: Request) -> Response:
        lonely, topics = self._node.lonely_shards, sorted(self._node.topics)
        peer = {**self._peer(self._node.topics - lonely), "score": 0.0}
        return JSONResponse([{"shard": _number(topic), "peers": [] if topic in lonely else [peer]} for topic in topics])

    def _peer(self, topics: set[str]) -> dict[str, Any]:
        return {**_PEER, "shards": sorted(map(_number, topics))}

    async def _info(self, _: Request) -> Response:
        return JSONResponse(INFO)

    async def _version(self, _: Request) -> Response:
        return text(VERSION)


async def _ask_peer(peer: str, parameters: QueryParams) -> Response:
    """Answer a store query as the node of a multiaddress does."""
    match = _PEER_ADDRESS.fullmatch(peer)
    if match is None:
        reason = "MultiAddress.init [multiaddress: Invalid MultiAddress, must start with `/`]"
        return text(f"Failed parsing remote peer info: {reason}", 400)
    query = {name: value for name, value in parameters.items() if name != "peerAddr"}
    try:
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://{match['host']}:{match['port']}/store/v3/messages", params=query)
    except httpx2.HTTPError:
        failure = 504, f"PEER_DIAL_FAILURE: {match['id']}"
    else:
        if answer.status_code == HTTPStatus.OK:
            return JSONResponse({**answer.json(), "requestId": secrets.token_hex(10)})
        failure = 300, "BAD_RESPONSE: BAD_RESPONSE: " + answer.text.partition("BAD_RESPONSE: ")[2]
    status, description = failure
    return JSONResponse({"requestId": "", "statusCode": status, "statusDesc": description, "messages": []})


async def _no_route(_request: Request, _: Exception) -> Response:
    return text("", 404)


def _number(topic: str) -> int:
    return int(topic.rpartition("/")[2])


def _is_shard(topic: str) -> bool:
    match = _SHARD.fullmatch(topic)
    return match is not None and all(int(number) <= _MAX_UINT16 for number in match.groups())


def _query_from(parameters: QueryParams) -> StoreQuery:
    """Return the query of a store request; ValueError says which parameter is wrong."""
    together = {name: ",".join(parameters.getlist(name)) for name in parameters}
    arguments = {name: value for name, value in together.items() if value}
    hashes = [_hash(text) for text in arguments.get("hashes", "").split(",") if text]
    page_size = _integer(arguments.get("pageSize", "0"), "page size")
    include_data = _BOOLEANS.get(arguments.get("includeData", "").lower())
    if include_data is None:
        raise ValueError(f"include data parsing error: cannot interpret as a bool: {arguments['includeData']}")
    return StoreQuery(
        pubsub_topic=arguments.get("pubsubTopic"),
        content_topics=frozenset(arguments["contentTopics"].split(",")) if "contentTopics" in arguments else None,
        start_time=_time(arguments.get("startTime", "0")),
        end_time=_time(arguments.get("endTime", "0")),
        hashes=frozenset(hashes) if hashes else None,
        include_data=include_data,
        ascending=arguments.get("ascending", "true") == "true",
        page_size=min(page_size % 2**64, _MAX_PAGE_SIZE) if page_size else _DEFAULT_PAGE_SIZE,
        cursor=_hash(arguments["cursor"]) if "cursor" in arguments else None,
    )


def _time(value: str) -> int | None:
    """Return nanoseconds; a number that is not positive counts as not given."""
    time_ns = _integer(value, "time")
    return time_ns if time_ns > 0 else None


def _integer(value: str, name: str) -> int:
    if not _INTEGER.fullmatch(value):
        raise ValueError(f"{name} parsing error: invalid integer: {value}")
    if not INT64_MIN <= int(value) <= INT64_MAX:
        raise ValueError(f"{name} parsing error: Parsed integer outside of valid range")
    return int(value)


def _hash(value: str) -> bytes:
    digits = value.removeprefix("0x")
    if wrong := _NO_HEX.search(digits):
        raise ValueError(f"Exception converting hex string to bytes: {wrong[0]} is not a hexadecimal character")
    if len(digits) % 2:
        raise ValueError("Exception converting hex string to bytes: hex string must have even length")
    digest = bytes.fromhex(digits)
    if len(digest) != _HASH_SIZE:
        raise ValueError(f"waku message hash parsing error: invalid hash length: {len(digest)}")
    return digest


def _store_json(entry: ArchivedMessage, *, with_data: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"messageHash": f"0x{entry.hash.hex()}"}
    if with_data:
        answer |= {"message": message_json(entry.message), "pubsubTopic": entry.pubsub_topic}
    return answer
