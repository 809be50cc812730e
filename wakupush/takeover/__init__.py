"""Taking over from the reference server, and handing back to it: its SQLite database, read and written."""
