"""gorush's HTTP API: notifications, outcomes, the retry policy."""
