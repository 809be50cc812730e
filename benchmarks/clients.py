"""A thousand clients in one process: do they all work, and does anything grow?

    .venv/bin/python benchmarks/clients.py [--clients 1000] [--minutes 10] [--rate 5]

Starts the whole server on embedded parts, and a relay node of the clients' own beside the server's. All clients share
one transport and one SQLite file. They register, and then notify each other at random, some of them changing their
options, until the time is up. Prints a line each half minute; exits with 1 if a notification was not accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import httpx2
import psutil

from wakupush.client.client import Client
from wakupush.client.drivers.notifying import Recipient
from wakupush.client.drivers.storage import SqliteFile
from wakupush.client.drivers.transport import RelayTransport
from wakupush.client.rules.registering import Device, Options
from wakupush.devnet.demo.stack import SHARDS, Stack
from wakupush.devnet.parts.processes import Process, answers_http, free_port
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import TokenType
from wakupush.protocol.keys import PrivateKey

EVERY = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=float, default=5, help="notifications a second")
    options = parser.parse_args()
    with ExitStack() as exits:
        directory = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="wakupush-clients-")))
        directory.chmod(0o755)
        stack = exits.enter_context(Stack(directory, fsync=False))
        url = f"http://127.0.0.1:{(port := free_port())}"
        command = [sys.executable, "-m", "wakupush.devnet.serve", "waku", "--port", str(port), "--shard", SHARDS[0]]
        ready = f"{url}/debug/v1/info"
        exits.enter_context(Process("peer", command, log=directory / "peer.log", ready=lambda: answers_http(ready)))
        for one, other in ((url, stack.node_url), (stack.node_url, url)):
            httpx2.post(f"{one}/dev/peers", json={"url": other}).raise_for_status()
        return asyncio.run(run(stack, url, directory, options))


async def run(stack: Stack, url: str, directory: Path, options: argparse.Namespace) -> int:
    async with AsyncExitStack() as exits:
        transport = await exits.enter_async_context(RelayTransport(url, SHARDS[:1]))
        file = exits.enter_context(SqliteFile(directory / "clients"))
        clients = [Client(PrivateKey.generate(), transport, file.account(str(n))) for n in range(options.clients)]
        begun = time.monotonic()
        for client in clients:
            await exits.enter_async_context(client)
            client.enable_sending()
            device = Device(token_type=TokenType.FIREBASE, device_token=os.urandom(16).hex())
            client.enable_receiving(device, [stack.key.public_key])
        settled = await asyncio.gather(*(client.settled(300) for client in clients))
        print(f"{sum(settled)} of {len(clients)} clients registered in {time.monotonic() - begun:.0f} s", flush=True)
        results = await notify_each_other(clients, options)
    return int(set(results) != {"accepted"} or not all(settled))


async def notify_each_other(clients: list[Client], options: argparse.Namespace) -> Counter[str]:
    results: Counter[str] = Counter()
    latencies: list[float] = []

    async def notify(sender: Client, receiver: Client) -> None:
        at = time.monotonic()
        targets = await sender.notify(
            [Recipient(user=receiver.push_key)],
            message_id=os.urandom(32),
            chat_id="c",
            kind=NotificationType.MESSAGE,
        )
        latencies.append(time.monotonic() - at)
        results.update(target.result.value for target in targets)
        results.update(["unknown"] if not targets else [])

    process, begun, shown = psutil.Process(), time.monotonic(), 0.0
    async with asyncio.TaskGroup() as tasks:
        while (elapsed := time.monotonic() - begun) < options.minutes * 60:
            tasks.create_task(notify(*random.sample(clients, 2)))
            if random.random() < 0.05:
                random.choice(clients).set_options(Options(muted_chats=(os.urandom(4).hex(),)))
            if elapsed >= shown:
                shown += EVERY
                gc.collect()
                latencies.sort()
                median = latencies[len(latencies) // 2] if latencies else 0
                print(
                    f"{elapsed:5.0f} s  {dict(results)}  median {1000 * median:.0f} ms  "
                    f"{process.memory_info().rss / 1e6:.1f} MB  {len(asyncio.all_tasks())} tasks  "
                    f"{process.num_fds()} files  {len(gc.get_objects())} objects",
                    flush=True,
                )
                latencies.clear()
            await asyncio.sleep(1 / options.rate)
    print(f"{time.monotonic() - begun:5.0f} s  {dict(results)}")
    return results


if __name__ == "__main__":
    sys.exit(main())
