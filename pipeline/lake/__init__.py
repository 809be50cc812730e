"""The event lake: its tables, pseudonyms, and the export into it."""
