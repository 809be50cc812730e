"""examples/js on js-waku: a light client of a real go-waku, over WebSocket."""

import httpx2
import pytest

from e2e.example import need_node, register_query_and_send
from e2e.real_nodes import WAKU, go_waku, server_flags
from wakupush.devnet.processes import answers_http, free_port, wait_until
from wakupush.devnet.stack import External

pytestmark = pytest.mark.real
need_node()
if not WAKU:
    pytest.skip("WAKUPUSH_TEST_WAKU names no binary", allow_module_level=True)


@pytest.fixture(scope="module")
def waku_node(tmp_path_factory):
    web_socket = ("--websocket-support", "--websocket-address=127.0.0.1", f"--websocket-port={free_port()}")
    with go_waku("service", tmp_path_factory.mktemp("nodes"), *server_flags(), *web_socket) as started:
        yield started


@pytest.fixture(scope="module")
def stack(start_stack, waku_node):
    started = start_stack(external=External(waku_url=waku_node.url))
    wait_until(lambda: answers_http(f"{started.ingest_url}/readyz"), timeout=120, what="ingest is ready")
    return started


def test_js_waku_registers_asks_and_sends(stack, waku_node, tmp_path):
    addresses = httpx2.get(f"{waku_node.url}/debug/v1/info").json()["listenAddresses"]
    [address] = [each for each in addresses if "/ws/" in each]
    register_query_and_send(stack, address, tmp_path)
