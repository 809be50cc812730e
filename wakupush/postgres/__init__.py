"""The shared state in Postgres: migrations, and one module and one file of named SQL for each subject.

Functions take an open connection and never commit: the use cases in `wakupush.server` decide what belongs together.
"""
