"""The state that processes share in Redis: queues, claims, watched topics, limits, circuit breakers."""
