"""Taking over from the reference server, and handing back to it, by reading and writing its SQLite database."""
