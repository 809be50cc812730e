"""Reading the versions that the lock files pin."""

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
REQUIREMENTS: Final = ROOT / "requirements"
_PIN: Final = re.compile(r"^([\w.-]+)(?:\[[\w,.-]+\])?==([^ ;\\]+)", re.MULTILINE)


class Pin(NamedTuple):
    """A version of a package."""

    name: str
    version: str


def pins(lock: Path) -> set[Pin]:
    """Return what a lock file pins, for every version of Python and every system."""
    return {Pin(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in _PIN.findall(lock.read_text())}
