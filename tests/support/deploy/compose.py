"""`docker/compose.yaml` with its variables filled in."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from support.deploy.chart import ROOT

FILE = ROOT / "docker" / "compose.yaml"
#: `${NAME:?text}` and `${NAME:-default}`, the only forms that are used; `$$` stands for a dollar.
_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+):([-?])([^}]*)\}")


def filled(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the file with variables in their places, as Compose does it before anything else.

    Raises:
        KeyError: a variable has to be given.
    """
    return _fill(yaml.safe_load(FILE.read_text()), variables)


def needed() -> set[str]:
    """Return the variables that have to be given."""
    return {name for name, kind, _ in _VARIABLE.findall(FILE.read_text()) if kind == "?"}


def _fill(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _fill(inner, variables) for name, inner in value.items()}
    if isinstance(value, list):
        return [_fill(item, variables) for item in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: variables.get(match[1]) or _default(match), value)
    return value


def _default(match: re.Match[str]) -> str:
    if match[2] == "?":
        raise KeyError(match[1])
    return match[3]
