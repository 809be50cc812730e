"""The limits of a task: each is counted once, however often its transaction is repeated."""

from collections.abc import Iterable
from dataclasses import replace

from wakupush.model.limits import Limit, LimitId, Verdicts
from wakupush.redis.limits import Limiter


class TaskLimits:
    """Asks limits, and keeps the verdicts until the task ends."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._verdicts: dict[LimitId, bool] = {}

    def ask(self, limits: Iterable[Limit]) -> Verdicts:
        """Ask those limits that were not asked before, with one round trip, and return all verdicts.

        Args:
            limits: a limit that comes after another one stands behind it.
        """
        new = [self._resolve(limit) for limit in limits if limit.id not in self._verdicts]
        for limit, is_through in zip(new, self._limiter.ask(new), strict=True):
            self._verdicts[limit.id] = is_through
        return Verdicts(frozenset(name for name, is_through in self._verdicts.items() if not is_through))

    def _resolve(self, limit: Limit) -> Limit:
        """Return a limit without the one that it comes after if that one let it through in an earlier transaction."""
        known = limit.after is not None and self._verdicts.get(limit.after.id, False)
        return replace(limit, after=None) if known else limit
