"""What a real run of the server left in Postgres is in the lake, and in the report."""

import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS, Stack
from wakupush.pipeline.lake import export
from wakupush.pipeline.lake.lake import Lake
from wakupush.pipeline.report import report
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode

CLIENTS = 7


@pytest.fixture(scope="module")
def stack():
    directory = Path(tempfile.mkdtemp(prefix="wakupush-pipeline-"))
    directory.chmod(0o755)
    try:
        with Stack(directory, fsync=False) as stack:
            yield stack
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.long
def test_a_real_run(stack, spark, make_settings):
    server = stack.key.public_key
    keys = [PrivateKey.generate() for _ in range(CLIENTS)]
    contents = [messages.registration(key, server) for key in keys]
    with WakuNode(stack.node_url) as node, stack.connect() as connection:

        def count_of(kind):
            row = connection.execute("SELECT count(*) FROM delivery_history WHERE kind = %s", [kind]).fetchone()
            connection.commit()
            return row[0]

        for key, content in zip(keys, contents, strict=True):
            node.publish(SHARDS[0], messages.register(key, server, content))
        wait_until(lambda: count_of("registered") == CLIENTS, timeout=300, what="all are registered")
        for key, content in zip(keys, contents, strict=True):
            item = messages.notification(key.public_key.key_hash, content)
            node.publish(SHARDS[0], messages.request(key, server, [item]))
        wait_until(lambda: count_of("delivered") == CLIENTS, timeout=300, what="all is delivered")
        settings = make_settings(stack.dsn_of("pipeline", "export"), smallest_cell=2)
        export.run(spark, settings, lambda *_: None)
        counted = dict(connection.execute("SELECT kind, count(*) FROM delivery_history GROUP BY kind").fetchall())
    frame = Lake.of(spark, settings).events()
    assert {row.kind: row["count"] for row in frame.groupBy("kind").count().collect()} == counted
    assert frame.where("kind = 'delivered' AND (latency_ms IS NULL OR latency_ms > 600000)").count() == 0
    today = datetime.now(UTC).date()
    written = report.run(spark, settings, today - timedelta(days=1), today, lambda *_: None)
    people_of_stages = {row["stage"]: row["people"] for row in written.rows["funnel_daily"] if not row["suppressed"]}
    assert people_of_stages["admitted"] == CLIENTS
    # No pseudonym of the events is in the lake.
    query = "SELECT DISTINCT key_pseudonym FROM delivery_history WHERE key_pseudonym IS NOT NULL"
    with stack.connect() as connection:
        theirs = {bytes(pseudonym) for (pseudonym,) in connection.execute(query)}
    ours = {bytes(row.user) for row in frame.select("user").where("user IS NOT NULL").distinct().collect()}
    assert len(ours) == len(theirs) == CLIENTS
    assert not ours & theirs
