"""Opening envelopes: cryptography and parsing alone, without a clock or a database."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from wakupush.model.entries import Entry
from wakupush.model.failures import Failure
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION, Queue
from wakupush.model.registrations import Address
from wakupush.protocol import application, payload, query, registration, request, segments, topics
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.segments import Segment
from wakupush.server.inbox.content import (
    Content,
    Elsewhere,
    Message,
    OpenedQuery,
    OpenedRegistration,
    OpenedRequest,
    Part,
    Postponed,
    RefusedContent,
)

#: Keys in a query at most; clients ask for up to 1,000 contacts at once.
QUERY_KEYS: Final = 1000
#: Items of a push request that are looked at; clients send up to 100.
REQUEST_ITEMS: Final = 200
#: Which queue handles which message, wherever it arrived.
HOME: dict[int, Queue] = {
    Type.PUSH_NOTIFICATION_REGISTRATION: REGISTRATION,
    Type.PUSH_NOTIFICATION_QUERY: QUERY,
    Type.PUSH_NOTIFICATION_REQUEST: DISPATCH,
}
#: What an envelope holds, before the message inside is parsed.
Envelope = application.Opened | Part | Failure


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads what envelopes hold for a queue."""

    queue: Queue
    identity: Identity

    def read(self, envelope: Envelope, *, on_query_topic: bool = False) -> Content:
        """Return the content of an envelope. A query topic takes queries alone: its key is no secret."""
        if not isinstance(envelope, application.Opened):
            return envelope
        home = HOME.get(envelope.type)
        if home is None or (on_query_topic and home is not QUERY):
            return Failure.TYPE_UNSUPPORTED
        return _READ[home.name](envelope, self.identity) if home is self.queue else Elsewhere(home)


def open_messages(
    entries: Iterable[Entry], reader: Reader, keys: Mapping[bytes, Sequence[bytes | None]]
) -> list[Message]:
    """Open the messages of a task.

    Args:
        keys: for the query topics among them (4 bytes each), the users' keys (32 bytes each), None for one that is not
            derived yet. A message waits if only such a key may open it.
    """
    own = topics.server_content_topics(reader.identity.public_key)
    return [
        Message(entry, _open(entry, reader, keys))
        if reader.queue is QUERY and entry.message.content_topic not in own
        else Message(entry, reader.read(open_asymmetric(entry, reader.identity.private_key)))
        for entry in entries
    ]


def _open(entry: Entry, reader: Reader, keys: Mapping[bytes, Sequence[bytes | None]]) -> Content:
    candidates = keys.get(topics.topic_of(entry.message.content_topic) or b"", ())
    envelope = open_symmetric(entry, [key for key in candidates if key is not None])
    if envelope is Failure.NOT_FOR_US and None in candidates:
        return Postponed(for_key=True)
    return reader.read(envelope, on_query_topic=True)


def open_asymmetric(entry: Entry, private_key: PrivateKey) -> Envelope:
    """Open a message of the personal or the partitioned topic."""
    try:
        return _read(payload.open_asymmetric(entry.message.payload, private_key))
    except Refused as refused:
        return refused.failure


def open_symmetric(entry: Entry, keys: list[bytes]) -> Envelope:
    """Open a message of a query topic with the first of the topic's keys (32 bytes each) that fits."""
    for key in keys:
        try:
            return _read(payload.open_symmetric(entry.message.payload, key), on_query_topic=True)
        except Refused as refused:
            if refused.failure is not Failure.NOT_FOR_US:
                return refused.failure
    return Failure.NOT_FOR_US


def join(part: Part, parts: list[Segment]) -> application.Opened | Failure:
    """Return the message that a part completes.

    Args:
        part: the last one to come.
        parts: all of them, by distinct indexes.
    """
    try:
        whole = _read(payload.Payload(segments.join(parts), part.transport_signer))
    except Refused as refused:
        return refused.failure
    # No client sends a segment in a segment.
    return Failure.PAYLOAD_MALFORMED if isinstance(whole, Part) else whole


def open_registration(identity: Identity, client: PublicKey, sealed: bytes, *, most_bytes: int) -> OpenedRegistration:
    """Open what a client sealed for the server.

    Raises:
        Refused: it cannot be opened, is too large, or is not protobuf.
    """
    message = registration.open_registration(sealed, identity.private_key, client, most_bytes=most_bytes)
    request_id = registration.request_id(sealed)
    return OpenedRegistration(
        client,
        request_id,
        identity.request_digest(request_id),
        message,
        identity.installation(client.key_hash, message.installation_id),
    )


def _registration(opened: application.Opened, identity: Identity) -> Content:
    try:
        return open_registration(
            identity, opened.signer, opened.inner, most_bytes=registration.LIMITS.registration_bytes
        )
    except Refused as refused:
        return RefusedContent(opened.signer, refused.failure, registration.request_id(opened.inner))


def _query(opened: application.Opened, _: Identity) -> Content:
    try:
        key_hashes = query.parse_query(opened.inner, most_keys=QUERY_KEYS)
    except Refused as refused:
        return RefusedContent(opened.signer, refused.failure)
    return OpenedQuery(opened.signer, opened.message_id, key_hashes)


def _request(opened: application.Opened, identity: Identity) -> Content:
    try:
        content = request.parse_request(opened.inner, most_items=REQUEST_ITEMS)
    except Refused as refused:
        return RefusedContent(opened.signer, refused.failure)
    return OpenedRequest(
        opened.signer, opened.message_id, content, tuple(_address(item, identity) for item in content.items)
    )


def _address(item: request.Item, identity: Identity) -> Address | None:
    """Return what an item names; None if it cannot name a user, which must cost nothing."""
    if len(item.key_hash) != query.KEY_HASH_BYTES:
        return None
    return identity.at_rest.address(
        identity.installation(item.key_hash, item.installation_id),
        access_token=item.access_token,
        chat_id=item.chat_id,
        author=item.author,
    )


#: By the name of the queue that handles them.
_READ = {REGISTRATION.name: _registration, QUERY.name: _query, DISPATCH.name: _request}


def _read(opened: payload.Payload, *, on_query_topic: bool = False) -> application.Opened | Part:
    content = application.read(opened)
    return Part(content, opened.signer, on_query_topic) if isinstance(content, Segment) else content
