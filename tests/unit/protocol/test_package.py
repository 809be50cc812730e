"""The package as such: its generated modules, and what importing it pulls in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GENERATED = Path("wakupush/pb")
NAMES = sorted(path.name for path in (ROOT / GENERATED).iterdir() if path.stem.endswith("_pb2"))


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    out = tmp_path_factory.mktemp("generated")
    environment = os.environ | {"VIRTUAL_ENV": sys.prefix}
    subprocess.run([ROOT / "proto/generate.sh", out], env=environment, check=True, capture_output=True)
    return out / GENERATED


def test_as_many_modules_are_committed_as_generated(generated):
    assert sorted(path.name for path in generated.iterdir()) == NAMES
    assert len(NAMES) == 2 * len(list((ROOT / "proto").rglob("*.proto")))


@pytest.mark.parametrize("name", NAMES)
def test_committed_module_is_as_generated(generated, name):
    assert (ROOT / GENERATED / name).read_bytes() == (generated / name).read_bytes()


IMPORTING = """
import importlib, pkgutil, sys
import wakupush.model, wakupush.pb, wakupush.protocol
for package in (wakupush.model, wakupush.pb, wakupush.protocol):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
print(*sorted(sys.modules))
"""

#: No socket, database, broker, HTTP client or setting.
UNWANTED = {"socket", "ssl", "asyncio", "psycopg", "psycopg_pool", "redis", "celery", "kombu", "httpx2", "pydantic"}


def test_importing_the_protocol_pulls_in_no_io():
    run = subprocess.run([sys.executable, "-c", IMPORTING], cwd=ROOT, check=True, capture_output=True, text=True)
    modules = set(run.stdout.split())
    assert "wakupush.protocol.request" in modules
    assert not modules & UNWANTED
    ours = {name for name in modules if name.startswith("wakupush.")}
    assert {name.split(".")[1] for name in ours} == {"pb", "model", "protocol"}
