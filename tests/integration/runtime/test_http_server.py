"""The HTTP server of the processes: its bounds, and what becomes of calls under way when it stops."""

import socket
import threading
from http import HTTPStatus

import httpx2
import pytest

from wakupush.devnet.processes import wait_until
from wakupush.runtime import http_server
from wakupush.runtime.http_server import Answer, HttpServer, TooLargeError
from wakupush.runtime.settings import SettingsError


@pytest.fixture
def serve():
    servers = []

    def start(app):
        server = HttpServer(0, "PORT", app)
        server.daemon_threads = False
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


def get(server, path="/"):
    return httpx2.get(f"http://127.0.0.1:{server.port}{path}", timeout=30, trust_env=False)


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def test_silent_connections_make_room_in_time(serve, monkeypatch):
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 2)
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.3)
    server = serve(lambda request: Answer(HTTPStatus.OK, body=request.path.encode()))
    silent = [connect(server) for _ in range(5)]
    try:
        silent[0].sendall(b"GET / HT")
        assert get(server, "/metrics?name=up").content == b"/metrics"
        assert silent[0].recv(100) == b""
    finally:
        for each in silent:
            each.close()


def test_a_caller_that_still_sends_gets_the_answer(serve):
    def refuse(request):
        with pytest.raises(TooLargeError):
            request.read(10)
        return Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    server = serve(refuse)
    with connect(server) as caller:
        caller.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n")
        assert b" 413 " in caller.recv(1000)
        caller.sendall(bytes(1_000_000))
        assert caller.recv(1000) == b""


def test_a_fault_of_the_app_is_answered_and_told(serve, capsys):
    server = serve(lambda _: 1 / 0)
    assert get(server).status_code == HTTPStatus.INTERNAL_SERVER_ERROR
    assert "answer_failed" in capsys.readouterr().out


def test_calls_under_way_end_before_it_stops(serve):
    call_start, go_on = threading.Event(), threading.Event()

    def app(_):
        call_start.set()
        go_on.wait(60)
        return Answer(HTTPStatus.OK)

    server = serve(app)
    answers = []
    call = threading.Thread(target=lambda: answers.append(get(server).status_code))
    call.start()
    call_start.wait(60)
    stop = threading.Thread(target=server.stop)
    stop.start()
    wait_until(lambda: server.fileno() == -1, timeout=60, what="the listener is closed")
    assert stop.is_alive()
    go_on.set()
    stop.join(60)
    call.join(60)
    assert answers == [HTTPStatus.OK]


def test_a_port_that_is_taken_is_named(serve):
    server = serve(lambda _: Answer(HTTPStatus.OK))
    with pytest.raises(SettingsError, match=r"PORT: port \d+ cannot be listened on"):
        HttpServer(server.port, "PORT", server.app)


def test_an_address_of_another_machine_is_named():
    with pytest.raises(SettingsError, match=r"PORT: port 0 cannot .* of WAKUPUSH_HTTP_HOST: Cannot assign"):
        HttpServer(0, "PORT", lambda _: Answer(HTTPStatus.OK), "192.0.2.1")
