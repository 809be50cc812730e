"""The whole server on a real go-waku and a real gorush."""

import time

import httpx2
import pytest

from e2e.real_nodes import WAKU, go_waku, relay_flags, server_flags
from support import real_gorush
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.processes import free_port, wait_until
from wakupush.devnet.stack import SHARDS, External
from wakupush.pb.push_notification_pb2 import (
    PushNotificationQueryResponse,
    PushNotificationRegistrationResponse,
    PushNotificationResponse,
)
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode

if not (WAKU and real_gorush.BINARY):
    pytest.skip("set WAKUPUSH_TEST_WAKU and WAKUPUSH_TEST_GORUSH to binaries", allow_module_level=True)
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def servers_node(tmp_path_factory):
    with go_waku("server", tmp_path_factory.mktemp("nodes"), *server_flags()) as node:
        yield node


@pytest.fixture(scope="module")
def clients_node(tmp_path_factory, servers_node):
    """A node of the client's own, a peer of the server's: answers are read there, and taken from nobody."""
    flags = (*relay_flags(servers_node), "--min-relay-peers-to-publish=0")
    with go_waku("client", tmp_path_factory.mktemp("nodes"), *flags, f"--pubsub-topic={SHARDS[1]}") as node:
        yield node


@pytest.fixture(scope="module")
def gorush(tmp_path_factory):
    """A gorush whose way to Apple ends at a closed port, and that knows no Firebase."""
    core = {"http_proxy": f"http://127.0.0.1:{free_port()}"}
    with real_gorush.running(tmp_path_factory.mktemp("gorush"), core=core) as gorush:
        yield gorush


def test_register_query_and_push_over_real_parts(start_stack, servers_node, clients_node, gorush):
    stack = start_stack(
        external=External(waku_url=servers_node.url, gorush_url=gorush.url),
        # So long that the answer leaves between two attempts.
        settings={"WAKUPUSH_DELIVERY__MAX_ATTEMPTS": "3", "WAKUPUSH_DELIVERY__FIRST_WAIT": "20"},
    )
    client, server = PrivateKey.generate(), stack.key.public_key
    key_hash = client.public_key.key_hash
    phone = messages.registration(client, server)
    with WakuNode(clients_node.url) as node, stack.connect() as connection:
        node.subscribe(SHARDS)
        wait_until(
            lambda: httpx2.get(f"{stack.ingest_url}/readyz").status_code == 200, timeout=120, what="ingest is ready"
        )
        time.sleep(2)  # until the two nodes have made their mesh

        def ask(message):
            node.publish(SHARDS[0], message)
            replies = []

            def answered():
                replies.extend(filter(None, (open_reply(each, (client,)) for each in node.read(SHARDS[0]).messages)))
                return bool(replies)

            wait_until(answered, timeout=120, what="an answer")
            return replies[0].inner

        assert PushNotificationRegistrationResponse.FromString(ask(messages.register(client, server, phone))).success
        [info] = PushNotificationQueryResponse.FromString(ask(messages.query(client, key_hash))).info
        assert info.access_token == phone.access_token
        item = messages.notification(key_hash, phone)
        [report] = PushNotificationResponse.FromString(ask(messages.request(client, server, [item]))).reports
        assert report.success  # it is durably ours, and being tried
        query = "SELECT state, failure, attempt FROM deliveries"
        wait_until(
            lambda: connection.execute(query).fetchall() == [("dead_letter", "platform_unreachable", 3)],
            timeout=120,
            what="three attempts at an Apple that is not there",
        )
        # Firebase is switched off at gorush: nothing is handed over, and that is noticed.
        tablet = messages.registration(client, server, token_type=2, apn_topic="")
        ask(messages.register(client, server, tablet))
        ask(messages.request(client, server, [messages.notification(key_hash, tablet)]))
        dropped = "SELECT count(*) FROM deliveries WHERE failure = 'gorush_dropped'"
        wait_until(lambda: connection.execute(dropped).fetchone() == (1,), timeout=60, what="it is noticed")
        # What ingest misses comes out of the node's Store v1.
        stack.ingest.kill()
        other = PrivateKey.generate()
        missed = messages.register(other, server, messages.registration(other, server))
        node.publish(SHARDS[0], missed)
        digest = message_hash(SHARDS[0], missed)
        wait_until(
            lambda: stack.is_handled(connection, digest, missed.content_topic), timeout=120, what="the Store heals it"
        )
    assert httpx2.get(f"{gorush.url}/api/stat/app").json()["ios"]["push_error"] == 3
