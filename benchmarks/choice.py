"""Choosing what is measured by a part of its name."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def named(text: str, everything: Sequence, kind: str, parser: argparse.ArgumentParser) -> list:
    """Return those whose name contains a text; if there are none, exit as for wrong options.

    Args:
        text: part of a name; an empty one chooses all.
        everything: each has a name.
        kind: what they are called in the error text.
        parser: of the options.
    """
    chosen = [each for each in everything if text in each.name]
    if not chosen:
        parser.error(f"no {kind} has this name; there are: {'; '.join(each.name for each in everything)}")
    return chosen
