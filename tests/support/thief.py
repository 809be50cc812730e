"""A thief with a dump of the database, who wants to know which user is behind a pseudonym of the events.

He reads the text that `pg_dump` writes, and knows no key. A claim is a pair of a user (key hash, hex) and a pseudonym
(hex). He may be wrong; a test, which knows the truth, counts how often he is right.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from datetime import datetime
from itertools import chain

Claim = tuple[str, str]

_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\+00")
#: Names that occur once: hashes, digests and ids.
_NAME = re.compile(r"[0-9a-f-]{12,}")
#: Seconds between two times of one transaction, or of one and what follows at once.
_NEAR = 0.2


class Dump:
    """The rows of a dump, in its order: by table, the values by the names of the columns; partitions are one table."""

    def __init__(self, text: str) -> None:
        self.tables: dict[str, list[dict[str, str]]] = defaultdict(list)
        rows: list[dict[str, str]] | None = None
        names: list[str] = []
        for line in text.splitlines():
            if begin := re.fullmatch(r"COPY \w+\.(\w+) \((.+)\) FROM stdin;", line):
                names = begin[2].replace('"', "").split(", ")
                rows = self.tables[re.sub(r"_(\d{8}|default)$", "", begin[1])]
            elif line == r"\.":
                rows = None
            elif rows is not None:
                values = zip(names, line.split("\t"), strict=True)
                rows.append({name: value.replace("\\\\", "\\") for name, value in values if value != r"\N"})

    @property
    def of_users(self) -> dict[str, list[dict[str, str]]]:
        """The tables that name users."""
        return {name: rows for name, rows in self.tables.items() if any("key_hash" in row for row in rows)}

    @property
    def events(self) -> list[dict[str, str]]:
        """The events that have a pseudonym, by time."""
        named = [row for row in self.tables["delivery_events"] if "key_pseudonym" in row]
        return sorted(named, key=lambda row: (_seconds(row["time"]), int(row["id"])))


def by_value(dump: Dump) -> set[Claim]:
    """Join what two rows have in common: a value, or the beginning of one, also through a third table."""
    groups: dict[str, set[str]] = defaultdict(set)
    for row in chain.from_iterable(dump.tables.values()):
        values = set(_values(row))
        for value in values:
            groups[value] |= values
    claims = set()
    for rows in dump.of_users.values():
        for row in rows:
            reached = set(_values(row))
            reached |= set().union(*(groups[value] for value in reached if value != row.get("key_hash")))
            claims |= {
                (row["key_hash"], event["key_pseudonym"])
                for event in dump.events
                if "key_hash" in row and not reached.isdisjoint(_values(event))
            }
    return claims


def by_time(dump: Dump) -> set[Claim]:
    """Join a row of a user with the nearest event, by each of its times."""
    events = dump.events
    times = [_seconds(event["time"]) for event in events]
    claims = set()
    for row in chain.from_iterable(dump.of_users.values()):
        for text in _TIME.findall(" ".join(row.values())):
            at = _seconds(text)
            place = bisect_left(times, at)
            near = sorted((abs(times[i] - at), i) for i in (place - 1, place) if 0 <= i < len(times))
            if "key_hash" in row and near and near[0][0] < _NEAR:
                claims.add((row["key_hash"], events[near[0][1]]["key_pseudonym"]))
    return claims


def by_order(dump: Dump) -> dict[str, set[Claim]]:
    """Join the n-th user of a table with the n-th pseudonym of events of a kind, for each table and kind."""
    claims = {}
    for table, rows in dump.of_users.items():
        users = list(dict.fromkeys(row["key_hash"] for row in rows if "key_hash" in row))
        for kind in {event["kind"] for event in dump.events}:
            pseudonyms = list(dict.fromkeys(row["key_pseudonym"] for row in dump.events if row["kind"] == kind))
            claims[f"{table} and {kind}"] = set(zip(users, pseudonyms, strict=False))
            # The newest rows may be the first: their place was free.
            claims[f"{table} and {kind}, backwards"] = set(zip(users[::-1], pseudonyms, strict=False))
    return claims


def _values(row: dict[str, str]) -> list[str]:
    names = []
    for value in row.values():
        text = value.removeprefix("\\x")
        if _NAME.fullmatch(text):
            names.append(text)
            # A trace id is the beginning of a hash.
            names.append(text[:16])
    return names


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("+00", "+00:00")).timestamp()
