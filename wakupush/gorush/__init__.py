"""gorush's HTTP API: posts, their outcomes, and the meaning of its error texts."""
