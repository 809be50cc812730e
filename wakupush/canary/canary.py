"""Registers a device on each shard at each node, and asks for pushes to them at random times, as users do.

The devices are made up, and new with each start; the process itself is their gorush. A real device can take their
place.
"""

import asyncio
import secrets
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from random import expovariate
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
#: Seconds within which a push arrives, from the request.
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
    """A registered device, and the way by which its client reaches the server."""

    node: str
    shard: str
    client: Client
    device: Device

    @property
    def labels(self) -> tuple[str, str]:
        """Node and shard."""
        return self.node, self.shard


async def push(canary: Canary, arrivals: Arrivals | None) -> Outcome:
    """Ask for a push to a device of ours, and wait for it.

    Args:
        arrivals: None for a real device: nobody sees what it gets, so the server's answer is all.
    """
    if not any(enrolment.status is Status.REGISTERED for enrolment in canary.client.registration.enrolments):
        canary.client.try_again()
        return Outcome.REGISTRATION
    if arrivals is None:
        return await _ask(canary)
    begun = time.monotonic()
    with arrivals.awaited(canary.device.device_token) as arrival:
        outcome = await _ask(canary)
        if outcome is not Outcome.ARRIVED:
            return outcome
        try:
            async with asyncio.timeout(begun + ARRIVAL_SECONDS - time.monotonic()):
                await arrival.wait()
        except TimeoutError:
            return Outcome.POST
    metrics.CANARY_SECONDS.labels("push").observe(time.monotonic() - begun)
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


async def _open(settings: Settings, exits: AsyncExitStack, server: PublicKey) -> list[Canary]:
    """Open a client on each shard at each node, and begin to register its device."""
    canaries = []
    for url in settings.canary.nodes or settings.waku.url:
        for shard in settings.waku.shards:
            transport = await exits.enter_async_context(LightTransport(url, [shard]))
            storage = exits.enter_context(SqliteFile(":memory:")).account("canary")
            client = await exits.enter_async_context(Client(PrivateKey.generate(), transport, storage))
            device = _device(settings.canary)
            client.enable_sending()
            client.enable_receiving(device, [server])
            canaries.append(Canary(node=node_name(url), shard=shard, client=client, device=device))
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


async def _push_until(stop: asyncio.Event, settings: Settings, server: PublicKey, arrivals: Arrivals | None) -> None:
    async with AsyncExitStack() as exits:
        canaries = await _open(settings, exits, server)
        for canary in canaries:
            # The alert counts from here, if there never is one.
            metrics.CANARY_ARRIVED.labels(*canary.labels).set_to_current_time()
        counters.begin({metrics.CANARY_PUSHES: [(*each.labels, outcome) for each in canaries for outcome in Outcome]})
        await _settle(canaries)
        for canary in cycle(canaries):
            try:
                async with asyncio.timeout(expovariate(1 / MEAN_SECONDS)):
                    await stop.wait()
                break
            except TimeoutError:
                outcome = await push(canary, arrivals)
            metrics.CANARY_PUSHES.labels(*canary.labels, outcome).inc()
            if outcome is Outcome.ARRIVED:
                metrics.CANARY_ARRIVED.labels(*canary.labels).set_to_current_time()
            else:
                log.warning("canary_lost", node=canary.node, pubsub_topic=canary.shard, part=outcome.value)
        for canary in canaries:
            canary.client.disable_receiving()
            canary.client.try_again()
        await _settle(canaries)


async def _settle(canaries: Sequence[Canary]) -> None:
    """Wait until the server has answered all registrations, or has had its time; its rows then stay."""
    settled = await asyncio.gather(*(canary.client.wait_until_settled(SETTLE_SECONDS) for canary in canaries))
    for canary, is_settled in zip(canaries, settled, strict=True):
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

    http_server = HttpServer(settings.port_or(HTTP_PORT), "WAKUPUSH_HTTP_PORT", answer, settings.http_host)
    http_server.start()
    log.info("started", http_port=http_server.port)
    await _push_until(stop, settings, server, arrivals if settings.canary.device_token is None else None)
    log.info("stopped")
