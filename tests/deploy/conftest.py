"""What the tests of this folder need besides Python: helm, and the loader of compose files."""

import os

import pytest
from chart import tool

GO = "install Go, then run: make setup-deploy"


def need(name: str) -> None:
    """Skip a module whose tests need a program that is not there; on CI nothing is skipped in silence."""
    if tool(name) is None and os.environ.get("CI") != "true":
        pytest.skip(f"{name} is missing: {GO}", allow_module_level=True)
