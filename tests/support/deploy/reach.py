"""Who may reach which part of the server, over the network."""

#: What may reach which part; whatever is not named reaches none.
REACHES = {
    "ingest": {"redis", "node"},
    "reconcile": {"redis", "node", "postgres"},
    "registration": {"redis", "node", "postgres"},
    "query": {"redis", "node", "postgres"},
    "dispatch": {"redis", "node", "postgres", "gorush"},
    "beat": {"redis", "node", "postgres"},
    "feedback": {"postgres"},
    "exporter": {"redis", "postgres"},
    "flower": {"redis"},
    "migrate": {"postgres"},
    "doctor": {"redis", "node", "postgres", "gorush"},
}
PARTS = {"redis": 6379, "postgres": 5432, "node": 8645, "gorush": 8088}
