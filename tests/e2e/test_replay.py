"""`wakupush replay` into a development node."""

import base64
import json
import os
import re
import time
import tracemalloc
from pathlib import Path

import httpx2
import pytest

from e2e.stacks import wakupush
from support.devnet import serving
from wakupush.devnet import conversation
from wakupush.operate import replay as devnet_replay

SHARD, OTHER = "/waku/2/rs/16/32", "/waku/2/rs/16/64"
TOPIC = "/waku/1/0x1a2b3c4d/rfc26"
VECTORS = Path(__file__).parents[1] / "vectors"
SUMMARY = re.compile(
    r"(\d+) published, (\d+) refused, (\d+) failed(?:, (\d+) not tried)? in [\d.]+ s, \d+ per second\n"
)


@pytest.fixture(scope="module")
def node_url(tmp_path_factory, forkserver):
    """A node with nwaku's manners, whose archive is as strict as nwaku's."""
    log = tmp_path_factory.mktemp("waku") / "log"
    with serving("waku", log, "--shard", SHARD, "--shard", OTHER, forkserver=forkserver) as (url, _):
        yield url


@pytest.fixture
def relayed_messages(node_url):
    """Empty the node before and after; return what it has for a shard."""

    def read_all(shard=SHARD):
        return httpx2.get(f"{node_url}/relay/v1/messages/{shard.replace('/', '%2F')}").json()

    httpx2.post(f"{node_url}/dev/restart")
    yield read_all
    httpx2.request("DELETE", f"{node_url}/dev/faults")


def replay(file, url, *options):
    return wakupush(os.environ, "replay", file, "--waku-url", url, *options)


def counts(result):
    """Return published, refused and failed, from the one line of output."""
    match = SUMMARY.fullmatch(result.stdout)
    assert match, result
    return tuple(map(int, match.groups()[:3]))


def line(payload, /, **changes):
    message = {"pubsubTopic": SHARD, "payload": base64.b64encode(payload).decode(), "contentTopic": TOPIC}
    return json.dumps({**message, "version": 1, "timestamp": 1_795_000_000_000_000_000, **changes})


def written(directory, *lines):
    file = directory / "messages.jsonl"
    file.write_text("".join(f"{each}\n" for each in lines))
    return file


def payloads(messages):
    return [base64.b64decode(message["payload"]) for message in messages]


@pytest.mark.parametrize("name", sorted(file.name for file in VECTORS.glob("scenario_*.json")))
def test_a_scenario_in_order(name, node_url, relayed_messages):
    result = replay(VECTORS / name, node_url)
    published_messages = [
        each
        for step in conversation.load(VECTORS / name).steps
        for each in step.sends
        for _ in range(step.deliver_times)
    ]
    assert (result.returncode, result.stderr) == (0, "")
    assert counts(result) == (len(published_messages), 0, 0)
    once = list(
        {each.hash: each for each in published_messages}.values()
    )  # nodes relay a message that comes twice only once
    for shard in (SHARD, OTHER):
        expected = [each.message.payload for each in once if each.pubsub_topic == shard]
        assert payloads(relayed_messages(shard)) == expected


def test_json_lines_as_they_are(tmp_path, node_url, relayed_messages):
    file = written(
        tmp_path,
        line(b"all", meta="AAAA", ephemeral=True, more=1),
        "",
        json.dumps({"pubsubTopic": OTHER, "payload": "AAAA", "contentTopic": "any", "ephemeral": None}),
        line(b"text", timestamp="1795000000000000001"),
    )
    result = replay(file, node_url)
    assert result.returncode == 0
    assert counts(result) == (3, 0, 0)
    first, second = relayed_messages()
    assert (first["meta"], first["ephemeral"], first["timestamp"]) == ("AAAA", True, 1_795_000_000_000_000_000)
    assert second["timestamp"] == 1_795_000_000_000_000_001
    assert payloads(relayed_messages(OTHER)) == [b"\0\0\0"]


