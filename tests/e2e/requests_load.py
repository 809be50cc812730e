"""A client that asks for pushes all the time, and what a process tells of itself."""

import re
import threading
import time
from contextlib import contextmanager

import httpx2

from e2e.stacks import wakupush
from support.devnet import serving
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.pb.push_notification_pb2 import PushNotificationResponse
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode


class Load:
    """A client that asks for a push to itself again and again, and sees the answers on its own node."""

    PER_SECOND = 20

    def __init__(self, stack, url, *, server=None):
        self.stack, self.url = stack, url
        self.key, self.server = PrivateKey.generate(), server or stack.key.public_key
        self.registered = messages.registration(self.key, self.server)
        self.observer = Observer(url, stack.gorush_url)
        #: By message id: when it was sent, how long its answer took, and whether that was a success.
        self.send_times, self.took, self.answered, self.pushed = {}, {}, {}, 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def register(self):
        with WakuNode(self.url) as node:
            node.publish(SHARDS[0], messages.register(self.key, self.server, self.registered))
        wait_until(lambda: bool(self.replies()), timeout=30, what="the device is registered")

    def run(self):
        item = messages.notification(self.key.public_key.key_hash, self.registered)
        with WakuNode(self.url) as node:
            while not self.stop.wait(1 / self.PER_SECOND):
                message_id = len(self.send_times).to_bytes(32, "big")
                self.send_times[message_id] = time.time()
                node.publish(SHARDS[0], messages.request(self.key, self.server, [item], message_id=message_id))

    def replies(self):
        replies = [(open_reply(each.message, (self.key,)), each.arrived) for each in self.observer.messages()]
        return [(reply, at) for reply, at in replies if reply is not None and reply.signer == self.server]

    def look(self):
        for reply, at in self.replies():
            if reply.type == Type.PUSH_NOTIFICATION_RESPONSE:
                answer = PushNotificationResponse.FromString(reply.inner)
                self.took.setdefault(answer.message_id, at - self.send_times[answer.message_id])
                self.answered[answer.message_id] = all(report.success for report in answer.reports)
        mine = (
            push for push in self.observer.pushes() if push.notification["tokens"] == [self.registered.device_token]
        )
        self.pushed += sum(push.outcome == "delivered" for push in mine)
        return self.send_times.keys() <= self.answered.keys() and self.pushed >= len(self.send_times)

    def __enter__(self):
        self.register()
        self.thread.start()
        return self

    def end(self):
        """Send no more."""
        self.stop.set()
        self.thread.join()

    def __exit__(self, *exception):
        self.end()
        self.observer.close()


@contextmanager
def clients_node(stack, log, port=None):
    """Run a node of the network that the server knows nothing of, a peer of all of its own; yield its URL."""
    # A node that has not joined a shard takes no message for it.
    options = [*(f"--shard={each}" for each in stack.shards), *(f"--peer={each}" for each in stack.node_urls)]
    with serving("waku", log, "--archive-window=any", *options, port=port) as (url, _):
        for each in stack.node_urls:
            httpx2.post(f"{each}/dev/peers", json={"url": url}).raise_for_status()
        yield url


def metric(url, name, **labels):
    """Return the sum of a metric's values that have these labels."""
    text = httpx2.get(f"{url}/metrics").text
    samples = re.findall(rf"^{name}(?:{{(.*)}})? (.*)$", text, re.MULTILINE)
    expected_labels = {f'{label}="{value}"' for label, value in labels.items()}
    return sum(float(value) for label_text, value in samples if expected_labels <= set(label_text.split(",")))


def doctor(stack):
    """Return what `wakupush doctor` says, in one line."""
    return " ".join(wakupush(stack.environment, "doctor").stdout.split())
