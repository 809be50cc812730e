"""Runs a server until standard input ends, with the interpreter of its revision; imports nothing of this revision."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from pathlib import Path

from wakupush.protocol.keys import PrivateKey

try:
    from wakupush.devnet.stack import External, Stack
except ImportError:  # a revision where it was a part of the demo
    from wakupush.devnet.demo.stack import External, Stack  # type: ignore[import-not-found,no-redef]  # there, not here


def main() -> None:
    """Read the options from the first line, write where the server is into one line, and wait."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C goes to everybody; the end of standard input follows
    options = json.loads(sys.stdin.readline())
    with tempfile.TemporaryDirectory(prefix="wakupush-against-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        directory.chmod(0o755)
        stack = Stack(
            directory,
            key=PrivateKey(bytes.fromhex(options["key"])),
            external=External(waku_url=options["waku_url"], gorush_url=options["gorush_url"]),
            concurrency=options["concurrency"],
            defaults=options["settings"],
        )
        with stack:
            facts = {
                "postgres_dsn": stack.postgres_dsn,
                "redis_url": stack.redis_url,
                "pids": {process.name: process.pid for process in stack.processes},
            }
            sys.stdout.write(json.dumps(facts) + "\n")
            sys.stdout.flush()
            sys.stdin.read()


if __name__ == "__main__":
    main()
