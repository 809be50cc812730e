"""Leaving a primary of Redis that is none any more."""

import socket
import threading

from wakupush.runtime.connections.sentinel import shut_connections


def test_who_waits_for_an_answer_of_the_old_primary_gets_the_end_at_once():
    with socket.create_server(("127.0.0.1", 0)) as old, socket.create_server(("127.0.0.1", 0)) as other:
        waiting, kept = (socket.create_connection(each.getsockname()) for each in (old, other))
        got = []
        thread = threading.Thread(target=lambda: got.append(waiting.recv(1)))
        thread.start()
        assert shut_connections(("localhost", old.getsockname()[1])) == 1
        thread.join(10)
        assert got == [b""]
        accepted, _ = other.accept()
        kept.sendall(b"x")
        assert accepted.recv(1) == b"x"
        for each in (waiting, kept, accepted):
            each.close()
