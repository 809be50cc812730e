"""`wakupush dev` as a process, and what it printed."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def running(*options, **variables):
    command = [sys.executable, "-m", "wakupush", "dev", *options]
    environment = os.environ | variables
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        output = {"metrics": {}}
        try:
            for line in process.stdout:
                if line.strip() == "ready":
                    break
                name, value = line[:12].strip(), line[12:].strip()
                if name == "metrics":
                    url, _, part = value.partition(" of ")
                    output["metrics"][part] = url
                else:
                    output[name] = value
            yield process, output
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.stdout.read()
