"""The archive: the Stores' messages on the server's own topics, as Parquet, in one file for each hour of a shard.

``SERVER/SHARD/20261121T10.parquet`` is an hour that is over and complete, ``…T10.open.parquet`` one that may still get
messages. A file gets its name when all of it is written; files with other names are ignored. An hour without messages
has no file, because the Store may be new, or keep messages for a shorter time.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
from pyarrow import parquet

from wakupush.model.waku_message import WakuMessage
from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.folders import writing
from wakupush.protocol.keys import PublicKey
from wakupush.protocol.topics import server_content_topics
from wakupush.runtime.settings import PipelineSettings

HOUR: Final = 3600 * 10**9
#: Rows, and bytes of payload, of a row group, which a writer holds in memory.
GROUP_ROWS: Final = 10_000
GROUP_BYTES: Final = 16_000_000

#: One row for each message. The payload is the ciphertext that it arrived as.
SCHEMA: Final = pa.schema(
    [
        pa.field("hash", pa.binary(), nullable=False),
        pa.field("pubsub_topic", pa.string(), nullable=False),
        pa.field("content_topic", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("meta", pa.binary(), nullable=False),
        pa.field("ephemeral", pa.bool_(), nullable=False),
    ]
)
_Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of a shard, by the senders' clocks."""

    shard: str
    #: Nanoseconds since the epoch, a multiple of `HOUR`.
    start: int

    @property
    def end(self) -> int:
        """The last nanosecond."""
        return self.start + HOUR - 1

    @property
    def path(self) -> str:
        """The path of its file, without the ending."""
        begin = datetime.fromtimestamp(self.start // 10**9, UTC)
        return f"{self.shard.strip('/').replace('/', '-')}/{begin:%Y%m%dT%H}"


@dataclass(frozen=True, slots=True)
class Archive:
    """The archive of one server."""

    folder: Path

    @classmethod
    def of(cls, settings: PipelineSettings, server: PublicKey) -> Archive:
        """Return the archive of a server: each key has its own topics."""
        personal, partitioned = (topic.split("/")[3] for topic in server_content_topics(server))
        return cls(settings.archive.resolve() / f"{personal}-{partitioned}")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other writers on this machine out until the end of the block; delete unfinished files of an earlier one.

        Raises:
            PipelineError: another run is writing, or the folder cannot be written.
        """
        with writing(self.folder):
            for partial in self.folder.glob("*/.*.parquet-*"):
                partial.unlink()
            yield

    def is_complete(self, hour: Hour) -> bool:
        """Return whether an hour is stored as complete."""
        return self._file(hour, is_complete=True).exists()

    def write(self, hour: Hour, pages: Iterable[Mapping[bytes, WakuMessage]], *, is_complete: bool) -> int:
        """Commit an hour, in place of its open file, whose other messages stay: a Store may have lost them.

        Without messages there is nothing to commit.

        Args:
            pages: messages by their hashes, each hash once.
            is_complete: whether no messages can come any more.

        Returns:
            How many messages it has.

        Raises:
            PipelineError: the open file cannot be read.
        """
        path = self._file(hour, is_complete=is_complete)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
        try:
            with partial.open("wb") as stream:
                count = _write(stream, _row_groups(self._rows(hour, pages)))
                stream.flush()
                os.fsync(stream.fileno())
            if not count:
                return 0
            partial.rename(path)
        finally:
            partial.unlink(missing_ok=True)
        if is_complete:
            self._file(hour, is_complete=False).unlink(missing_ok=True)
        return count

    def files(self) -> list[Path]:
        """Return the files of all hours, the complete one if an hour has two."""
        complete = {path for path in self.folder.glob("*/*.parquet") if not path.name.endswith(".open.parquet")}
        still_open = {
            path
            for path in self.folder.glob("*/*.open.parquet")
            if path.with_name(path.name.replace(".open.", ".")) not in complete
        }
        return sorted(complete | still_open)

    def _rows(self, hour: Hour, pages: Iterable[Mapping[bytes, WakuMessage]]) -> Iterator[_Row]:
        """Yield the rows of pages, and then those that the hour's open file has besides."""
        hashes: set[bytes] = set()
        for page in pages:
            hashes.update(page)
            for hash_, message in page.items():
                yield {"hash": hash_, "pubsub_topic": hour.shard, **asdict(message)}
        earlier = self._file(hour, is_complete=False)
        if hashes and earlier.exists():
            yield from (row for row in _read(earlier) if row["hash"] not in hashes)

    def _file(self, hour: Hour, *, is_complete: bool) -> Path:
        return self.folder / f"{hour.path}{'' if is_complete else '.open'}.parquet"


def _read(path: Path) -> Iterator[_Row]:
    """Yield the rows of a file.

    Raises:
        PipelineError: it cannot be read.
    """
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise PipelineError(
            f"{path} cannot be read ({type(error).__name__}): if it is damaged, delete it, and run this again"
        ) from None


def _write(stream: BinaryIO, groups: Iterator[list[_Row]]) -> int:
    """Write row groups as Parquet, or nothing if there are none; return the number of rows."""
    count = 0
    with ExitStack() as stack:
        writer = None
        for rows in groups:
            if writer is None:
                writer = stack.enter_context(
                    parquet.ParquetWriter(stream, SCHEMA, compression="zstd", write_page_checksum=True)
                )
            writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
            count += len(rows)
    return count


def message_of(row: Mapping[str, object]) -> WakuMessage:
    """Return the message of a row."""
    names = ("payload", "content_topic", "version", "timestamp", "meta", "ephemeral")
    return WakuMessage(**{name: row[name] for name in names})  # type: ignore[arg-type]  # as the schema says


def _row_groups(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Yield rows, a row group at a time."""
    group: list[_Row] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row["payload"])
        if len(group) >= GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
