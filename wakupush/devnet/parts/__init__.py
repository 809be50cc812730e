"""Embedded Postgres and Redis, and child processes that never outlive who started them."""
