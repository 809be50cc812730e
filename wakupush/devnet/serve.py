"""Run a development server as a process: ``python -m wakupush.devnet.serve waku|gorush --port N``."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar

import uvicorn
from starlette.applications import Starlette

from wakupush.devnet.gorush.app import create_app as create_gorush
from wakupush.devnet.gorush.gorush import GorushOptions, ScriptedGorush
from wakupush.devnet.node import go_waku, nwaku
from wakupush.devnet.node.go_waku_state import GoWakuNode
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings

T = TypeVar("T", NodeSettings, GorushOptions)

#: By name: the default settings of a Waku node, and the function that makes an app of settings.
_MANNERS: dict[str, tuple[NodeSettings, Callable[[NodeSettings], Starlette]]] = {
    "nwaku": (DevelopmentNode.DEFAULTS, lambda settings: nwaku.create_app(DevelopmentNode(settings))),
    "go-waku": (GoWakuNode.DEFAULTS, lambda settings: go_waku.create_app(GoWakuNode(settings))),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight then have one second to end."""
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

    waku = servers.add_parser(
        "waku",
        help="a Waku node; options that are not given are as in the implementation",
        argument_default=argparse.SUPPRESS,
    )
    waku.set_defaults(app=_waku, manners="nwaku")
    waku.add_argument("--manners", choices=_MANNERS, help="whose REST interface and behaviour it has")
    waku.add_argument(
        "--shard", action="append", dest="shards", help="a pubsub topic that the node joins by itself; repeatable"
    )
    waku.add_argument("--cache-capacity", type=int, help="unread messages: nwaku's in all, go-waku's of each queue")
    waku.add_argument(
        "--archive-window",
        type=_seconds_or_any,
        help="seconds by which sender timestamps in the archive may differ from now, or 'any'",
    )
    waku.add_argument(
        "--peer", action="append", dest="peers", help="URL of a node that it hands everything to; repeatable"
    )
    waku.add_argument("--archive-file", type=Path, help="SQLite database that keeps the archive over a restart")

    gorush_ = servers.add_parser("gorush", help="a gorush with scripted deliveries", argument_default=argparse.SUPPRESS)
    gorush_.set_defaults(app=_gorush)
    gorush_.add_argument("--async", action="store_false", dest="sync", help="answer before delivery, without logs")
    gorush_.add_argument("--hide-token", action="store_true", help="mask tokens in logs, as gorush's default")
    gorush_.add_argument("--max-retry", type=int, help="how often failed pushes are repeated, at once")
    gorush_.add_argument("--feedback-url", help="call this webhook for each failure")
    gorush_.add_argument(
        "--feedback-header", action="append", dest="feedback_headers", help="'Name: value' to call it with; repeatable"
    )

    for server in (waku, gorush_):
        server.add_argument("--host", default="127.0.0.1")
        server.add_argument("--port", type=int, required=True)
        server.add_argument("--log-file", type=Path, default=None, help="keeps /dev/log over a restart")
    return parser


def _seconds_or_any(text: str) -> float | None:
    return None if text == "any" else float(text)


def _waku(options: argparse.Namespace) -> Starlette:
    defaults, create_app = _MANNERS[options.manners]
    return create_app(_with_options(defaults, options))


def _gorush(options: argparse.Namespace) -> Starlette:
    return create_gorush(ScriptedGorush(_with_options(GorushOptions(), options)))


def _with_options(defaults: T, options: argparse.Namespace) -> T:
    names = {field.name for field in fields(defaults)}
    return replace(defaults, **{name: value for name, value in vars(options).items() if name in names})


if __name__ == "__main__":
    main()
