"""docs/reference/wire/vectors.json: made by the code, valid by its schema."""

import json
from base64 import b64decode

from jsonschema import Draft202012Validator

from support import wire_vectors
from support.wire_vectors import CLIENT, FILE, SERVER
from wakupush.client.rules.mailbox import open_advertisement
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import topics
from wakupush.protocol.advertisement import parse_advertisement
from wakupush.protocol.application import Type
from wakupush.protocol.grants import is_granted

OURS = json.loads(FILE.read_text())
SCHEMA = json.loads(FILE.with_name("vectors.schema.json").read_text())


def test_they_are_as_the_schema_says():
    Draft202012Validator.check_schema(SCHEMA)
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(OURS)] == []
    assert OURS.keys() == SCHEMA["properties"].keys()


def test_made_again_they_are_the_same():
    assert FILE.read_text() == wire_vectors.text(wire_vectors.make()), "run: python -m tests.support.wire_vectors"


def test_a_client_reads_the_advertisement():
    [entry] = [each for each in OURS["conversation"] if each["type"] == Type.CONTACT_CODE_ADVERTISEMENT]
    sent = entry["waku_message"]
    message = WakuMessage(payload=b64decode(sent["payload"]), content_topic=sent["content_topic"])
    opened = open_advertisement(message, topics.symmetric_key(entry["topic_name"]))
    assert (opened.type, opened.signer) == (Type.CONTACT_CODE_ADVERTISEMENT, CLIENT.public_key)
    [info] = parse_advertisement(opened.inner)
    assert (info.key_hash, info.server_key) == (CLIENT.public_key.key_hash, SERVER.public_key.compressed)
    assert is_granted(info.grant, CLIENT.public_key, SERVER.public_key, info.access_token)
