"""`python -m poisoned_worker`: wakupush whose handling of a registration, or whose start, fails as it is told."""

import os
import signal
from pathlib import Path

from celery.signals import worker_process_init

from wakupush.cli import main
from wakupush.protocol import registration

_check = registration.check


def check(message, **options):
    if message.device_token.startswith("poison-raise"):
        raise RuntimeError(message.device_token)
    if message.device_token.startswith("poison-kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    return _check(message, **options)


registration.check = check


@worker_process_init.connect
def die_once(**_):
    """Let the first child of the pool be killed as it starts."""
    killed = Path(os.environ.get("POISON_START", os.devnull))
    if not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
