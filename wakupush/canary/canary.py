"""Registers a device on each shard at each node, and asks for pushes to them at random times, as users do.

The devices are made up, and new with each start; the process itself is their gorush. A real device can take their
place.
"""

import asyncio
import secrets
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, product
from random import uniform
from typing import Final

import structlog

from wakupush.canary.arrivals import Arrivals
from wakupush.client import (
    Client,
    Device,
    LightTransport,
    NodeError,
    PrivateKey,
    PublicKey,
    Result,
    SqliteFile,
    Status,
    TokenType,
)
from wakupush.runtime import counters, metrics, probes
from wakupush.runtime.http_server import Answer, HttpServer, Request
from wakupush.runtime.settings import CANARY_TOPIC, CanarySettings, Settings, SettingsError
from wakupush.runtime.urls import node_name
from wakupush.server.engine.identity import load_public_keys

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

HTTP_PORT: Final = 9104
#: Mean seconds between two pushes, over all devices. Nobody can guess when the next one comes.
MEAN_SECONDS: Final = 60.0
#: Seconds within which a push arrives after the server accepted it.
ARRIVAL_SECONDS: Final = 30.0
#: Seconds for registering at the start, and for unregistering at the end.
SETTLE_SECONDS: Final = 30.0


class Outcome(StrEnum):
    """What became of a push, and else the first part of its way that failed."""

    ARRIVED = "arrived"
    #: The node took nothing.
    NODE = "node"
    #: No answer to the registration, or a refusal.
    REGISTRATION = "registration"
    QUERY = "query"
    #: No answer to the request, or an error.
    REQUEST = "request"
    #: The server accepted the request, and posted nothing.
    POST = "post"


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """A device of ours, and the way by which its client reaches the server."""

    node: str
    shard: str
    client: Client
    #: Is set when a push arrives; None for a real device, whose pushes nobody sees.
    arrival: asyncio.Event | None


async def push(canary: Canary) -> Outcome:
    """Ask for a push to a device of ours, and wait for it. For a real device the server's answer is all."""
    if not any(enrolment.status is Status.REGISTERED for enrolment in canary.client.registration.enrolments):
        canary.client.try_again()
        return Outcome.REGISTRATION
    if canary.arrival is not None:
        canary.arrival.clear()
    start = time.monotonic()
    outcome = await _ask(canary)
    if outcome is not Outcome.ARRIVED or canary.arrival is None:
        return outcome
    try:
        async with asyncio.timeout(ARRIVAL_SECONDS):
            await canary.arrival.wait()
    except TimeoutError:
        return Outcome.POST
    metrics.CANARY_SECONDS.labels("push").observe(time.monotonic() - start)
    return Outcome.ARRIVED


async def _ask(canary: Canary) -> Outcome:
    """Query the device, and request a push; what the server accepts counts as arrived."""
    try:
        own = await canary.client.notify_self()
    except NodeError:
        return Outcome.NODE
    if own.query_seconds is None:
        return Outcome.QUERY
    metrics.CANARY_SECONDS.labels("query").observe(own.query_seconds)
    if own.result is not Result.ACCEPTED or own.request_seconds is None:
        return Outcome.REQUEST
    metrics.CANARY_SECONDS.labels("request").observe(own.request_seconds)
    return Outcome.ARRIVED


def of_canary(settings: Settings) -> counters.Series:
    """Return the series of `wakupush canary`."""
    nodes = map(node_name, settings.canary.nodes or settings.waku.url)
    return {metrics.CANARY_PUSHES: product(nodes, settings.waku.shards, Outcome)}


