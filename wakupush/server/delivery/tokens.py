"""Device tokens: which are dead, and when too many are said to be for that to be believed."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

import structlog

from wakupush.model.failures import Failure, Token
from wakupush.postgres import registrations, token_trials

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from psycopg import Connection

    from wakupush.model.deliveries import Settlement
    from wakupush.model.platforms import Platform
    from wakupush.runtime.settings import TokenSettings

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Suspicions of the same version within so many seconds that make its token dead.
SUSPICIONS: Final = 3
SUSPICION_SECONDS: Final = 86_400.0

_by_installation = attrgetter("delivery.installation")


def doubted(connection: Connection, settings: TokenSettings, failures: Iterable[Failure | None]) -> frozenset[Platform]:
    """Return the platforms on which no token is marked, as far as any of these failures asks for it."""
    if any(failure is not None and failure.token is not Token.UNTOUCHED for failure in failures):
        return stopped(connection, settings)
    return frozenset()


def stopped(connection: Connection, settings: TokenSettings) -> frozenset[Platform]:
    """Return the platforms on which more tokens are bad than can be believed, lately or over the whole window."""
    return frozenset(
        share.platform
        for share in token_trials.shares(connection)
        if share.tried >= settings.brake_minimum and share.bad > settings.brake_share * share.tried
    )


def believed(failure: Failure | None, platform: Platform, doubted: Collection[Platform]) -> Failure | None:
    """Return the failure as a sender is told it: NOT_REGISTERED only where the token is marked, too."""
    if failure is not None and failure.token is Token.DEAD and platform in doubted:
        return Failure.TOKEN_DOUBTED
    return failure


def learn(
    connection: Connection,
    settled: Iterable[Settlement],
    doubted: Collection[Platform],
    *,
    tried: bool = True,
    certain: bool = False,
) -> list[Settlement]:
    """Mark tokens dead or suspected, and proven those that work; count those that ever did.

    Only the version that was tried is marked. A token that no push ever reached may be made up: it dies for itself, and
    says nothing about its platform.

    Args:
        connection: in the transaction of the settlements; this is its last work but for the events.
        settled: what attempts came to.
        doubted: platforms on which nothing is marked.
        tried: False if the attempts were counted before, as successes.
        certain: whether a success is one for certain.

    Returns:
        Those whose token died of it.
    """
    verdicts = sorted(
        (each for each in settled if each.version is not None and (each.failure is None or _is_bad(each))),
        key=_by_installation,
    )
    died = [
        each for each in verdicts if _is_bad(each) and each.delivery.platform not in doubted and _dies(connection, each)
    ]
    reached = [each for each in verdicts if certain and each.failure is None]
    registrations.prove(
        connection,
        [
            (each.delivery.installation, each.version)
            for each in reached
            if each.version is not None and (each.suspected or not each.proven)
        ],
    )
    telling = [each for each in verdicts if each.proven or each in reached]
    token_trials.count(connection, [(each.delivery.platform, tried, _is_bad(each)) for each in telling])
    return died


def _is_bad(settlement: Settlement) -> bool:
    failure = settlement.failure
    return failure is Failure.TOKEN_DOUBTED or (failure is not None and failure.token is not Token.UNTOUCHED)


def _dies(connection: Connection, settlement: Settlement) -> bool:
    """Mark the token, or suspect it; say whether it died of it."""
    installation, version, failure = settlement.delivery.installation, settlement.version, settlement.failure
    if version is None or failure is None:
        return False
    if failure.token is Token.SUSPECT:
        count = registrations.suspect(connection, installation, version, seconds=SUSPICION_SECONDS)
        if count < SUSPICIONS:
            return False
    return registrations.token_died(connection, installation, version)
