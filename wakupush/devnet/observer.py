"""Watching the development node and the development gorush without consuming what the server reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from wakupush.model.waku_message import WakuMessage
from wakupush.waku.codec import decode_message

#: Above every position in a log.
_END = 2**53


@dataclass(frozen=True, slots=True)
class NodeMessage:
    """A message that went over the node."""

    pubsub_topic: str
    message: WakuMessage
    #: In seconds since the epoch.
    arrived: float


@dataclass(frozen=True, slots=True)
class Push:
    """A push that the server posted to gorush."""

    #: As the server posted it; it contains the device token.
    notification: Mapping[str, Any] = field(repr=False)
    #: ``delivered``, or what Apple or Google said.
    outcome: str
    #: In seconds since the epoch.
    arrived: float


class Observer:
    """Follows both logs from now on."""

    def __init__(self, node_url: str, gorush_url: str) -> None:
        self._node = httpx2.Client(base_url=node_url, trust_env=False)
        self._gorush = httpx2.Client(base_url=gorush_url, trust_env=False)
        self._node_position = int(_log(self._node, _END)["next"])
        self._gorush_position = int(_log(self._gorush, _END)["next"])

    def messages(self) -> list[NodeMessage]:
        """Return the messages since the last call, in their order."""
        log = _log(self._node, self._node_position)
        self._node_position = log["next"]
        entries = {entry["hash"]: entry for entry in log["entries"]}
        pairs = []
        for hash_, message in self._fetch(list(entries)).items():
            entry = entries[hash_]
            pairs.append((entry["seq"], NodeMessage(entry["pubsubTopic"], message, entry["arrivedAt"])))
        return [entry for _, entry in sorted(pairs, key=lambda pair: pair[0])]

    def pushes(self) -> list[Push]:
        """Return the pushes since the last call, in their order."""
        log = _log(self._gorush, self._gorush_position)
        self._gorush_position = log["next"]
        return [Push(entry["notification"], entry["outcome"], entry["at"]) for entry in log["entries"]]

    def gorush_restarted(self) -> None:
        """Follow the log of a restarted gorush from its beginning."""
        self._gorush_position = 0

    def close(self) -> None:
        """Close the connections."""
        self._node.close()
        self._gorush.close()

    def _fetch(self, hashes: list[str]) -> dict[str, WakuMessage]:
        messages: dict[str, WakuMessage] = {}
        for start in range(0, len(hashes), 100):
            part = ",".join(hashes[start : start + 100])
            parameters = {"hashes": part, "includeData": "true", "pageSize": "100"}
            page = self._node.get("/store/v3/messages", params=parameters).raise_for_status().json()
            messages |= {entry["messageHash"]: decode_message(entry["message"]) for entry in page["messages"]}
        return messages


def _log(client: httpx2.Client, after: int) -> dict[str, Any]:
    log: dict[str, Any] = client.get("/dev/log", params={"after": after}).raise_for_status().json()
    return log
