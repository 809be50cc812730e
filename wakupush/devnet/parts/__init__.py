"""Embedded Postgres and Redis, and child processes that never outlive the process that started them."""
