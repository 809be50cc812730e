"""Requests to nwaku's REST API, as a test makes them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx2
from starlette.applications import Starlette

from support import recordings
from wakupush.devnet.node.nwaku import create_app
from wakupush.model.waku_message import WakuMessage

Serve = Callable[[Starlette], httpx2.Client]
AREA = "waku-rest"
SHARD, OTHER_SHARD = "/waku/2/rs/16/32", "/waku/2/rs/16/64"
TOPIC = "/waku/1/0x1a2b3c4d/rfc26"
OTHER_TOPIC = "/waku/1/0xffffffff/rfc26"


def send(client: httpx2.Client, recording: recordings.Recording) -> httpx2.Response:
    body = recording.body
    if size := re.fullmatch(r"relay-publish-size-(\d+)", recording.name):  # the recording holds only its beginning
        body = body_of(b"z" * int(size[1]))
    return client.request(
        recording.method, recording.path, headers=recording.headers, content=recording.content(body) or None
    )


def subscribed(serve: Serve) -> httpx2.Client:
    client = serve(create_app())
    subscribe(client, SHARD)
    return client


def subscribe(client: httpx2.Client, shard: str) -> None:
    assert client.post("/relay/v1/subscriptions", json=[shard]).text == "OK"


def relay_path(shard: str = SHARD) -> str:
    return f"/relay/v1/messages/{quote(shard, safe='')}"


def body_of(payload: bytes, timestamp: int = 0) -> dict[str, Any]:
    body = {"payload": base64.b64encode(payload).decode(), "contentTopic": TOPIC, "version": 1}
    return {**body, "timestamp": timestamp} if timestamp else body


def publish(client: httpx2.Client, payload: bytes, *, shard: str = SHARD, timestamp: int = 0) -> httpx2.Response:
    return client.post(relay_path(shard), json=body_of(payload, timestamp))


def payloads(client: httpx2.Client, shard: str = SHARD) -> list[bytes]:
    return [base64.b64decode(message["payload"]) for message in client.get(relay_path(shard)).json()]


def ask_store(client: httpx2.Client, **parameters: str) -> dict[str, Any]:
    answer = client.get("/store/v3/messages", params=parameters)
    assert answer.status_code == 200
    assert answer.json()["statusCode"] == 200
    content: dict[str, Any] = answer.json()
    return content


def recorded_message(number: int) -> WakuMessage:
    return WakuMessage(
        payload=b"stored %d" % number,
        content_topic=OTHER_TOPIC if number % 5 == 4 else TOPIC,
        timestamp=(1_795_225_642 + number) * 10**9,
        meta=base64.b64decode("+/8="),
    )
