"""A development gorush with scripted deliveries."""
