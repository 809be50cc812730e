"""Connections to Postgres and Redis, as processes of every kind open them."""
