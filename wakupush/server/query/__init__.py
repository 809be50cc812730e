"""Queries for access tokens (71, Querying a Server): keys, read, measure, charge, look up, decide, store."""
