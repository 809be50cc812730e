"""A client's decisions, as state machines: they take times, randomness and keys, and return messages. Sans-IO."""
