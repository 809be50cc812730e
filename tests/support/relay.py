"""A TCP relay: a port that leads to another one, and what may go wrong on the way."""

import contextlib
import socket
import threading
import time


class Relay:
    """A port of 127.0.0.1 that leads to another, new connections to the one that is set last.

    Args:
        target: the port that it leads to.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        #: Seconds that each piece of data takes, in each direction.
        self.delay = 0.0
        self._swallows = False
        self._lock = threading.Lock()
        self._server: socket.socket | None = None
        self.port = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        #: Of sockets whose other end has gone without a word.
        self._dead: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listen()

    def cut(self) -> None:
        """End all connections, and refuse new ones until `mend`."""
        if self._server is not None:
            _shut(self._server)
            self._server.close()
            self._server = None
        for pair in self._pairs:
            for each in pair:
                _shut(each)

    def swallow(self) -> None:
        """Carry nothing any more, though connections stay: those that are open for good, new ones until `mend`."""
        self._swallows = True
        self._dead.update(each for pair in self._pairs for each in pair)

    def mend(self) -> None:
        """Let new connections through again."""
        self._swallows = False
        self.delay = 0.0
        if self._server is None:
            self._listen()

    def close(self) -> None:
        """End everything."""
        self.cut()
        for thread in self._threads:
            thread.join()

    def _listen(self) -> None:
        self._server = socket.create_server(("127.0.0.1", self.port), backlog=512)
        self.port = self._server.getsockname()[1]
        thread = threading.Thread(target=self._accept, args=(self._server,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                outer, _ = server.accept()
                try:
                    inner = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    outer.close()
                    continue
                for each in (outer, inner):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pair = outer, inner
                if self._swallows:
                    self._dead.update(pair)
                self._pairs = [*(it for it in self._pairs if it[0].fileno() >= 0), pair]
                self._threads = [thread for thread in self._threads if thread.is_alive()]
                over = threading.Event()
                for source, target in (pair, pair[::-1]):
                    thread = threading.Thread(target=self._pump, args=(source, target, over), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _pump(self, source: socket.socket, target: socket.socket, over: threading.Event) -> None:
        """Carry one direction of a connection to its end; whoever is last closes both sockets."""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.delay:
                    time.sleep(self.delay)
                if source not in self._dead:
                    target.sendall(data)
        if source not in self._dead:
            _shut(target)
        with self._lock:
            if not over.is_set():
                over.set()
                return
        for each in (source, target):
            self._dead.discard(each)
            each.close()


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
