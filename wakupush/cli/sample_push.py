"""``wakupush test-push``: one notification straight through gorush."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from wakupush.cli.options import AsJson, NotificationKind, PlatformName, platform_of


def sample_push(
    *,
    device_token: Annotated[str, typer.Option(help="Of the device; the command stores and logs it nowhere.")],
    platform: Annotated[PlatformName, typer.Option(help="Of the device.")],
    topic: Annotated[str, typer.Option(help="Bundle id of the app; iOS needs it.")] = "",
    kind: Annotated[NotificationKind, typer.Option(help="Type of the notification.")] = NotificationKind.MESSAGE,
    as_json: AsJson = False,
) -> None:
    """Push one made-up notification to a device, past Waku and Postgres: are gorush and its credentials right?

    Exits with 1 if gorush did not take it.
    """
    from wakupush.cli.loading import load
    from wakupush.model.notifications import NotificationType
    from wakupush.operate.samples import push, target

    device = target(platform_of(platform), device_token, topic)
    notification_type = next(each for each in NotificationType if each.label == kind)
    result = push(load(process="test-push"), device, notification_type)
    label = None if result.failure is None else result.failure.label
    if as_json:
        facts = {"app": result.app, "failure": label, "seconds": round(result.seconds, 3), "advice": result.advice}
        typer.echo(json.dumps(facts))
    else:
        outcome = "gorush took it" if label is None else f"it failed: {label}"
        typer.echo(f"{outcome}, after {result.seconds:.2f} s; {result.advice}")
    raise typer.Exit(int(label is not None))
