"""The command line of the client: ``wakupush client``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import sqlite3
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from wakupush.cli.options import NotificationKind
from wakupush.cli.output import USAGE, Commands, complain
from wakupush.model.waku_message import PUBSUB_TOPIC
from wakupush.protocol.keys import InvalidKeyError, PrivateKey, PublicKey
from wakupush.runtime.urls import is_http, without_user
from wakupush.runtime.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from wakupush.client.client import Client
    from wakupush.client.drivers.transport import LightTransport, RelayTransport
    from wakupush.client.events import Event
    from wakupush.client.rules.acquaintances import Acquaintance
    from wakupush.client.rules.registering import Enrolment

_NODE = "http://127.0.0.1:8645"

app = typer.Typer(
    cls=Commands,
    help="Register, advertise, ask and send as a client of push notification servers.",
    no_args_is_help=True,
)


class Exit(IntEnum):
    """Exit codes; 2 is a wrong argument or file."""

    DONE = 0
    #: A server refused, a user cannot be notified, or nothing is registered that could be advertised.
    REFUSED = 1
    USAGE = USAGE
    #: No server answered in time, nothing is known of a user, or the servers could not be advertised.
    NO_ANSWER = 3
    #: The Waku node cannot be reached, or did not take a message.
    NODE = 4
    #: Ctrl-C before the end; the code that shells use for it.
    INTERRUPTED = 130


class Mode(StrEnum):
    """How the node is used."""

    LIGHT = "light"
    RELAY = "relay"


class TokenPlatform(StrEnum):
    """Whose device token it is."""

    APN = "apn"
    FIREBASE = "firebase"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    """The options of every command."""

    key: Path | None
    nodes: tuple[str, ...]
    mode: Mode
    shard: str
    state: Path | None
    anonymous: bool
    as_json: bool


def _note_json(context: typer.Context, value: bool) -> bool:
    if value:
        context.obj = replace(context.obj, as_json=True)
    return value


#: Of every command, though it also stands before the command.
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs.", callback=_note_json)]
Seconds = Annotated[float, typer.Option("--wait", help="Seconds to wait for answers.", min=0.1)]
Users = Annotated[list[str], typer.Argument(help="Public keys, 0x04… or compressed.", metavar="USER…")]


@app.callback()
def common(
    context: typer.Context,
    *,
    key: Annotated[
        Path | None, typer.Option(help="File with the chat key; `keygen` makes one.", envvar="WAKUPUSH_CLIENT_KEY")
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            help=f"REST API of a Waku node, by default {_NODE}; repeatable in light mode, which uses all at once.",
            show_default=False,
            envvar="WAKUPUSH_CLIENT_NODE",
        ),
    ] = None,
    mode: Annotated[
        Mode,
        typer.Option(
            help="light: filter and light push; relay: this must be its only reader.", envvar="WAKUPUSH_CLIENT_MODE"
        ),
    ] = Mode.LIGHT,
    shard: Annotated[
        str, typer.Option(help="Pubsub topic of the server.", envvar="WAKUPUSH_CLIENT_SHARD")
    ] = "/waku/2/rs/16/32",
    state: Annotated[
        Path | None, typer.Option(help="SQLite file; by default beside the key.", envvar="WAKUPUSH_CLIENT_STATE")
    ] = None,
    anonymous: Annotated[
        bool,
        typer.Option(
            "--anonymous",
            help="Register with a separate key; decided when a chat key is first used.",
            envvar="WAKUPUSH_CLIENT_ANONYMOUS",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON for programs instead of text for people.")] = False,
) -> None:
    """Register, advertise, ask and send as a client of push notification servers.

    Exit codes: 0 done; 1 a server refused, a user cannot be notified, or nothing is registered; 2 wrong argument or
    file; 3 no server answered in time, no way to notify a user is known, or the servers could not be advertised; 4 the
    node failed; 130 after Ctrl-C.
    """
    nodes = tuple(node or (_NODE,))
    if not all(map(is_http, nodes)):
        raise UsageError(f"--node is the URL of a REST API, for example {_NODE}")
    if mode is Mode.RELAY and len(nodes) > 1:
        raise UsageError("--mode relay reads one --node")
    if not PUBSUB_TOPIC.fullmatch(shard):
        raise UsageError("--shard is a pubsub topic, for example /waku/2/rs/16/32")
    context.obj = _Common(
        key=key, nodes=nodes, mode=mode, shard=shard, state=state, anonymous=anonymous, as_json=as_json
    )


@app.command()
def keygen(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Where the private key goes.")],
    *,
    _as_json: AsJson = False,
) -> None:
    """Make a chat key and print its public key."""
    from wakupush.runtime import keyfile

    key = PrivateKey.generate()
    keyfile.write(file, key.secret)
    if context.obj.as_json:
        _show(context.obj, [{"public_key": str(key.public_key)}])
    else:
        typer.echo(str(key.public_key))


@app.command()
def whoami(context: typer.Context, *, _as_json: AsJson = False) -> None:
    """Show the user's public key, the registered public key, and the installation id."""

    async def work(session: _Session) -> Exit:
        client = session.client
        keys = {"public_key": client.account.key.public_key, "push_key": client.push_key}
        names = {name: str(key) for name, key in keys.items()}
        _show(context.obj, [{**names, "installation_id": client.account.installation_id}])
        return Exit.DONE

    _run(context.obj, work, offline=True)


