from psycopg_pool import ConnectionPool

from wakupush.settings import PostgresSettings
from wakupush.state.pool import open_pool


def test_a_connection_that_postgres_ended_is_replaced_before_it_is_used(dsn):
    pool: ConnectionPool = open_pool(PostgresSettings(dsn=dsn, pool_size=1))
    try:
        with pool.connection() as connection:
            first = connection.info.backend_pid
        with pool.connection() as connection:
            assert connection.info.backend_pid == first
        with open_pool(PostgresSettings(dsn=dsn)).connection() as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
        with pool.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert connection.info.backend_pid != first
    finally:
        pool.close()
