"""Requests to go-waku's REST API, as a test makes them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx2
from starlette.applications import Starlette

from wakupush.devnet.node.go_waku import create_app
from wakupush.devnet.node.go_waku_state import GoWakuNode
from wakupush.devnet.node.state import NodeSettings

Serve = Callable[[Starlette], httpx2.Client]
AREA = "waku-rest"
SHARD, OTHER_SHARD = "/waku/2/rs/16/32", "/waku/2/rs/16/64"
TOPIC = "/waku/1/0x1a2b3c4d/rfc26"
CAPACITY = 50


def media_type(answer: httpx2.Response) -> str:
    return str(answer.headers.get("content-type", "")).lower()


def relay_path(shard: str = SHARD) -> str:
    return f"/relay/v1/messages/{quote(shard, safe='')}"


def subscribe(client: httpx2.Client, *shards: str) -> None:
    assert client.post("/relay/v1/subscriptions", json=shards).text == "true"


def encode(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


def history(client: httpx2.Client, **parameters: str) -> list[dict[str, Any]]:
    return [message for page in history_pages(client, **{"pageSize": "100", **parameters}) for message in page]


def history_pages(client: httpx2.Client, **parameters: str) -> Iterator[list[dict[str, Any]]]:
    cursor: dict[str, str] = {}
    while True:
        answer = client.get("/store/v1/messages", params={**parameters, **cursor})
        assert answer.status_code == 200
        yield answer.json()["messages"] or []
        cursor = answer.json().get("cursor", {})
        if not cursor:
            return
        cursor.pop("pubsubTopic")
        cursor["digest"] = cursor["digest"].replace("+", "-").replace("/", "_")


def development_node(serve: Serve) -> httpx2.Client:
    settings = NodeSettings(
        shards=(SHARD, OTHER_SHARD), cache_capacity=CAPACITY, archive_window=None, max_message_bytes=150_000
    )
    return serve(create_app(GoWakuNode(settings)))
