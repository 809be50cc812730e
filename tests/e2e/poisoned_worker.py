"""`python -m poisoned_worker`: wakupush whose handling of a registration fails as its device token says."""

import os
import signal

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

if __name__ == "__main__":
    main()
