"""What Stores have on the server's own topics gets into Parquet, each message once."""

import time

import httpx2
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from support.devnet import serving
from support.pipeline.histories import SHARD, History
from wakupush.cli import app
from wakupush.model.waku_message import WakuMessage
from wakupush.pipeline.archive import fetch
from wakupush.pipeline.archive.files import HOUR, SCHEMA, Archive, Hour, message_of
from wakupush.pipeline.errors import PipelineError
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime.settings import WakuSettings
from wakupush.waku.node import WakuNode

KEY = PrivateKey.generate()
OTHER_SHARD = "/waku/2/rs/16/64"
NOBODY = "http://127.0.0.1:1"
MESSAGE = WakuMessage(payload=b"x", content_topic="/waku/1/0x01020304/rfc26", timestamp=1, meta=b"m")
#: Its file is named 19700101T00.
AN_HOUR = Hour(SHARD, 0)


@pytest.fixture(scope="module", params=["nwaku", "go-waku"])
def node(request, tmp_path_factory, forkserver):
    """A node that has messages of three hours on two shards: ours, those of others, and queries."""
    options = ("--manners", request.param, "--archive-window", "any", "--shard", SHARD, "--shard", OTHER_SHARD)
    with serving("waku", tmp_path_factory.mktemp("waku") / "log", *options, forkserver=forkserver) as (url, _):
        yield url


@pytest.fixture
def settings_of(make_settings, tmp_path):
    def make(*urls, **options):
        settings = make_settings(archive=tmp_path / "archive", **options)
        waku = WakuSettings(url=urls[0], shards=(SHARD, OTHER_SHARD), timeout=3)
        reconcile = settings.reconcile.model_copy(update={"stores": urls[1:] and urls})
        return settings.model_copy(update={"public_key": str(KEY.public_key), "waku": waku, "reconcile": reconcile})

    return make


@pytest.fixture
def archive(settings_of):
    return Archive.of(settings_of(NOBODY).pipeline, KEY.public_key)


def run(settings, hours=5):
    return fetch.run(settings, time.time() - 3600 * hours, lambda *_: None)


def archived_rows(archive):
    """Return the rows of an archive, by hash, and check that it has none twice."""
    rows = [row for path in archive.files() for row in parquet.read_table(path, schema=SCHEMA).to_pylist()]
    by_hash = {row["hash"]: row for row in rows}
    assert len(by_hash) == len(rows)
    return by_hash


def names(archive):
    return [path.name for path in archive.files()]


def publish(url, shard, messages):
    with WakuNode(url) as node:
        for message in messages:
            node.publish(shard, message)
    return {message_hash(shard, message): message for message in messages}


def test_everything_of_ours_and_nothing_else(node, settings_of, archive):
    history = History.of(KEY.public_key, seed=1, days=3 / 24)
    ours = {}
    for number in range(125):  # several pages
        if number in {8, 20}:
            history.now += HOUR
        ours |= publish(node, (SHARD, OTHER_SHARD)[number % 7 == 0], history.register(PrivateKey.generate()))
    stranger = History.of(PrivateKey.generate().public_key, seed=2, days=2 / 24)
    publish(node, SHARD, [m for _ in range(20) for m in stranger.register(PrivateKey.generate())])
    query = WakuMessage(payload=b"a query", content_topic="/waku/1/0x01020304/rfc26", timestamp=time.time_ns())
    publish(node, SHARD, [query])
    settings = settings_of(node, node)  # two Stores have the same
    fetched = run(settings)
    assert (fetched.messages, fetched.failed, fetched.malformed) == (len(ours), 0, 0)
    rows = archived_rows(archive)
    assert rows.keys() == ours.keys()
    for hash_, message in ours.items():
        row = rows[hash_]
        assert WakuMessage(**{name: row[name] for name in row if name not in {"hash", "pubsub_topic"}}) == message
        assert message_hash(row["pubsub_topic"], message) == hash_
    # What is over is not asked for again; what is new is found.
    topic = next(iter(ours.values())).content_topic
    late = publish(node, SHARD, [WakuMessage(payload=b"x", content_topic=topic, timestamp=time.time_ns())])
    again = run(settings)
    assert again.complete_before >= 4
    assert again.hours + again.complete_before == fetched.hours
    assert archived_rows(archive).keys() == (ours | late).keys()