def test_restamp_gets_old_messages_archived(tmp_path, node_url, relayed_messages):
    file = written(tmp_path, *(line(b"stamped %d" % number) for number in range(5)))
    before = time.time_ns()
    query = {"contentTopics": TOPIC, "startTime": str(before), "includeData": "true"}
    for options, archived in (([], 0), (["--restamp"], 5)):
        assert counts(replay(file, node_url, *options)) == (5, 0, 0)
        archived_messages = httpx2.get(f"{node_url}/store/v3/messages", params=query).json()["messages"]
        assert len(archived_messages) == archived
    stamps = [entry["message"]["timestamp"] for entry in archived_messages]
    assert stamps == sorted(set(stamps))
    assert before < stamps[0] < stamps[-1] < time.time_ns()
    assert len(relayed_messages()) == 10


def test_restamped_repeats_stay_one_message(node_url, relayed_messages):
    result = replay(VECTORS / "scenario_transport.json", node_url, "--restamp")
    steps = conversation.load(VECTORS / "scenario_transport.json").steps
    assert counts(result)[0] == sum(len(step.sends) * step.deliver_times for step in steps)
    assert len(relayed_messages()) + len(relayed_messages(OTHER)) == sum(len(step.sends) for step in steps)


def test_limit_and_rate(tmp_path, node_url, relayed_messages):
    file = written(tmp_path, *(line(b"%d" % number) for number in range(50)), "garbage beyond the limit")
    start_time = time.monotonic()
    assert counts(replay(file, node_url, "--limit", "11", "--rate", "20")) == (11, 0, 0)
    assert time.monotonic() - start_time >= 0.5
    assert payloads(relayed_messages()) == [b"%d" % number for number in range(11)]


def test_what_the_node_refuses_or_fails(tmp_path, node_url, relayed_messages):
    file = written(
        tmp_path,
        line(b"1"),
        line(bytes(2**20 - 10)),
        line(b"2", pubsubTopic="/waku/2/rs/16/99"),
        line(b"3", contentTopic=" "),
        line(b"4"),
    )
    result = replay(file, node_url)
    assert result.returncode == 1
    assert counts(result) == (2, 2, 1)
    assert [complaint.split(": ")[:2] for complaint in result.stderr.splitlines()] == [
        ["line 2", "NodeRefused"],
        ["line 3", "NotPublished"],
        ["line 4", "NodeRefused"],
    ]
    assert payloads(relayed_messages()) == [b"1", b"4"]


def test_passing_failures_are_tried_again(tmp_path, node_url, relayed_messages):
    fault = {"path": "/relay", "method": "POST", "times": 1}
    for kind in ({"kind": "status", "status": 503}, {"kind": "close"}):
        httpx2.post(f"{node_url}/dev/faults", json={**fault, **kind}).raise_for_status()
    result = replay(written(tmp_path, line(b"a"), line(b"b")), node_url)
    assert (result.returncode, result.stderr) == (0, "")
    assert counts(result) == (2, 0, 0)
    assert payloads(relayed_messages()) == [b"a", b"b"]


def test_a_node_that_is_gone_is_given_up(tmp_path, node_url, relayed_messages):
    fault = {"kind": "status", "status": 503, "path": "/relay", "method": "POST"}
    httpx2.post(f"{node_url}/dev/faults", json=fault).raise_for_status()
    result = replay(written(tmp_path, *(line(b"%d" % number) for number in range(30))), node_url)
    assert result.returncode == 1
    assert counts(result) == (0, 0, 10)
    assert ", 20 not tried " in result.stdout
    assert len(result.stderr.splitlines()) == 5
    assert relayed_messages() == []


def test_a_large_file_takes_no_more_memory(tmp_path):
    file = written(tmp_path, *[line(bytes(100_000))] * 300)  # 40 MB
    tracemalloc.start()
    try:
        assert sum(1 for _ in devnet_replay.read(file)) == 300
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


