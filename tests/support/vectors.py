"""Reads the golden vectors of tests/vectors; their fields are described in the README.md there."""

import json
from base64 import b64decode
from functools import cache
from pathlib import Path

import pytest

from wakupush.protocol import payload
from wakupush.protocol.keys import PrivateKey

VECTORS = Path(__file__).parents[1] / "vectors"
SCENARIOS = sorted(path.stem for path in VECTORS.glob("scenario_*.json"))


@cache
def load(name):
    return json.loads((VECTORS / f"{name}.json").read_text())


def messages():
    """Return every message of the scenarios that has an application layer, with all its layers."""
    cases = []
    for scenario in SCENARIOS:
        for step in load(scenario)["steps"]:
            for kind in ("send", "replies"):
                cases += [
                    (f"{scenario.removeprefix('scenario_')}-{step['name']}-{kind}{index}", message)
                    for index, message in enumerate(step[kind])
                ]
    return [pytest.param(message, id=name) for name, message in cases if "application" in message]


def private_keys(scenario):
    """Return the private keys of a scenario's parties by their public keys, in hex."""
    parties = load(scenario)["keys"]
    return {
        key["public_key"]: PrivateKey.from_hex(key["private_key"])
        for party in parties
        for key in (party, *party["ephemeral_keys"])
    }


def ciphertext_of(message):
    return b64decode(message["waku_message"]["payload"])


def open_message(message):
    """Open the payload of a message with the key that its vector names."""
    layer = message["payload_v1"]
    if layer["encryption"] == "symmetric":
        return payload.open_symmetric(ciphertext_of(message), bytes.fromhex(layer["symmetric_key"]))
    return payload.open_asymmetric(ciphertext_of(message), PrivateKey.from_hex(layer["recipient_private_key"]))
