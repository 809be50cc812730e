"""Device tokens: which are dead, and when too many are reported dead to be believed."""

from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Final

import structlog
from psycopg import Connection

from wakupush.model.deliveries import Settlement
from wakupush.model.failures import Failure, Token
from wakupush.model.platforms import AppPlatform
from wakupush.model.registrations import Installation
from wakupush.postgres import registrations, token_trials
from wakupush.runtime.settings import TokenSettings
from wakupush.server.delivery.posting import Posting

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: A token is dead after this many suspicions of the same version within this many seconds.
SUSPICIONS: Final = 3
SUSPICION_SECONDS: Final = 86_400.0
#: Tokens of an app and platform that must have been tried before the share of bad ones counts: of few, many may be bad
#: by chance.
BRAKE_MINIMUM: Final = 50

#: A device, and the version of its registration that holds the token.
_Token = tuple[Installation, int]


def doubted(
    connection: Connection, settings: TokenSettings, failures: Iterable[Failure | None]
) -> frozenset[AppPlatform]:
    """Return the apps and platforms whose tokens must not be marked; none if no failure is about a token."""
    if any(failure is not None and failure.token is not Token.UNTOUCHED for failure in failures):
        return stopped(connection, settings)
    return frozenset()


def stopped(connection: Connection, settings: TokenSettings) -> frozenset[AppPlatform]:
    """Return the apps and platforms with more bad tokens than can be believed, lately or over the whole window."""
    return frozenset(
        share.app_platform
        for share in token_trials.shares(connection)
        if share.tried >= BRAKE_MINIMUM and share.bad > settings.brake_share * share.tried
    )


def believed(failure: Failure | None, app_platform: AppPlatform, doubted: Collection[AppPlatform]) -> Failure | None:
    """Return the failure as it is reported to the sender: NOT_REGISTERED only if the token is marked, too."""
    if failure is not None and failure.token is Token.DEAD and app_platform in doubted:
        return Failure.TOKEN_DOUBTED
    return failure


def learn(
    connection: Connection,
    settlements: Iterable[Settlement],
    doubted: Collection[AppPlatform],
    *,
    first_count: bool = True,
    certain: bool = False,
) -> list[Settlement]:
    """Mark tokens dead or suspected, and working ones proven; count the tokens that ever worked.

    Only the version that was tried is marked. A token that no push ever reached may be made up: it can die, but says
    nothing about its app and platform.

    Args:
        connection: in the transaction of the settlements; only the events are written after this.
        doubted: apps and platforms of which nothing is marked.
        first_count: False if the attempts were counted before, as successes.
        certain: whether a success is certain.

    Returns:
        The settlements whose token died by this.
    """
    bad: list[tuple[_Token, Settlement]] = []
    proofs: list[_Token] = []
    trials: list[tuple[AppPlatform, bool, bool]] = []
    for settlement in sorted(settlements, key=attrgetter("delivery.installation")):
        app_platform, is_bad = settlement.delivery.app_platform, _is_bad(settlement)
        if settlement.version is None or (settlement.failure is not None and not is_bad):
            continue  # it says nothing about the token
        token = settlement.delivery.installation, settlement.version
        reached = certain and settlement.failure is None
        if is_bad and app_platform not in doubted:
            bad.append((token, settlement))
        if reached and (settlement.suspected or not settlement.proven):
            proofs.append(token)
        if reached or settlement.proven:
            trials.append((app_platform, first_count, is_bad))
    died = _mark_bad(connection, bad)
    registrations.prove(connection, proofs)
    token_trials.count(connection, trials)
    return died


def judged(post: Iterable[Posting], failures: Iterable[Failure | None]) -> set[Installation]:
    """Return the installations of which `learn` may change something: they are to be locked before the deliveries."""
    return {
        posting.delivery.installation
        for posting, failure in zip(post, failures, strict=True)
        if (target := posting.target) is not None
        and (target.suspected or not target.proven if failure is None else _is_about_token(failure))
    }


def _is_bad(settlement: Settlement) -> bool:
    return settlement.failure is not None and _is_about_token(settlement.failure)


def _is_about_token(failure: Failure) -> bool:
    return failure is Failure.TOKEN_DOUBTED or failure.token is not Token.UNTOUCHED


def _mark_bad(connection: Connection, bad: Iterable[tuple[_Token, Settlement]]) -> list[Settlement]:
    """Mark tokens dead or suspected; return one settlement of each that died by this."""
    by_token: dict[_Token, list[Settlement]] = {}
    for token, settlement in bad:
        by_token.setdefault(token, []).append(settlement)
    dead = {token for token, settlements in by_token.items() if any(map(_is_death, settlements))}
    suspicions = {
        token: (settlements[0].delivery.app, len(settlements))
        for token, settlements in by_token.items()
        if token not in dead
    }
    counts = registrations.suspect(connection, suspicions, seconds=SUSPICION_SECONDS)
    dead |= {token for token in suspicions if counts.get(token[0], 0) >= SUSPICIONS}
    died = registrations.token_died(connection, [token for token in by_token if token in dead])
    return [settlements[0] for token, settlements in by_token.items() if token in dead and token[0] in died]


def _is_death(settlement: Settlement) -> bool:
    return settlement.failure is not None and settlement.failure.token is not Token.SUSPECT
