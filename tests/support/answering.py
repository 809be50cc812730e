"""A server on loopback that answers as told."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Gives its answers one after the other, the last one for ever.

    An answer is (status, body), raw bytes, which end the connection, or a function that gets the handler: it may return
    (status, body), else it ends the connection.
    """

    daemon_threads = True

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = [answer]
        self.requests = []
        self.stopped = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def shutdown(self):
        self.stopped.set()
        super().shutdown()

    def handle_error(self, request, client_address):
        """A client that hung up is what these tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: no waiting for an acknowledgement

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.path, self.headers.get("Content-Type"), body))
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            answer = answer(self)
        if answer is None:
            self.close_connection = True
        elif isinstance(answer, bytes):
            self.wfile.write(answer)
            self.close_connection = True
        else:
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(answer[1])))
            self.end_headers()
            self.wfile.write(answer[1])

    do_GET = do_POST = handle_request  # noqa: N815 - the names that http.server looks for

    def log_message(self, *args):
        pass


def hang(handler):
    handler.server.stopped.wait(60)


def drip(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not handler.server.stopped.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def late_half(handler):
    handler.server.stopped.wait(3.2)
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
    handler.wfile.flush()
    handler.server.stopped.wait(60)


@contextmanager
def running(server):
    """Let a server of `socketserver` answer, in a thread, until the end of the block."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serving(answer=(200, b"true")):
    with running(Server(answer)) as server:
        yield server
