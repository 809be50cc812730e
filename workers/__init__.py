"""The worker processes: the Celery application, its pools registration, query, dispatch and rest, and beat."""
