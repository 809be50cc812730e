"""Pseudonyms of the lake: the events' own, hashed again under a key that lasts for one period and is then deleted.

Without the key nobody can say which pseudonym of the events, or message of the network, one in the lake belongs to, nor
whether two of different periods are the same.

Stores have the time of every message, and a user's queries on the user's own topic. So an event that names a user has
only its hour, and no value in common with events that have their second.
"""

import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from wakupush.pipeline.errors import PipelineError

#: Bytes of a pseudonym, and of a key.
PSEUDONYM_BYTES: Final = 16
KEY_BYTES: Final = 32
#: Days after its period for which a key is kept for late events; those that come even later get no pseudonyms.
GRACE_DAYS: Final = 2
#: Kinds whose times keep their seconds, for `wakupush.pipeline.capacity`. They name no user.
TO_THE_SECOND: Final = ("received", "foreign")
#: Kinds whose latency is kept, for the report and `wakupush.pipeline.capacity`.
TIMED: Final = ("answered", "delivered", "foreign")
#: Columns that a user's events would have in common with events that have their second.
OF_NOBODY: Final = ("trace", "worker", "batch_size", "shard", "age_ms")
_EPOCH: Final = date(1970, 1, 1)
_BLOCK: Final = 64
_KEYS: Final = StructType(
    [StructField("period", IntegerType()), StructField("inner", BinaryType()), StructField("outer", BinaryType())]
)


@dataclass(frozen=True, slots=True)
class Keys:
    """A folder of keys, one file for each period of some days; periods are counted from the epoch.

    If a key is lost, only the connection between the events of its period before and after the loss is lost.
    """

    folder: Path
    days: int
    _passing: dict[int, bytes] = field(default_factory=dict, repr=False)

    def of(self, days: Iterable[date], today: date, lake_days: Iterable[date] = ()) -> dict[int, bytes]:
        """Return the keys of the periods that days are in.

        A period gets a key when it is first asked for. A period that is over has no key any more. But if the lake has
        no events of it, it gets one for as long as this object lives, which is stored nowhere.

        Args:
            days: of events.
            today: decides which periods are over.
            lake_days: of which the lake has events already.

        Raises:
            PipelineError: the folder cannot be read or written.
        """
        lake_periods = frozenset(map(self.period, lake_days))
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            keys = {
                period: self._key(period, today, lake_periods) for period in sorted({self.period(day) for day in days})
            }
        except OSError as error:
            raise PipelineError(f"the keys in {self.folder} cannot be used: {error.strerror}") from None
        return {period: key for period, key in keys.items() if key is not None}

    def forget(self, today: date) -> int:
        """Delete the keys of periods that are over; return their number."""
        if not self.folder.is_dir():
            return 0
        over = [path for path in self.folder.glob("*.key") if self._is_over(int(path.stem), today)]
        for path in over:
            path.unlink()
        return len(over)

    def period(self, day: date) -> int:
        """Return the number of the period that a day is in."""
        return (day - _EPOCH).days // self.days

    def _is_over(self, period: int, today: date) -> bool:
        return (today - _EPOCH).days >= (period + 1) * self.days + GRACE_DAYS

    def _key(self, period: int, today: date, lake_periods: frozenset[int]) -> bytes | None:
        if self._is_over(period, today):
            if period in lake_periods:
                return None
            return self._passing.setdefault(period, secrets.token_bytes(KEY_BYTES))
        path = self.folder / f"{period}.key"
        if not path.exists():
            partial = path.with_suffix(f".{secrets.token_hex(4)}")
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(secrets.token_bytes(KEY_BYTES))
                stream.flush()
                os.fsync(stream.fileno())
            partial.rename(path)
        key = path.read_bytes()
        if len(key) != KEY_BYTES:
            raise PipelineError(f"{path} is no key: delete it, and the period's pseudonyms begin anew")
        return key


def today() -> date:
    """Return the present day, UTC."""
    return datetime.now(UTC).date()


def keep_from(seconds: float) -> date:
    """Return the first day that is kept if days are kept for some seconds."""
    return today() - timedelta(seconds=seconds)


def whole_periods(first: date, last: date, days: int) -> tuple[date, date]:
    """Return the first and the last day of the periods of some days that a range of days touches."""
    begin, end = ((day - _EPOCH).days // days * days for day in (first, last))
    return _EPOCH + timedelta(days=begin), _EPOCH + timedelta(days=end + days - 1)


def rehash(frame: DataFrame, keys: dict[int, bytes], days: int, columns: dict[str, str]) -> DataFrame:
    """Add HMAC-SHA256 of columns under the key of the row's period, cut to 16 bytes; null if there is no key.

    The keys are joined, so that no plan that Spark prints or logs shows them.

    Args:
        frame: with a column ``day``.
        keys: by period.
        days: of a period.
        columns: columns of bytes or text, each with the name of the new column.
    """
    pads = [(period, _pad(key, 0x36), _pad(key, 0x5C)) for period, key in keys.items()]
    period = F.floor(F.datediff("day", F.lit(_EPOCH)) / days).cast("int")
    rows = frame.withColumn("period", period).join(
        F.broadcast(frame.sparkSession.createDataFrame(pads, _KEYS)), "period", "left"
    )
    for old, new in columns.items():
        inner = F.unhex(F.sha2(F.concat("inner", F.encode(F.lit(new), "utf-8"), F.col(old).cast("binary")), 256))
        outer = F.unhex(F.sha2(F.concat("outer", inner), 256))
        rows = rows.withColumn(new, F.substring(outer, 1, PSEUDONYM_BYTES))
    return rows.drop("period", "inner", "outer")


def blur(frame: DataFrame) -> DataFrame:
    """Remove fields that nothing reads, and times that would link a user to messages of the network."""
    kind = F.col("kind")
    second, hour = (F.date_trunc(unit, "time") for unit in ("second", "hour"))
    return frame.withColumns(
        {
            "time": F.when(kind.isin(*TO_THE_SECOND), second).otherwise(hour),
            "latency_ms": F.when(kind.isin(*TIMED), F.col("latency_ms")),
            **{name: F.when(F.col("user").isNull(), F.col(name)) for name in OF_NOBODY},
        }
    )


def _pad(key: bytes, byte: int) -> bytes:
    return bytes(key_byte ^ byte for key_byte in key.ljust(_BLOCK, b"\0"))
