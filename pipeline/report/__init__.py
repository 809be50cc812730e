"""The report: its tables, what is known of each day, the page."""
