"""Registrations (71, Registering Client): read, measure, charge, decide, store."""
