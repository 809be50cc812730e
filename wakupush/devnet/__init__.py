"""Embedded Postgres and Redis, a development Waku node and a development gorush: what one-command runs need."""
