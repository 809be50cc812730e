"""docs/reference/wire/vectors.json: made by the code, valid by its schema."""

import json

from jsonschema import Draft202012Validator

from support import wire_vectors
from support.wire_vectors import FILE

OURS = json.loads(FILE.read_text())
SCHEMA = json.loads(FILE.with_name("vectors.schema.json").read_text())


def test_they_are_as_the_schema_says():
    Draft202012Validator.check_schema(SCHEMA)
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(OURS)] == []
    assert OURS.keys() == SCHEMA["properties"].keys()


def test_made_again_they_are_the_same():
    assert FILE.read_text() == wire_vectors.text(wire_vectors.make()), "run: python -m tests.support.wire_vectors"