def test_what_fails_is_fetched_by_the_next_run(node, settings_of, archive):
    settings = settings_of(node)
    history = History.of(KEY.public_key, seed=3, days=1 / 24)
    registration = publish(node, SHARD, history.register(PrivateKey.generate()))
    httpx2.post(f"{node}/dev/faults", json={"kind": "close", "path": "/store", "times": 2}).raise_for_status()
    try:
        failed = run(settings)
    finally:
        httpx2.delete(f"{node}/dev/faults")
    assert failed.failed >= 1
    assert "Node" in failed.error
    # What was cut off has left nothing that counts.
    assert len(archive.files()) == len(list(archive.folder.glob("*/*"))) < failed.hours
    run(settings)
    assert registration.keys() <= archived_rows(archive).keys()


def test_a_run_that_was_killed_is_gone_on_with(archive):
    archive.write(AN_HOUR, [{b"a" * 32: MESSAGE}], is_complete=False)
    partial = archive.folder / f"{AN_HOUR.path.rpartition('/')[0]}/.19700101T00.parquet-0123"
    partial.write_bytes(b"half of a fi")
    assert names(archive) == ["19700101T00.open.parquet"]
    with archive.writing():
        assert not partial.exists()
        with pytest.raises(PipelineError, match="another run is writing"), archive.writing():
            pass
        archive.write(AN_HOUR, [{b"a" * 32: MESSAGE}, {b"b" * 32: MESSAGE}], is_complete=True)
    assert archive.is_complete(AN_HOUR)
    assert names(archive) == ["19700101T00.parquet"]
    assert len(archived_rows(archive)) == 2


def test_an_hour_without_messages_is_asked_for_again(archive):
    """A Store that is new, or keeps less than another, has nothing either."""
    assert archive.write(AN_HOUR, [], is_complete=True) == 0
    assert not archive.is_complete(AN_HOUR)
    assert archive.write(AN_HOUR, [{b"a" * 32: MESSAGE}], is_complete=False) == 1
    # What there is of it stays.
    assert archive.write(AN_HOUR, [{}], is_complete=True) == 0
    assert names(archive) == ["19700101T00.open.parquet"]
    assert archive.write(AN_HOUR, [{b"a" * 32: MESSAGE}], is_complete=True) == 1
    assert archive.is_complete(AN_HOUR)


def test_what_a_store_lost_stays_in_the_archive(archive):
    """A Store that was set up anew within an hour has only the rest of it."""
    first, second, third = (letter * 32 for letter in (b"a", b"b", b"c"))
    archive.write(AN_HOUR, [{first: MESSAGE, second: MESSAGE}], is_complete=False)
    assert archive.write(AN_HOUR, [{second: MESSAGE}, {third: MESSAGE}], is_complete=False) == 3
    assert archived_rows(archive).keys() == {first, second, third}
    assert archive.write(AN_HOUR, [{third: MESSAGE}], is_complete=True) == 3
    assert archive.is_complete(AN_HOUR)
    assert names(archive) == ["19700101T00.parquet"]
    rows = archived_rows(archive)
    assert rows.keys() == {first, second, third}
    assert all(message_of(row) == MESSAGE for row in rows.values())


def test_a_damaged_open_file_is_told(archive):
    archive.write(AN_HOUR, [{b"a" * 32: MESSAGE}], is_complete=False)
    [path] = archive.files()
    path.write_bytes(b"PAR1")
    with pytest.raises(PipelineError, match=r"T00\.open\.parquet cannot be read \(ArrowInvalid\): if it is damaged"):
        archive.write(AN_HOUR, [{b"b" * 32: MESSAGE}], is_complete=True)
    assert archive.files() == [path]


def test_the_server_has_to_be_known(settings_of, tmp_path):
    settings = settings_of(NOBODY).model_copy(update={"public_key": None})
    with pytest.raises(PipelineError, match="WAKUPUSH_PUBLIC_KEY is missing, and no private key: set"):
        run(settings)
    unreadable = settings.model_copy(update={"identity_key_file": tmp_path})
    with pytest.raises(PipelineError, match=r"_PUBLIC_KEY is missing, and the private key in .* cannot be read"):
        run(unreadable)


def test_a_time_that_is_none_is_told():
    result = CliRunner().invoke(app, ["pipeline", "fetch-archive", "--since", "yesterday"])
    assert result.exit_code == 2
    assert "--since is so long ago" in result.output
