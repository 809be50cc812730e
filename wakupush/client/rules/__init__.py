"""What a client decides, as state machines: times, randomness and keys are passed in, messages come out. Sans-IO."""
