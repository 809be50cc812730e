"""An object store for tests: a server of S3's API, in a process of its own on loopback."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3

from wakupush.devnet.processes import Process, answers_http, free_port

BUCKET = "lake"


@dataclass(frozen=True)
class Store:
    url: str

    @property
    def credentials(self) -> dict[str, str]:
        """What the SDK's own chain finds in the environment."""
        return {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "planted-secret", "AWS_REGION": "us-east-1"}

    @property
    def environment(self) -> dict[str, str]:
        """The settings of a lake in it."""
        catalog = {"s3.endpoint": self.url, "s3.path-style-access": "true"}
        return self.credentials | {
            "WAKUPUSH_PIPELINE__WAREHOUSE": f"s3://{BUCKET}/of/wakupush",
            "WAKUPUSH_PIPELINE__CATALOG": json.dumps(catalog),
        }

    def objects(self) -> set[str]:
        """Return what it has."""
        pages = self._client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return {entry["Key"] for page in pages for entry in page.get("Contents", [])}

    def put(self, key: str, content: bytes) -> None:
        """Write an object, as a writer would that is killed before it commits."""
        self._client().put_object(Bucket=BUCKET, Key=key, Body=content)

    def get(self, key: str) -> tuple[str, bytes]:
        """Return the type and the content of an object."""
        answer = self._client().get_object(Bucket=BUCKET, Key=key)
        with answer["Body"] as body:
            return answer["ContentType"], body.read()

    def _client(self):
        key, secret, region = self.credentials.values()
        return boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id=key, aws_secret_access_key=secret, region_name=region
        )


#: moto's server, with a clock that is so many seconds behind.
_SERVER = """
import datetime, sys
import moto.core.utils as utils
clock, behind = utils.utcnow, datetime.timedelta(seconds=float(sys.argv.pop(1)))
utils.utcnow = lambda: clock() - behind
from moto.server import main
main(sys.argv[1:])
"""


@contextmanager
def store(directory: Path, behind: float = 0) -> Iterator[Store]:
    """Run a store with an empty bucket until the end of the block; it keeps all in memory.

    Args:
        directory: for its log.
        behind: seconds that its clock is behind, so that what it gets is that old.
    """
    port = free_port()
    store = Store(f"http://127.0.0.1:{port}")
    process = Process(
        "s3",
        [sys.executable, "-c", _SERVER, str(behind), "-H", "127.0.0.1", "-p", str(port)],
        log=directory / "s3.log",
        ready=lambda: answers_http(f"{store.url}/moto-api/"),
        start_timeout=120,
    )
    with process:
        store._client().create_bucket(Bucket=BUCKET)
        yield store
