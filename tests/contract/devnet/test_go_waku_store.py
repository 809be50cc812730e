"""Stores as go-waku has them: the development node's, and go-waku's own where it is at hand."""

from __future__ import annotations

import time
from urllib.parse import quote

import httpx2

from support.go_waku import OTHER_SHARD, SHARD, TOPIC, encode, history, history_pages, relay_path
from wakupush.devnet.processes import wait_until

OTHER_TOPIC = "/waku/1/0xffffffff/rfc26"


def test_store_v1_walks(client: httpx2.Client) -> None:
    now = time.time_ns()
    for number in range(10):
        body = {"payload": encode(b"%d" % number), "contentTopic": TOPIC, "timestamp": now + number, "meta": "AAAA"}
        client.post(relay_path(), json={**body, "ephemeral": number == 9})
    client.post(relay_path(), json={"payload": "AAAA", "contentTopic": OTHER_TOPIC})
    wait_until(lambda: len(history(client)) == 10, timeout=60, what="everything is archived")
    for ascending in ("true", "false"):
        pages = list(history_pages(client, contentTopics=TOPIC, pageSize="4", ascending=ascending))
        assert [len(page) for page in pages] == [4, 4, 1]
        times = [message["timestamp"] - now for page in pages for message in page]
        assert sorted(times) == list(range(9))
        assert times[:4] == ([0, 1, 2, 3] if ascending == "true" else [5, 6, 7, 8])
        assert {key for page in pages for message in page for key in message} == {
            "payload",
            "contentTopic",
            "timestamp",
        }
    between = {"startTime": str(now + 2), "endTime": str(now + 4), "contentTopics": TOPIC}
    assert [message["timestamp"] - now for message in history(client, **between)] == [2, 3, 4]
    assert len(history(client, startTime=str(now))) == 10  # what has no timestamp counts by its arrival
    assert history(client, pubsubTopic=OTHER_SHARD) == []


def test_store_v1_walk_stops_at_missing_timestamps(client: httpx2.Client) -> None:
    for number in range(2):
        client.post(relay_path(), json={"payload": encode(b"%d" % number), "contentTopic": TOPIC})
    wait_until(lambda: len(history(client)) == 2, timeout=60, what="both are archived")
    client.post(relay_path(), json={"payload": "AAAA", "contentTopic": TOPIC, "timestamp": time.time_ns() - 10**12})
    wait_until(lambda: len(history(client)) == 3, timeout=60, what="all are archived")
    assert [len(page) for page in history_pages(client, pageSize="2")][:1] == [2]
    assert all("timestamp" not in message for page in history_pages(client, pageSize="2") for message in page)


V1_REFUSED = {
    "digest=AAAA": (500, "invalid cursor"),
    "senderTime=1": (500, "invalid cursor"),
    "senderTime=x": (400, 'strconv.ParseInt: parsing "x": invalid syntax'),
    "pageSize=-1": (400, 'strconv.ParseUint: parsing "-1": invalid syntax'),
    "ascending=maybe": (400, 'strconv.ParseBool: parsing "maybe": invalid syntax'),
    "startTime=99999999999999999999": (
        400,
        'strconv.ParseInt: parsing "99999999999999999999": value out of range',
    ),
    "contentTopics=a,b,c,d,e,f,g,h,i,j,k": (500, "exceeds the maximum number of content filters allowed"),
    "contentTopics=a,,b": (500, "one or more content topics specified is empty"),
    "peerAddr=nonsense": (400, 'failed to parse multiaddr "nonsense": must begin with /'),
}


def test_store_v1_refuses(client: httpx2.Client) -> None:
    answers = {query: client.get(f"/store/v1/messages?{query}") for query in V1_REFUSED}
    refusals = {query: (answer.status_code, answer.json()) for query, answer in answers.items()}
    assert refusals == {
        query: (status, {"messages": None, "error_message": text}) for query, (status, text) in V1_REFUSED.items()
    }


V3_TOPICS = f"pubsubTopic={quote(SHARD, safe='')}&contentTopics={quote(TOPIC, safe='')}"
V3_REFUSED = {
    "": "pubsubTopic and contentTopics are required",
    f"{V3_TOPICS}&startTime=x": 'strconv.ParseInt: parsing "x": invalid syntax',
    f"{V3_TOPICS}&pageSize=x": 'strconv.ParseUint: parsing "x": invalid syntax',
    f"{V3_TOPICS}&ascending=x": 'strconv.ParseBool: parsing "x": invalid syntax',
    f"{V3_TOPICS}&cursor=AA": "illegal base64 data at input byte 0",
    "hashes=AA": "illegal base64 data at input byte 0",
}


def test_store_v3_refuses(client: httpx2.Client) -> None:
    answers = {query: client.get(f"/store/v3/messages?{query}") for query in V3_REFUSED}
    refusals = {query: (answer.status_code, answer.json()) for query, answer in answers.items()}
    assert refusals == {query: (400, {"status_code": 400, "status_desc": text}) for query, text in V3_REFUSED.items()}


def test_store_v3_never_reads_the_own_store(client: httpx2.Client) -> None:
    for query in (V3_TOPICS, f"hashes={'A' * 43}="):
        answer = client.get(f"/store/v3/messages?{query}")
        assert answer.status_code == 500
        assert answer.json()["messages"] is None
        assert answer.json()["error_message"]
