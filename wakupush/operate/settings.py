"""The settings as they are in effect, each with its source; secrets are left out."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, SecretStr

from wakupush.runtime.docstrings import attribute_docstrings
from wakupush.runtime.settings import AppSettings, Group, Settings, load_with_sources

#: Stands for a secret that is set.
REDACTED: Final = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSetting:
    """A setting, by the name of its variable."""

    variable: str
    #: As JSON can hold it; `REDACTED` for secrets, also for those in URLs.
    value: Any
    #: ``default``, ``environment``, or the path of the file.
    source: str
    meaning: str


def effective() -> list[EffectiveSetting]:
    """Return all settings of this environment.

    Raises:
        SettingsError: one is unknown or not valid, or the file cannot be read.
    """
    settings, sources = load_with_sources()
    return list(_settings(settings, sources))


def _settings(settings: Settings, sources: Mapping[str, str]) -> Iterator[EffectiveSetting]:
    meanings = attribute_docstrings(Settings)
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, Group):
            yield from _group(value, sources, name)
        elif name == "apps":
            for app, table in value.items():
                yield from _group(table, sources, name, app)
        else:
            yield _setting(sources, value, meanings.get(name, "Profiles of the file."), name)


def _group(group: Group, sources: Mapping[str, str], *place: str) -> Iterator[EffectiveSetting]:
    meanings = attribute_docstrings(type(group))
    for name in type(group).model_fields:
        yield _setting(sources, getattr(group, name), meanings.get(name, ""), *place, name)


def _setting(sources: Mapping[str, str], value: object, meaning: str, *place: str) -> EffectiveSetting:
    variable = "WAKUPUSH_" + "__".join(place).upper()
    source = sources.get(variable, "default")
    return EffectiveSetting(variable=variable, value=_plain(value), source=source, meaning=meaning)


def _plain(value: object) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case SecretStr():
            return REDACTED
        case BaseModel():
            return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
        case Mapping():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case tuple():
            return [_plain(inner) for inner in value]
        case _:
            return re.sub(r"://[^/@\s]*@", f"://{REDACTED}@", str(value))


def documentation(name: str) -> EffectiveSetting | None:
    """Return the setting whose variable has this name, in whatever case, also without the prefix."""
    group, *place = name.upper().removeprefix("WAKUPUSH_").replace(".", "__").split("__")
    # All apps have the same settings.
    variable = "__".join(["WAKUPUSH_" + group, *(["NAME", *place[1:]] if group == "APPS" else place)])
    defaults = _settings(Settings.model_construct(apps={"name": AppSettings()}), {})
    return next((setting for setting in defaults if setting.variable == variable), None)
