"""Device tokens of each app and platform: how many are bad, how many died, and whether the brake holds."""

from dataclasses import dataclass

from psycopg import Connection

from wakupush.model.platforms import AppPlatform
from wakupush.postgres import dead_tokens, token_trials
from wakupush.postgres.dead_tokens import Deaths
from wakupush.postgres.token_trials import TokenShare
from wakupush.runtime.settings import TokenSettings
from wakupush.server.delivery import tokens


@dataclass(frozen=True, slots=True)
class TokenStatus:
    """The device tokens of an app and platform."""

    app_platform: AppPlatform
    #: Proven tokens that were tried within the last day, and within the last 20 minutes.
    day: TokenShare
    recent: TokenShare
    deaths: Deaths
    #: Whether the server marks none dead, as too many are bad.
    is_stopped: bool


def statuses(connection: Connection, settings: TokenSettings) -> list[TokenStatus]:
    """Return those of all apps and platforms of which a token was tried, or died, within the last day."""
    shares: dict[AppPlatform, list[TokenShare]] = {}
    for share in token_trials.shares(connection):
        shares.setdefault(share.app_platform, []).append(share)
    deaths = dead_tokens.count(connection)
    stopped = tokens.stopped(connection, settings)
    statuses = []
    for app_platform in sorted(shares.keys() | deaths.keys()):
        day, recent = shares.get(app_platform, 2 * [TokenShare(app_platform, 0, 0)])
        died = deaths.get(app_platform, Deaths(0, 0))
        statuses.append(TokenStatus(app_platform, day, recent, died, app_platform in stopped))
    return statuses
