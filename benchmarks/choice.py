"""Which of all that can be measured is measured."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def named(text: str, everything: Sequence, kind: str, parser: argparse.ArgumentParser) -> list:
    """Return those whose name contains a text, or end as wrong options do.

    Args:
        text: that was asked for; the empty one chooses all.
        everything: each has a name.
        kind: what each of them is, for the error text.
        parser: of the options.
    """
    chosen = [each for each in everything if text in each.name]
    if not chosen:
        parser.error(f"no {kind} is named so; there are: {'; '.join(each.name for each in everything)}")
    return chosen
