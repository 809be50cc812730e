"""`wakupush` with signals that plant faults into the main process of a worker, and probes that notice them sooner."""

import signal
import time

from wakupush.cli import main
from wakupush.workers import pulse

pulse.STUCK_SECONDS = 4.0
pulse.DEAF_SECONDS = 8.0


def block_the_event_loop(*_):
    time.sleep(3600)


def go_deaf(*_):
    """Ask Redis for no task any more, as after a reconnection that went wrong; the loop turns on."""
    from kombu.transport.redis import Channel  # noqa: PLC0415 - after Celery has chosen its transport

    Channel._brpop_start = lambda *_, **__: None


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, block_the_event_loop)
    signal.signal(signal.SIGWINCH, go_deaf)
    main()
