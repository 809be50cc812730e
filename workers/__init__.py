"""The worker processes: the Celery application, its pools registration, query and dispatch, and beat."""