@app.command()
def register(
    context: typer.Context,
    *,
    server: Annotated[
        list[str], typer.Option(help="Public key of a server; repeatable.", envvar="WAKUPUSH_CLIENT_SERVER")
    ],
    device_token: Annotated[str, typer.Option(help="Device token from Apple or Google.")],
    platform: Annotated[TokenPlatform, typer.Option(help="Whose token it is.")] = TokenPlatform.FIREBASE,
    apn_topic: Annotated[str, typer.Option(help="Bundle id of the app; for apn.")] = "",
    contacts_only: Annotated[
        bool | None, typer.Option("--contacts-only/--anybody", help="Who may notify; anybody by default.")
    ] = None,
    contact: Annotated[list[str] | None, typer.Option(help="Public key of a contact; repeatable.")] = None,
    block_chat: Annotated[list[str] | None, typer.Option(help="Chat id; repeatable.")] = None,
    block_user: Annotated[list[str] | None, typer.Option(help="Public key; repeatable.")] = None,
    mute_chat: Annotated[list[str] | None, typer.Option(help="Chat id; repeatable.")] = None,
    mention_chat: Annotated[
        list[str] | None, typer.Option(help="Id of a chat whose mentions notify; repeatable.")
    ] = None,
    block_mentions: Annotated[
        bool | None, typer.Option("--block-mentions/--allow-mentions", help="Whether mentions notify at all.")
    ] = None,
    wait: Seconds = 15.0,
    _as_json: AsJson = False,
) -> None:
    """Register with exactly these servers, wait for their answers, and advertise.

    Without options about who may notify, and of what, these stay as they are; one such option replaces all of them.
    """
    from wakupush.client.rules.registering import Device, Options
    from wakupush.model.platforms import TokenType

    servers = _keys(server, "--server")
    flags, lists = (contacts_only, block_mentions), (contact, block_chat, block_user, mute_chat, mention_chat)
    is_given = any(flag is not None for flag in flags) or any(lists)
    options = Options(
        contacts_only=bool(contacts_only),
        contacts=_keys(contact or (), "--contact"),
        blocked_chats=tuple(block_chat or ()),
        blocked_users=_keys(block_user or (), "--block-user"),
        muted_chats=tuple(mute_chat or ()),
        mention_chats=tuple(mention_chat or ()),
        block_mentions=bool(block_mentions),
    )
    token_type = {TokenPlatform.APN: TokenType.APN, TokenPlatform.FIREBASE: TokenType.FIREBASE}[platform]
    try:
        device = Device(token_type=token_type, device_token=device_token, apn_topic=apn_topic)
    except ValueError as error:
        raise UsageError(str(error)) from None

    async def work(session: _Session) -> Exit:
        session.client.enable_receiving(device, servers, options if is_given else None)
        session.client.try_again()
        return await _settle(session, wait, servers)

    _run(context.obj, work)


@app.command()
def status(context: typer.Context, *, _as_json: AsJson = False) -> None:
    """Show the state of the registration at each server, without asking the servers."""

    async def work(session: _Session) -> Exit:
        enrolments = session.client.registration.enrolments
        _show(context.obj, [_enrolment(enrolment) for enrolment in enrolments])
        if not enrolments:
            complain("nothing is registered")
        return Exit.DONE

    _run(context.obj, work, offline=True)


@app.command()
def unregister(context: typer.Context, *, wait: Seconds = 15.0, _as_json: AsJson = False) -> None:
    """Unregister everywhere, as on logout."""

    async def work(session: _Session) -> Exit:
        if not session.client.registration.enrolments:
            complain("nothing was registered")
        session.client.disable_receiving()
        session.client.try_again()
        return await _settle(session, wait)

    _run(context.obj, work)


