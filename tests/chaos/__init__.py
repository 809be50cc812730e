"""Killing parts of a running server under load, and judging by the evidence whether anything was lost or doubled."""
