"""The command line: ``wakupush``.

Commands import what they need when they run: `wakupush keygen` starts without Celery, `wakupush --help` without
aiohttp, and the counters of a worker's processes need their directory before prometheus_client is imported.
"""

from wakupush.cli.cli import app, main

__all__ = ["app", "main"]
