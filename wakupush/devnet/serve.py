"""Run a development server as a process: ``python -m wakupush.devnet.serve waku|gorush --port N``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import uvicorn

from wakupush.devnet import gorush, waku_node, waku_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.applications import Starlette


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight then have one second to end.

    Args:
        arguments: of the command line, None takes the process's own.
    """
    options = _parser().parse_args(arguments)
    app: Starlette = options.app(options)
    uvicorn.run(
        app,
        host=options.host,
        port=options.port,
        loop="auto",  # uvloop where it is installed
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=1,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m wakupush.devnet.serve", description=__doc__)
    servers = parser.add_subparsers(required=True, metavar="waku|gorush")

    waku = servers.add_parser("waku", help="a Waku node with nwaku's REST interface")
    waku.set_defaults(app=_waku)
    defaults = waku_state.NodeSettings()
    waku.add_argument("--shard", action="append", default=[], help="a pubsub topic that needs no REST subscription")
    waku.add_argument("--cache-capacity", type=int, default=defaults.cache_capacity, help="unread messages")
    waku.add_argument(
        "--archive-window",
        type=_seconds_or_any,
        default=defaults.archive_window,
        help="seconds around now that the archive takes sender timestamps of, or 'any'",
    )

    gorush_ = servers.add_parser("gorush", help="a gorush with scripted deliveries")
    gorush_.set_defaults(app=_gorush)
    gorush_.add_argument("--async", action="store_true", dest="is_async", help="answer before delivery, without logs")
    gorush_.add_argument("--hide-token", action="store_true", help="mask tokens in logs, as gorush's default")
    gorush_.add_argument("--max-retry", type=int, default=0, help="repeat failed pushes so often, at once")

    for server in (waku, gorush_):
        server.add_argument("--host", default="127.0.0.1")
        server.add_argument("--port", type=int, required=True)
    return parser


def _seconds_or_any(text: str) -> float | None:
    return None if text == "any" else float(text)


def _waku(options: argparse.Namespace) -> Starlette:
    settings = waku_state.NodeSettings(
        shards=tuple(options.shard),
        cache_capacity=options.cache_capacity,
        archive_window=options.archive_window,
    )
    return waku_node.create_app(waku_state.WakuNode(settings))


def _gorush(options: argparse.Namespace) -> Starlette:
    settings = gorush.GorushSettings(
        sync=not options.is_async, max_retry=options.max_retry, hide_token=options.hide_token
    )
    return gorush.create_app(gorush.Gorush(settings))


if __name__ == "__main__":
    main()
