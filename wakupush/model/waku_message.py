"""14/WAKU2-MESSAGE: the message that Waku nodes relay and store."""

import re
from dataclasses import dataclass, field

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
#: Pubsub topics: a static shard (51/WAKU2-RELAY-SHARDING), or a named topic (23/WAKU2-TOPICS).
PUBSUB_TOPIC = re.compile(r"/waku/2/(rs/\d{1,5}/\d{1,5}|[\w-]+/proto)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class WakuMessage:
    """A message as a Waku node carries it; everything in it is public on the network.

    Its hash covers payload, content topic, timestamp and meta. Anybody can copy it with another version, or as
    ephemeral, under the same hash. So these two fields of a received message decide nothing.
    """

    #: 26/WAKU2-PAYLOAD ciphertext.
    payload: bytes = field(repr=False)
    #: For example ``/waku/1/0x1a2b3c4d/rfc26``.
    content_topic: str
    #: 1 for 26/WAKU2-PAYLOAD encryption; not covered by the hash.
    version: int = 1
    #: The sender's clock in nanoseconds since the epoch, an int64; 0 if the sender gave none.
    timestamp: int = 0
    #: At most 64 bytes.
    meta: bytes = b""
    #: True if Store nodes are asked not to keep it; not covered by the hash.
    ephemeral: bool = False
