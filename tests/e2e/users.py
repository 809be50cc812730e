"""Users of the whole server."""

from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.pb.push_notification_pb2 import PushNotificationResponse
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey


class User:
    """Somebody who registers a device and asks for pushes to it, and follows what came of both."""

    def __init__(self, stack, node, **fields):
        self.stack, self.node = stack, node
        self.key = PrivateKey.generate()
        self.server = stack.key.public_key
        self.observer = Observer(stack.node_url, stack.gorush_url)
        self.registered = messages.registration(self.key, self.server, **fields)
        self.replies = []
        self.pushes = []

    def register(self):
        self.node.publish(SHARDS[0], messages.register(self.key, self.server, self.registered))

    def ask_for_push(self, count=1):
        """Ask for so many pushes at once, and return the request."""
        items = [messages.notification(self.key.public_key.key_hash, self.registered) for _ in range(count)]
        request = messages.request(self.key, self.server, items)
        self.node.publish(SHARDS[0], request)
        return request

    def look(self):
        for arrival in self.observer.messages():
            reply = open_reply(arrival.message, (self.key,))
            if reply and reply.signer == self.server:
                self.replies.append((reply, arrival.arrived))
        self.pushes += self.observer.pushes()

    def wait(self, *, replies=0, delivered=0, timeout=120.0):
        def enough():
            self.look()
            pushed = [push for push in self.pushes if push.outcome == "delivered"]
            return len(self.replies) >= replies and len(pushed) >= delivered

        wait_until(enough, timeout=timeout, what=f"{replies} answers and {delivered} pushes")

    def reports(self):
        return [
            report
            for reply, _ in self.replies
            if reply.type == Type.PUSH_NOTIFICATION_RESPONSE
            for report in PushNotificationResponse.FromString(reply.inner).reports
        ]
