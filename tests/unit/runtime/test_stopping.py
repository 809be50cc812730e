"""A process that is asked to end, ends."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, threading
from wakupush.runtime.stopping import stop_on_signals
stop = stop_on_signals()
waiting = threading.Thread(target=stop.wait)
waiting.start()
# The system gives the signal to another thread, as it may at any time.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
print("started", flush=True)
waiting.join()
print("stopped", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_another_thread_ends_the_process(number):
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
        try:
            assert process.communicate(timeout=30)[0] == "stopped\n"
        finally:
            process.kill()
    assert process.returncode == 0
