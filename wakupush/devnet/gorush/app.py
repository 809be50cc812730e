"""A development gorush: the HTTP contract of gorush 1.22 with scripted deliveries instead of Apple and Google.

Serves POST /api/push (gorush.md section 2), /healthz, /metrics and /version, in sync mode with the local queue unless
options say otherwise. The outcome of a push is decided by its token, see `scripts`.

Tests and the demo may use the `controls` endpoints (``/dev/log``, ``/dev/counters``, ``/dev/faults``); a fault for
pushes alone has ``"path": "/api/push"``. An entry of ``/dev/log`` is one attempt to deliver one
push: ``{seq, at, post, platform, token, outcome, notification}`` with ``at`` in Unix seconds, ``post`` the number of
the request, ``outcome`` either ``delivered``, the error text, or ``refused`` for what gorush drops without a log
entry, and the notification exactly as it was handed over.
"""

from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wakupush.devnet.controls import AnswerHeader, Fault, FaultInjection, control_routes
from wakupush.devnet.gorush.gorush import METRICS, BadRequestError, ScriptedGorush, dump

VERSION = "1.22.0-devnet"


def create_app(gorush: ScriptedGorush | None = None) -> Starlette:
    """Return the app of a gorush; without one it gets a new one with default settings."""
    gorush = gorush or ScriptedGorush()
    faults: list[Fault] = []

    async def push(request: Request) -> Response:
        try:
            return _json(await gorush.push(await request.body()))
        except BadRequestError as error:
            return _json({"code": 400, "message": str(error)}, status=400)

    async def healthz(_: Request) -> Response:
        return Response()

    async def metrics(_: Request) -> Response:
        return Response(
            "".join(
                f"# HELP gorush_{name} {text}\n# TYPE gorush_{name} {kind}\ngorush_{name} {gorush.counters[name]}\n"
                for name, kind, text in sorted(METRICS)
            ),
            headers={"content-type": "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"},
        )

    async def version(_: Request) -> Response:
        return _json({"source": "https://github.com/appleboy/gorush", "version": VERSION})

    async def not_found(_: Request, __: Exception) -> Response:
        return Response("404 page not found", status_code=404, headers={"content-type": "text/plain"})

    app = Starlette(
        routes=[
            Route("/api/push", push, methods=["POST"]),
            Route("/healthz", healthz),
            Route("/metrics", metrics),
            Route("/version", version),
            *control_routes(faults, gorush.log, lambda: gorush.counters),
        ],
        middleware=[
            Middleware(AnswerHeader, name="x-gorush-version", value=VERSION),
            Middleware(FaultInjection, faults=faults),
        ],
        exception_handlers=dict.fromkeys((404, 405), not_found),
    )
    app.router.redirect_slashes = False
    return app


def _json(content: dict[str, Any], *, status: int = 200) -> Response:
    return Response(dump(content), status_code=status, media_type="application/json; charset=utf-8")
