"""Requests to nwaku's REST API, as a test makes them."""

from __future__ import annotations

import base64
import re
import time
from typing import Any

import httpx2

from support import recordings
from support.go_waku import SHARD, TOPIC, Serve, relay_path
from wakupush.devnet.node.nwaku import create_app
from wakupush.model.waku_message import WakuMessage

AREA = "nwaku-rest"
OTHER_TOPIC = "/waku/1/0xffffffff/rfc26"
_SIZES = {"lightpush-v1-too-big": 160_000, "lightpush-v3-too-big": 160_000, "lightpush-v1-huge": 1_000_000}


def send(client: httpx2.Client, recording: recordings.Recording) -> httpx2.Response:
    body = recording.body
    if size := payload_size(recording.name):  # the recording holds only the beginning
        message = body_of(b"z" * size, timestamp=time.time_ns())
        body = {"pubsubTopic": SHARD, "message": message} if recording.name.startswith("lightpush") else message
    return client.request(
        recording.method, recording.path, headers=recording.headers, content=recording.content(body) or None
    )


def payload_size(name: str) -> int:
    """Return the bytes of payload of a recording about sizes, 0 of any other."""
    match = re.search(r"-size-(\d+)$", name)
    return _SIZES.get(name, 0) if match is None else int(match[1])


def subscribed(serve: Serve) -> httpx2.Client:
    client = serve(create_app())
    subscribe(client, SHARD)
    return client


def subscribe(client: httpx2.Client, shard: str) -> None:
    assert client.post("/relay/v1/subscriptions", json=[shard]).text == "OK"


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
    """Return one of the 120 messages, 50 ms apart, that the archive of the recordings has."""
    return WakuMessage(
        payload=b"stored %d" % number,
        content_topic=OTHER_TOPIC if number % 5 == 4 else TOPIC,
        timestamp=1_795_516_689_000_000_000 + number * 50_000_000,
        meta=base64.b64decode("+/8="),
    )
