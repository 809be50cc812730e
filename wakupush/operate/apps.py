"""The apps that an operator names, and giving the stored devices their apps after the settings have changed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from psycopg import Connection

from wakupush.model.platforms import AppPlatform, Platform
from wakupush.postgres import apps
from wakupush.protocol.at_rest import AtRest
from wakupush.runtime.settings import Settings
from wakupush.runtime.usage import UsageError
from wakupush.server.delivery.apps import app_of, app_platforms


def select(settings: Settings, app: str | None, platform: Platform | None) -> list[AppPlatform]:
    """Return the apps and platforms of the settings that an operator means; None stands for all.

    Raises:
        UsageError: there is no such app.
    """
    if app is not None and app not in settings.app_names:
        names = ", ".join(filter(None, settings.app_names))
        raise UsageError(f"there is no app {app!r}; " + (f"there are {names}" if names else "the settings have none"))
    return [one for one in app_platforms(settings) if app in {None, one.app} and platform in {None, one.platform}]


@dataclass(slots=True)
class AssignmentTotals:
    """The counts of a run, or of a dry run."""

    #: Devices whose row names another app now.
    changed: int = 0
    unchanged: int = 0
    #: Devices that no app of the settings takes, by platform and topic.
    without_app: Counter[tuple[str, str]] = field(default_factory=Counter)


def assign(
    connection: Connection, at_rest: AtRest, settings: Settings, *, dry: bool, progress: Callable[[int], None]
) -> AssignmentTotals:
    """Write into each registration's row which app takes its device; a run may be ended at any time and repeated.

    Args:
        connection: in autocommit mode.
        dry: whether nothing is to be written.
        progress: called with the number of devices that are done since the last call.
    """
    totals = AssignmentTotals()
    for page in apps.devices(connection, at_rest):
        assignments = []
        for device in page:
            app = app_of(device.target, settings)
            if app is None:
                totals.without_app[device.target.platform.label, device.target.apn_topic] += 1
            if (app or "") != device.app:
                assignments.append((device, app or ""))
        changed = len(assignments) if dry else apps.assign(connection, assignments)
        totals.changed += changed
        totals.unchanged += len(page) - changed
        progress(len(page))
    return totals
