"""Leaving a primary of Redis that is none any more."""

import os
import socket
import threading
from pathlib import Path

from wakupush.runtime.connections.sentinel import shut_connections


def test_queries_at_the_old_primary_end_at_once():
    with socket.create_server(("127.0.0.1", 0)) as old, socket.create_server(("127.0.0.1", 0)) as other:
        waiting, other_connection = (socket.create_connection(each.getsockname()) for each in (old, other))
        answers = []
        thread = threading.Thread(target=lambda: answers.append(waiting.recv(1)))
        thread.start()
        assert shut_connections(("localhost", old.getsockname()[1])) == 1
        thread.join(10)
        assert answers == [b""]
        accepted, _ = other.accept()
        other_connection.sendall(b"x")
        assert accepted.recv(1) == b"x"
        for each in (waiting, other_connection, accepted):
            each.close()


def open_files():
    return {file.name for file in Path("/dev/fd").iterdir()}


def test_no_file_stays_open_that_was_not():
    """Nor one that is no socket: a copy of each would double the open files with each failover."""
    read_end, write_end = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as old, socket.create_connection(old.getsockname()):
        before = open_files()
        assert shut_connections(old.getsockname()) == 1
        assert open_files() == before
    os.close(read_end)
    os.close(write_end)
