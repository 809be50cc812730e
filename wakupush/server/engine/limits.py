"""The limits of a task: each is counted once, however often its transaction is repeated."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from wakupush.model.limits import Limit, LimitId, Verdicts
from wakupush.redis.limits import Counted, Limiter

#: Limits that are asked with one round trip, at most: Redis does nothing else meanwhile, some 7 ms.
ASKED_AT_ONCE: Final = 1000


class TaskLimits:
    """Asks limits, and keeps the verdicts until the task ends."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._verdicts: dict[LimitId, bool] = {}
        self._counted: list[Counted] = []

    def ask(self, limits: Iterable[Limit]) -> Verdicts:
        """Ask those limits that were not asked before, many with one round trip, and return all verdicts.

        Args:
            limits: a limit that comes after another one stands behind it, unless an earlier transaction asked that one.
        """
        new: list[Limit] = []
        for limit in limits:
            if limit.id in self._verdicts:
                continue
            if len(new) == ASKED_AT_ONCE:
                self._ask(new)
                new = []
            earlier = self._verdicts.get(limit.after.id) if limit.after is not None else None
            if earlier is False:
                self._verdicts[limit.id] = False
            else:
                new.append(replace(limit, after=None) if earlier else limit)
        self._ask(new)
        return Verdicts(frozenset(limit_id for limit_id, is_through in self._verdicts.items() if not is_through))

    def give_back(self, messages: AbstractSet[bytes]) -> None:
        """Count nothing of these messages (hashes of 32 bytes): they come again."""
        back = [one for one in self._counted if one[0] in messages]
        self._counted = [one for one in self._counted if one[0] not in messages]
        for start in range(0, len(back), ASKED_AT_ONCE):
            self._limiter.give_back(back[start : start + ASKED_AT_ONCE])

    def _ask(self, limits: Sequence[Limit]) -> None:
        for limit, is_through in zip(limits, self._limiter.ask(limits, self._counted), strict=True):
            self._verdicts[limit.id] = is_through
