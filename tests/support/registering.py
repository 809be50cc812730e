"""A client that registers, and a server of a few lines, whose messages and answers may get lost."""

import uuid
from random import Random

from wakupush.client.rules.registering import Device, Options, Registrar, RegistrarState
from wakupush.model.platforms import TokenType
from wakupush.model.registrations import Unregistration
from wakupush.protocol import registration
from wakupush.protocol.errors import Refused
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.registration import Limits, open_registration, parse_response, request_id

KEY, CONTACT, OTHER = (PrivateKey.generate() for _ in range(3))
PHONE = Device(token_type=TokenType.APN, device_token="phone", apn_topic="im.status")
LIMITS = Limits(list_items=100, list_item_bytes=256, text_bytes=1000, registration_bytes=100_000)
INSTALLATION = str(uuid.uuid4())
DAY = 86_400.0


class Server:
    """A server with the real rules."""

    def __init__(self):
        self.key = PrivateKey.generate()
        self.registration = None
        self.version = 0
        self.messages = []

    @property
    def public_key(self):
        return self.key.public_key

    def take(self, ciphertext, client=KEY):
        """Return the answer to a registration, opened again."""
        message = open_registration(ciphertext, self.key, client.public_key, most_bytes=1_000_000)
        self.messages.append(message)
        failure = None
        try:
            result = registration.check(
                message, client=client.public_key, server=self.public_key, stored_version=self.version, limits=LIMITS
            )
            self.version = result.version
            self.registration = None if isinstance(result, Unregistration) else result
        except Refused as refused:
            failure = refused.failure
        return parse_response(registration.encode_response(request_id(ciphertext), failure))


def registrar(state=None, key=KEY):
    return Registrar(key, INSTALLATION, state or RegistrarState(), random=Random(1))


def enabled_registrar(*servers, options=None):
    """Return a registrar that is about to register with servers."""
    client = registrar()
    client.set_options(options or Options())
    client.enable(PHONE)
    client.set_servers([server.public_key for server in servers])
    return client


def registered_registrar(server, options=None):
    """Return a registrar that is registered with a server."""
    client = enabled_registrar(server, options=options)
    exchange(client, server)
    return client


def exchange(client, server, now=0.0):
    """Let a client and its only server talk until nothing is due, and return how often they did."""
    count = 0
    while requests := client.due(now):
        [request] = requests
        client.take_answer(server.public_key, server.take(request.sealed), now)
        count += 1
    return count


BOTH = (CONTACT.public_key, OTHER.public_key)
