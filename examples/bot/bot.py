"""A bot on the SDK of wakupush: it registers a device, asks for pushes to users, and reads what a push carries.

It follows the lines of its standard input until that ends, and prints a line for each:

    0x04… Good morning     asks for a push to a user, with a text that only this user can read
    {"chatId": "0x…", …}   reads the data of a push, as Apple or Google hand it to an app
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from wakupush.client import (
    Client,
    Device,
    Event,
    LightTransport,
    Lost,
    NodeError,
    NotificationType,
    PrivateKey,
    PublicKey,
    Recipient,
    SqliteFile,
    Status,
    TokenType,
    seal_message,
)

#: Seconds in which a server confirms a registration.
PATIENCE = 60.0
#: The bot has a chat with each user, by this name.
CHAT = "bot"
#: The kind of a text, by 62/STATUS-PAYLOADS.
TEXT = 0


async def push(client: Client, user: PublicKey, text: str) -> str:
    """Ask for a push to the devices of a user, and return what became of it."""
    message, message_id = seal_message(client.account.key, user, TEXT, text.encode())
    devices = await client.notify(
        [Recipient(user=user, message=message)], message_id=message_id, chat_id=CHAT, kind=NotificationType.MESSAGE
    )
    return ", ".join(device.result.value for device in devices if device.result) or "no device is known"


def read(client: Client, data: dict[str, object]) -> str:
    """Return what a push to this bot's device is about."""
    received = client.receive(data, chat_ids=[CHAT])
    if received is None:
        return "for somebody else"
    if received.message is None:
        return "a push without a message"
    if received.repeated:
        return "received before"
    return f"{received.message.signer} says {received.message.inner.decode(errors='replace')!r}"


async def follow(client: Client, line: str) -> str:
    """Do what a line asks for, and return what to print."""
    try:
        if line.startswith("{"):
            return read(client, json.loads(line))
        user, _, text = line.partition(" ")
        return await push(client, PublicKey.from_hex(user), text)
    except (ValueError, NodeError) as error:
        return f"cannot do that: {error}"


async def run(arguments: argparse.Namespace) -> None:
    """Register, and follow all lines."""
    key = PrivateKey(bytes.fromhex(arguments.key.read_text()))
    device = Device(token_type=TokenType.APN, device_token=arguments.device_token, apn_topic=arguments.apn_topic)

    def on_event(event: Event) -> None:
        if isinstance(event, Lost):  # the SDK registers again by itself: a dead token needs a new one, though
            print("a server lost this device; is its token still good?", file=sys.stderr)

    with SqliteFile(arguments.key.with_suffix(".db")) as file:
        async with (
            LightTransport(arguments.node) as transport,
            Client(key, transport, file.account("bot"), on_event=on_event) as client,
        ):
            client.enable_sending()
            client.enable_receiving(device, arguments.server)
            await client.wait_until_settled(PATIENCE)
            for enrolment in client.registration.enrolments:
                if enrolment.status is not Status.REGISTERED:
                    sys.exit(f"{enrolment.server} does not register this device: {enrolment.error or 'no answer'}")
            print("registered as", key.public_key, flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                if line.strip():
                    print(await follow(client, line.strip()), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", required=True, help="URL of the REST API of a Waku node that serves light clients")
    parser.add_argument("--server", required=True, action="append", type=PublicKey.from_hex, help="0x04…, repeatable")
    parser.add_argument("--key", required=True, type=Path, help="made by `wakupush client keygen FILE`")
    parser.add_argument("--device-token", required=True, help="of the device that gets pushes to the bot")
    parser.add_argument("--apn-topic", default="im.example.bot", help="the app's bundle id")
    asyncio.run(run(parser.parse_args()))
