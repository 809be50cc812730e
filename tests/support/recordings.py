"""Recorded requests and answers of the real programs, read from tests/recordings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent / "recordings"


@dataclass(frozen=True)
class Recording:
    """One request and what the real program answered to it."""

    area: str
    name: str
    method: str
    path: str
    headers: dict[str, str]
    #: JSON value or, if it was not JSON, text.
    body: Any
    status: int
    answer_headers: dict[str, str]
    #: JSON value or, if it was not JSON, text.
    answer: Any
    #: What the platforms got because of it, each with `headers`, `body` and `bytes` of the body.
    upstream: list[dict[str, Any]]

    @property
    def content_type(self) -> str | None:
        return self.answer_headers.get("Content-Type")

    @property
    def text(self) -> str:
        """The body of the answer as it came: JSON as Go writes it."""
        is_text = self.answer == "" or (self.content_type or "").startswith("text/")
        return str(self.answer) if is_text else json.dumps(self.answer, separators=(",", ":"))

    def content(self, body: Any = None) -> bytes:
        """Return the bytes of the request's body, or those of ``body`` instead."""
        value = self.body if body is None else body
        if self.method not in {"POST", "DELETE", "PUT"}:
            return b""
        return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def names(area: str) -> set[str]:
    """Return the names of all recordings of ``gorush``, ``gorush-fields``, ``waku-rest`` or ``nwaku-rest``."""
    return {path.stem for path in (_ROOT / area).glob("*.json")}


def load(area: str, name: str) -> Recording:
    """Return one recording."""
    record = json.loads((_ROOT / area / f"{name}.json").read_text())
    request, answer = record["request"], record["response"]
    return Recording(
        area=area,
        name=name,
        method=request["method"],
        path=request["path"],
        headers=request["headers"],
        body=request["body"],
        status=answer["status"],
        answer_headers=answer["headers"],
        answer=answer["body"],
        upstream=record.get("upstream", []),
    )
