"""The whole client over a network of one process."""

import pytest

from support.client_network import Network
from wakupush.client.client import Client
from wakupush.client.drivers.storage import SqliteFile
from wakupush.protocol.keys import PrivateKey


@pytest.fixture
def network():
    return Network()


@pytest.fixture
def storage():
    with SqliteFile(":memory:") as file:
        yield file.account("a")


@pytest.fixture
def client(network, storage):
    return Client(PrivateKey.generate(), network, storage)


@pytest.fixture
def anyio_backend():
    return "asyncio"
