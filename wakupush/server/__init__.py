"""The use cases of the server: register, answer a query, accept a push request, deliver. Plain functions, no Celery."""
