"""What an export has done: how many events of each day and kind are in Postgres, and in a lake in a store."""

from collections import Counter
from datetime import date

import psycopg
from pyiceberg.catalog import load_catalog

from support.pipeline.stores import Store

Kinds = Counter[tuple[date, str]]


def in_postgres(dsn: str) -> Kinds:
    query = "SELECT (time AT TIME ZONE 'UTC')::date, kind, count(*) FROM delivery_history GROUP BY 1, 2"
    with psycopg.connect(dsn) as connection:
        return Counter({(day, kind): count for day, kind, count in connection.execute(query)})


def in_lake(dsn: str, store: Store) -> Kinds:
    """Count by pyiceberg, which finds the lake by its catalog in the database."""
    with psycopg.connect(dsn) as connection:
        at = connection.info
        uri = f"postgresql+psycopg://{at.user}@{at.host}:{at.port}/{at.dbname}?options=-csearch_path%3Dwakupush_lake"
    key, secret, region = store.credentials.values()
    options = {"s3.endpoint": store.url, "s3.access-key-id": key, "s3.secret-access-key": secret, "s3.region": region}
    with load_catalog("lake", type="sql", uri=uri, **options) as catalog:
        rows = catalog.load_table("wakupush.events").scan(selected_fields=("day", "kind")).to_arrow()
    return Counter(zip(rows["day"].to_pylist(), rows["kind"].to_pylist(), strict=True))


def has_committed(dsn: str) -> bool:
    """Return whether the lake's table was changed since it was made."""
    query = "SELECT count(*) FROM wakupush_lake.iceberg_tables WHERE previous_metadata_location IS NOT NULL"
    with psycopg.connect(dsn) as connection:
        [count] = connection.execute(query).fetchone()
    return count > 0