@app.command()
def advertise(context: typer.Context, *, wait: Seconds = 15.0, _as_json: AsJson = False) -> None:
    """Advertise the servers on the contact code topic."""

    async def work(session: _Session) -> Exit:
        if not any(enrolment.status == "registered" for enrolment in session.client.registration.enrolments):
            complain("nothing is registered")
            return Exit.REFUSED
        session.client.advertise()
        if not await session.client.wait_until_advertised(wait):
            complain("it could not be advertised in time")
            return Exit.NO_ANSWER
        _show(context.obj, [{"advertised": session.infos}])
        return Exit.DONE

    _run(context.obj, work)


@app.command()
def discover(
    context: typer.Context,
    user: Annotated[str, typer.Argument(help="Public key.")],
    *,
    wait: Seconds = 15.0,
    _as_json: AsJson = False,
) -> None:
    """Listen to a user's contact code topic until the user advertises a way to notify."""
    [key] = _keys([user])

    async def work(session: _Session) -> Exit:
        ways = _ways([await session.client.discover(key, wait)])
        _show(context.obj, ways)
        if ways:
            return Exit.DONE
        complain(f"{key} has advertised no way that we may use")
        return Exit.NO_ANSWER

    _run(context.obj, work)


@app.command()
def query(context: typer.Context, users: Users, *, wait: Seconds = 4.0, _as_json: AsJson = False) -> None:
    """Ask servers how to notify users, each query under its own key."""
    keys = _keys(users)

    async def work(session: _Session) -> Exit:
        session.client.enable_sending()
        start = time.time()
        acquaintances = await session.client.query(keys, force=True, seconds=wait)
        ways = _ways(acquaintances, since=start)
        _show(context.obj, ways)
        reachable = {way["user"] for way in ways}
        unknown = [str(acquaintance.user) for acquaintance in acquaintances if str(acquaintance.user) not in reachable]
        if not unknown:
            return Exit.DONE
        complain(f"no server knows a device of {', '.join(unknown)}")
        return Exit.NO_ANSWER

    _run(context.obj, work)


@app.command()
def send(
    context: typer.Context,
    *,
    users: Users,
    chat: Annotated[str, typer.Option(help="Id of the chat; it is sent as a hash.")],
    kind: Annotated[NotificationKind, typer.Option(help="What the notification is about.")] = NotificationKind.MESSAGE,
    text: Annotated[str, typer.Option(help="Text that goes with the push, encrypted to the user.")] = "",
    message_id: Annotated[str, typer.Option(help="64 hex digits; random by default.")] = "",
    _as_json: AsJson = False,
) -> None:
    """Ask for a push to the devices of users, each request under its own key."""
    from wakupush.client.drivers.notifying import Recipient
    from wakupush.client.rules.receiving import seal_message
    from wakupush.model.notifications import NotificationType

    keys = _keys(users)
    kinds = {each.label: each for each in NotificationType}
    try:
        message = bytes.fromhex(message_id) or secrets.token_bytes(32)
    except ValueError:
        message = b""
    if len(message) != 32:  # noqa: PLR2004 - Keccak-256
        raise UsageError("a message id has 64 hex digits")

    async def work(session: _Session) -> Exit:
        from wakupush.client.rules.sending import Result

        sender = session.client.account.key
        recipients = [
            Recipient(user=user, message=seal_message(sender, user, 0, text.encode())[0] if text else b"")
            for user in keys
        ]
        session.client.enable_sending()
        targets = await session.client.notify(
            recipients, message_id=message, chat_id=chat, kind=kinds[kind], force=True
        )
        _show(
            context.obj,
            [
                {"user": str(target.user), "installation_id": target.installation_id, "result": target.result.value}
                for target in targets
            ],
        )
        users = {target.user for target in targets}
        unknown = [user for user in keys if session.client.acquaintance(user).user not in users]
        if unknown:
            if session.unsent is not None:
                return Exit.NO_ANSWER
            complain(f"no server knows a device of {', '.join(map(str, unknown))}")
            return Exit.REFUSED
        results = {target.result for target in targets}
        if results == {Result.ACCEPTED}:
            return Exit.DONE
        return Exit.NO_ANSWER if results <= {Result.ACCEPTED, Result.FAILED} else Exit.REFUSED

    _run(context.obj, work)