STEP = {"name": "first", "deliver_times": 1, "send": [{"waku_message": {}}]}
UNUSABLE = {
    "no JSON": (f"{line(b'good')}\nnot json", ", line 2: not JSON"),
    "no object": ("[]", ", line 1: the message is not an object"),
    "no payload": ("{}", ", line 1: payload is not a text or too long"),
    "no base64": (line(b"x", payload="!"), ", line 1: payload is not base64"),
    "a broken time": (line(b"x", timestamp=1.5), ", line 1: timestamp is not an integer of its range"),
    "no topic": (line(b"x", pubsubTopic=None), ", line 1: pubsubTopic is not a text"),
    "no UTF-8": (line(b"x", pubsubTopic="\ud800"), ", line 1: pubsubTopic is not a text"),
    "deep": ("[" * 100_000, ", line 1: not JSON"),
    "a long line": ("x" * 3_000_000, ", line 1: longer than 2097152 bytes"),
    "binary": ("\0\1\2", ", line 1: not JSON"),
    "not a scenario": ('{\n"keys": []}', " is neither a scenario nor JSON lines"),
    "half a scenario": ('{\n"steps": [', " is neither a scenario nor JSON lines"),
    "steps of no kind": ('{"steps": 5}', " is neither a scenario nor JSON lines"),
    "no step": ('{"steps": [5]}', ", step 1: not a step of a scenario"),
    "no message": (json.dumps({"steps": [STEP]}), ", step 1 (first): not a step of a scenario"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_file_says_where(name, tmp_path):
    content, reason = UNUSABLE[name]
    file = tmp_path / "file.json"
    file.write_text(content)
    with pytest.raises(devnet_replay.ReplayError) as raised:
        list(devnet_replay.read(file))
    assert str(raised.value) == f"{file}{reason}"


def test_nothing_of_an_unusable_file_is_published(tmp_path, node_url, relayed_messages):
    file = written(tmp_path, line(b"good"), "not json", line(b"good too"))
    result = replay(file, node_url)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"wakupush: {file}, line 2: not JSON\n"
    assert relayed_messages() == []


def test_a_bad_message_in_a_scenario(tmp_path):
    raw = json.loads((VECTORS / "scenario_client_flow.json").read_text())
    raw["steps"][3]["send"][0]["waku_message"]["payload"] = "?"
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps(raw))
    reason = f"step 4 .{raw['steps'][3]['name']}., message 1: payload is not base64"
    with pytest.raises(devnet_replay.ReplayError, match=reason):
        list(devnet_replay.read(file))


@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing", "cannot be read: No such file or directory"), ("", "is not a file"), ("empty", "holds no message")],
)
def test_files_without_messages(name, reason, tmp_path):
    (tmp_path / "empty").write_text("")
    with pytest.raises(devnet_replay.ReplayError, match=reason):
        devnet_replay.run(tmp_path / name, "http://127.0.0.1:1")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://user:planted@127.0.0.1:1", "http://127.0.0.1:1/\u00e9"])
def test_no_node(url, tmp_path):
    result = replay(written(tmp_path, line(b"x")), url)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"wakupush: no Waku node answers at {url.replace('user:planted@', '')}: ")
    assert "Traceback" not in result.stderr
    assert "planted" not in result.stderr


@pytest.mark.parametrize("url", ["nonsense", "http://127.0.0.1:x"])
def test_no_url(url, tmp_path):
    with pytest.raises(devnet_replay.ReplayError, match="--waku-url is the URL of a REST API"):
        devnet_replay.run(written(tmp_path, line(b"x")), url)


def test_into_a_node_with_go_wakus_manners(tmp_path, forkserver):
    options = ("--manners", "go-waku", "--shard", SHARD, "--shard", OTHER)
    with serving("waku", tmp_path / "log", *options, forkserver=forkserver) as (url, _):
        result = replay(VECTORS / "scenario_client_flow.json", url)
        assert result.returncode == 0
        assert counts(result) == (25, 0, 0)
        assert len(httpx2.get(f"{url}/store/v1/messages?pageSize=100").json()["messages"]) == 25
        # Nothing was subscribed.
        assert httpx2.get(f"{url}/relay/v1/messages/{SHARD.replace('/', '%2F')}").status_code == 404
