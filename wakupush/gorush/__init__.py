"""gorush's HTTP API: posts, their outcomes, what its error texts mean."""