@app.command("test-push")
def push_to_self(context: typer.Context, *, _as_json: AsJson = False) -> None:
    """Ask for a push to this user's own device, the whole way, and say which part does not answer.

    Register first. The exit codes are those of `send`.
    """

    async def work(session: _Session) -> Exit:
        from wakupush.client.rules.sending import Result

        servers = session.client.registration.enrolments
        if not any(enrolment.status == "registered" for enrolment in servers):
            complain("this device is not registered: `wakupush client register` says what the server answers")
            return Exit.REFUSED
        session.client.enable_sending()
        own = await session.client.notify_self()
        facts = {
            "query_seconds": own.query_seconds,
            "request_seconds": own.request_seconds,
            "result": own.result and own.result.value,
        }
        rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in facts.items()}
        _show(context.obj, [rounded])
        if own.result is Result.ACCEPTED:
            return Exit.DONE
        if own.result is None:
            complain("no server said how to notify this device: it registers contacts only, or the query was lost")
            return Exit.NO_ANSWER
        complain("the server knows the device, and did not take the push: `wakupush status` tells its operator more")
        return Exit.NO_ANSWER if own.result is Result.FAILED else Exit.REFUSED

    _run(context.obj, work)


@app.command()
def listen(
    context: typer.Context,
    users: Annotated[list[str] | None, typer.Argument(help="Users to follow.", metavar="[USER…]")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds.", min=0.1)] = None,
    *,
    _as_json: AsJson = False,
) -> None:
    """Stay registered and advertised, follow users, and print events, until Ctrl-C."""
    keys = _keys(users or ())

    async def work(session: _Session) -> Exit:
        from wakupush.waku.async_rest import AsyncRest

        async with AsyncRest(context.obj.nodes[0]) as rest:
            await rest.send("GET", "/health")  # otherwise a missing node would go unnoticed
        events: asyncio.Queue[Event] = asyncio.Queue()
        session.on_event = events.put_nowait
        for key in keys:
            await session.client.follow(key)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    _show_event(context.obj, await events.get())
        return Exit.DONE

    _run(context.obj, work, on_interrupt=Exit.DONE, log_level="warning")


class _Session:
    """A client that runs as long as a command."""

    def __init__(self, common: _Common) -> None:
        self.common = common
        self.client: Client
        self.on_event: Callable[[Event], None] = lambda _: None
        #: Entries of the last advertisement, and the last error of something that could not be sent.
        self.infos = 0
        self.unsent: str | None = None

    def note(self, event: Event) -> None:
        """Note what an event says about advertising, and hand the event on."""
        from wakupush.client.events import Advertised, Unsent

        match event:
            case Advertised(infos):
                self.infos = infos
            case Unsent(error):
                self.unsent = error
        self.on_event(event)


async def _settle(session: _Session, seconds: float, servers: Collection[PublicKey] | None = None) -> Exit:
    """Wait for the answers of these servers, or all, and for the advertisement; show the state at each server."""
    from wakupush.client.rules.registering import Status

    is_settled = await session.client.wait_until_settled(seconds, servers)
    is_advertised = await session.client.wait_until_advertised(seconds)
    enrolments = session.client.registration.enrolments
    _show(session.common, [_enrolment(enrolment) for enrolment in enrolments])
    for enrolment in enrolments:
        if not enrolment.wanted and enrolment.status is not Status.UNREGISTERED:
            complain(f"{enrolment.server} has not said yet that nothing is registered there; later commands ask again")
    if any(
        enrolment.status is Status.REFUSED for enrolment in enrolments if servers is None or enrolment.server in servers
    ):
        return Exit.REFUSED
    if not is_advertised:
        complain("it could not be advertised in time")
    return Exit.DONE if is_settled and is_advertised else Exit.NO_ANSWER


def _run(
    common: _Common,
    work: Callable[[_Session], Awaitable[Exit]],
    *,
    offline: bool = False,
    on_interrupt: Exit = Exit.INTERRUPTED,
    log_level: str = "error",
) -> NoReturn:
    from wakupush.client.documents import UnreadableError
    from wakupush.client.drivers.storage import InUseError
    from wakupush.runtime import keyfile
    from wakupush.waku.errors import NodeError

    # To standard error.
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(message)s", force=True)
    if common.key is None:
        raise UsageError("--key FILE names the user's chat key; `wakupush client keygen FILE` makes one")
    try:
        key = keyfile.read(common.key, PrivateKey.from_hex)
        code = asyncio.run(_with_client(common, key, work, offline=offline))
    except BrokenPipeError:
        raise  # the reader of our output has gone: typer ends silently
    except OSError as error:
        # An error of standard output has no file name.
        text = f"the state cannot be used: {error}" if error.filename else f"nothing can be printed: {error.strerror}"
        raise UsageError(text) from None
    except (sqlite3.Error, InUseError, UnreadableError) as error:
        raise UsageError(f"the state {_state_of(common)} cannot be used: {error}") from None
    except NodeError as error:
        code = _blame_node(common, str(error))
    except KeyboardInterrupt:
        code = on_interrupt
    sys.exit(code)


async def _with_client(
    common: _Common, key: PrivateKey, work: Callable[[_Session], Awaitable[Exit]], *, offline: bool
) -> Exit:
    from wakupush.client.client import Client
    from wakupush.client.config import Config
    from wakupush.client.drivers.history import History
    from wakupush.client.drivers.storage import SqliteFile

    session = _Session(common)
    async with AsyncExitStack() as exits:
        file = exits.enter_context(SqliteFile(_state_of(common)))
        transport = _transport(common)
        try:
            session.client = Client(
                key,
                transport,
                file.account(str(key.public_key)),
                Config(anonymous=common.anonymous),
                history=History(common.nodes[0], common.shard),
                on_event=session.note,
            )
        except ValueError as error:
            raise UsageError(f"{error}; use another --state or key to start anew") from None
        if not offline:
            await exits.enter_async_context(transport)
            await exits.enter_async_context(session.client)
        code = await work(session)
    if code is Exit.NO_ANSWER and session.unsent is not None:
        return _blame_node(common, session.unsent)
    return code


def _blame_node(common: _Common, error: str) -> Exit:
    nodes = ", ".join(map(without_user, common.nodes))
    complain(f"the node at {nodes} did not do its part: {error}; see --node")
    return Exit.NODE


def _state_of(common: _Common) -> Path:
    return common.state or Path(f"{common.key}.state")


def _transport(common: _Common) -> RelayTransport | LightTransport:
    from wakupush.client.drivers.transport import LightTransport, RelayTransport

    first, *others = common.nodes
    if common.mode is Mode.RELAY:
        return RelayTransport(first, [common.shard])
    return LightTransport(first, [common.shard], others=others)


def _enrolment(enrolment: Enrolment) -> dict[str, Any]:
    return {
        "server": str(enrolment.server),
        "status": enrolment.status.value,
        "version": enrolment.version,
        "error": None if enrolment.error is None else enrolment.error.name,
    }


def _ways(acquaintances: Sequence[Acquaintance], since: float = 0.0) -> list[dict[str, Any]]:
    """Return the ways to notify users that were learned since a time and may be used, without the tokens."""
    now = time.time()
    return [
        {
            "user": str(acquaintance.user),
            "installation_id": way.installation_id,
            "server": str(way.server),
            "version": way.version,
        }
        for acquaintance in acquaintances
        for way in acquaintance.usable(now)
        if way.learned_at >= since
    ]


def _show_event(common: _Common, event: Event) -> None:
    from wakupush.client.events import Advertised, Enrolled, Learned, Lost, Unsent

    rows: list[dict[str, Any]]
    match event:
        case Enrolled(enrolment):
            rows = [{"event": "enrolled", **_enrolment(enrolment)}]
        case Lost(enrolment):
            rows = [{"event": "lost", **_enrolment(enrolment)}]
        case Advertised(infos):
            rows = [{"event": "advertised", "infos": infos}]
        case Learned(acquaintance):
            rows = [{"event": "learned", **way} for way in _ways([acquaintance])]
        case Unsent(error):
            rows = [{"event": "unsent", "error": error}]
    for row in rows:
        text = json.dumps(row) if common.as_json else "  ".join(f"{name} {_text(value)}" for name, value in row.items())
        print(text, flush=True)  # noqa: T201 - what the command is for


def _show(common: _Common, rows: Sequence[Mapping[str, Any]]) -> None:
    if common.as_json:
        typer.echo(json.dumps(rows))
        return
    # One below the other: keys are long, and half of one is of no use.
    for row in rows:
        width = max(map(len, row))
        for name, value in row.items():
            typer.echo(f"{name:<{width}}  {_text(value)}")


def _text(value: object) -> str:
    """Return a value as text that is safe to print: what strangers wrote must not control the terminal."""
    from wakupush.waku.rest import printable

    return "none" if value is None else printable(str(value))


def _keys(texts: Sequence[str], option: str = "USER") -> tuple[PublicKey, ...]:
    return tuple(_key(text, option) for text in texts)


def _key(text: str, option: str) -> PublicKey:
    try:
        return PublicKey.from_hex(text)
    except InvalidKeyError as error:
        raise UsageError(f"{option} {_text(text[:8])}…: {error}") from None
