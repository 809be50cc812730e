"""The Kubernetes API, as far as doctor asks it."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TOKEN = "planted-token"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/push/horizontalpodautoscalers/"


def autoscaler(*conditions, current=2, desired=3):
    """What it shows of one: type, status, reason and message of each condition."""
    names = ("type", "status", "reason", "message")
    return 200, {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v2",
        "metadata": {"name": "wakupush-query", "namespace": "push"},
        "spec": {"minReplicas": 2, "maxReplicas": 10},
        "status": {
            "currentReplicas": current,
            "desiredReplicas": desired,
            "currentMetrics": None,
            "conditions": [dict(zip(names, values, strict=True)) for values in conditions] or None,
        },
    }


ABLE = ("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size")
ACTIVE = ("ScalingActive", "True", "ValidMetricFound", "the HPA was able to compute the replica count")
LIMITED = ("ScalingLimited", "False", "DesiredWithinRange", "the desired count is within the acceptable range")
READY = autoscaler(ABLE, ACTIVE, LIMITED)


class _Handler(BaseHTTPRequestHandler):
    server: "Cluster"

    def do_GET(self):
        self.server.requested_paths.append(self.path)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._answer(401, {"kind": "Status", "code": 401})
            return
        if self.server.hangs:
            self.server.released.wait(30)
            return
        answers = self.server.answers.get(self.path.removeprefix(AUTOSCALERS), [])
        # The last one stays.
        self._answer(*(answers.pop(0) if len(answers) > 1 else answers[0] if answers else (404, {"code": 404})))

    def _answer(self, status, body):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


class Cluster(ThreadingHTTPServer):
    """Answers over TLS, in turn, about each name."""

    def __init__(self, certificate: Path, account: Path):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.account = account
        self.answers: dict[str, list[tuple[int, dict | bytes]]] = {}
        self.requested_paths: list[str] = []
        self.hangs = False
        self.released = threading.Event()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)

    def get_request(self):
        raw, address = super().get_request()
        return self._context.wrap_socket(raw, server_side=True), address

    def shutdown(self):
        self.released.set()
        super().shutdown()