async def _open(settings: Settings, server: PublicKey, arrivals: Arrivals, exits: AsyncExitStack) -> list[Canary]:
    """Open a client on each shard at each node, and begin to register its device."""
    canaries = []
    for url in settings.canary.nodes or settings.waku.url:
        for shard in settings.waku.shards:
            transport = await exits.enter_async_context(LightTransport(url, [shard]))
            storage = exits.enter_context(SqliteFile(":memory:")).account("canary")
            client = await exits.enter_async_context(Client(PrivateKey.generate(), transport, storage))
            device = _device(settings.canary)
            is_real = settings.canary.device_token is not None
            arrival = None if is_real else exits.enter_context(arrivals.accepting(device.device_token))
            client.enable_sending()
            client.enable_receiving(device, [server])
            canaries.append(Canary(node=node_name(url), shard=shard, client=client, arrival=arrival))
    return canaries


def _device(settings: CanarySettings) -> Device:
    if settings.device_token is None:
        return Device(token_type=TokenType.APN, device_token=secrets.token_hex(32), apn_topic=CANARY_TOPIC)
    token_type = TokenType.APN if settings.apn_topic else TokenType.FIREBASE
    return Device(
        token_type=token_type,
        device_token=settings.device_token.get_secret_value(),
        apn_topic=settings.apn_topic or "",
    )


async def _push_in_turn(canaries: Sequence[Canary]) -> None:
    """Push to each device in turn, for ever."""
    await _settle(canaries)
    for canary in cycle(canaries):
        await asyncio.sleep(uniform(0, 2 * MEAN_SECONDS))
        outcome = await push(canary)
        metrics.CANARY_PUSHES.labels(canary.node, canary.shard, outcome).inc()
        if outcome is not Outcome.ARRIVED:
            log.warning("canary_lost", node=canary.node, pubsub_topic=canary.shard, part=outcome.value)


async def _push_until(stop: asyncio.Event, settings: Settings, server: PublicKey, arrivals: Arrivals) -> None:
    async with AsyncExitStack() as exits:
        canaries = await _open(settings, server, arrivals, exits)
        pushes, end = asyncio.create_task(_push_in_turn(canaries)), asyncio.create_task(stop.wait())
        await asyncio.wait((pushes, end), return_when=asyncio.FIRST_COMPLETED)
        for task in (pushes, end):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await pushes
        for canary in canaries:
            canary.client.disable_receiving()
            canary.client.try_again()
        await _settle(canaries)


async def _settle(canaries: Sequence[Canary]) -> None:
    """Wait until the server has answered all registrations, or has had its time for it; then its rows stay."""
    results = await asyncio.gather(*(canary.client.wait_until_settled(SETTLE_SECONDS) for canary in canaries))
    for canary, is_settled in zip(canaries, results, strict=True):
        if not is_settled:
            log.warning("canary_not_settled", node=canary.node, pubsub_topic=canary.shard)


def run(settings: Settings) -> None:
    """Push until SIGTERM; then unregister.

    Raises:
        SettingsError: it is not said which server to test or where its pushes go, or a port is not free.
    """
    server, *_ = load_public_keys(settings)
    if settings.canary.device_token is None and settings.canary.gorush_url is None:
        raise SettingsError(
            "WAKUPUSH_CANARY__GORUSH_URL is not set: give this process and the workers its own URL,"
            " or WAKUPUSH_CANARY__DEVICE_TOKEN of a real device"
        )
    asyncio.run(_run(settings, server))


async def _run(settings: Settings, server: PublicKey) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    arrivals = Arrivals(loop)
    own = probes.Probes(healthy=dict, ready=dict)

    def answer(request: Request) -> Answer:
        return arrivals.answer(request) if request.path == "/api/push" else own.answer(request)

    http_port = settings.port_or(HTTP_PORT)
    if http_port < 0:
        raise SettingsError("WAKUPUSH_HTTP_PORT: a port is expected, for metrics and for the pushes to our devices")
    http_server = HttpServer(http_port, "WAKUPUSH_HTTP_PORT", answer, settings.http_host)
    http_server.start()
    counters.begin(of_canary(settings))
    log.info("started", http_port=http_server.port)
    await _push_until(stop, settings, server, arrivals)
    log.info("stopped")
