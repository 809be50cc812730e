"""docs/reference/wire/vectors.json: made by the code, valid by its schema, checked as the reference's vectors are."""

import json

import pytest
from jsonschema import Draft202012Validator

from support import vectors, wire_vectors
from support.wire_checks import CHECKS
from support.wire_vectors import FILE

OURS = json.loads(FILE.read_text())
SCHEMA = json.loads(FILE.with_name("vectors.schema.json").read_text())


def of_the_reference():
    """Return the entries of tests/vectors that are like ours, by section."""
    load = vectors.load
    return {
        "keys": load("keys")["keys"],
        "topics": [topic for entry in load("topics")["topics"] for topic in entry["topics"]],
        "hashes": load("hashes")["hashes"],
        "shared_keys": load("ecdh")["pairs"],
        "seals": load("aes_gcm")["cases"],
        "grants": load("grants")["grants"],
        "access_tokens": load("access_tokens")["items"],
        "metadata": load("metadata")["messages"],
        "payloads": [
            layer
            | {
                "payload": vectors.sealed(entry).hex(),
                "key": layer.get("symmetric_key") or layer["recipient_private_key"],
                "opens": True,
            }
            for entry in load("payload_v1")["messages"]
            for layer in [entry["payload_v1"]]
            if "data" in layer
        ],
    }


def entries(sections):
    return [
        pytest.param(section, entry, id=f"{section}-{number:02}")
        for section, those in sections.items()
        for number, entry in enumerate(those)
    ]


def test_they_are_as_the_schema_says():
    Draft202012Validator.check_schema(SCHEMA)
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(OURS)] == []
    assert OURS.keys() == CHECKS.keys() == SCHEMA["properties"].keys()


def test_made_again_they_are_the_same():
    assert FILE.read_text() == wire_vectors.text(wire_vectors.make()), "run: python -m tests.support.wire_vectors"


@pytest.mark.parametrize(("section", "entry"), entries(OURS))
def test_ours(section, entry):
    CHECKS[section](entry)


@pytest.mark.parametrize(("section", "entry"), entries(of_the_reference()))
def test_the_same_checks_hold_what_the_reference_made(section, entry):
    CHECKS[section](entry)
