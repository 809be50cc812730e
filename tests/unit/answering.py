"""A server on loopback that answers as told."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HANG = object()


class Server(ThreadingHTTPServer):
    """Gives its answers one after the other, the last one for ever: (status, body), raw bytes, or HANG."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = [(200, b"true")]
        self.requests = []
        self.stopped = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

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
        if answer is HANG:
            self.server.stopped.wait(60)
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


@contextmanager
def serving():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.stopped.set()
            server.shutdown()
            thread.join()
