"""The reference's databases, and commands on copies of them."""

import shutil

import pytest
from psycopg.conninfo import make_conninfo

from support import commands, reference_database
from support.reference_database import KEY
from wakupush.model.roles import Role
from wakupush.runtime import keyfile


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    return reference_database.unpack(tmp_path_factory.mktemp("reference"))


@pytest.fixture
def folder(originals, tmp_path):
    return shutil.copytree(originals, tmp_path / "reference")


@pytest.fixture
def environment(dsn, redis_server, monkeypatch, tmp_path):
    """The settings of the server whose database it is, as the role that imports."""
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", make_conninfo(dsn, user=Role.REBUILD))
    monkeypatch.setenv("WAKUPUSH_REDIS__URL", redis_server.url)
    monkeypatch.setenv("COLUMNS", "80")
    key_file = tmp_path / "identity.key"
    keyfile.write(key_file, KEY.secret)
    monkeypatch.setenv("WAKUPUSH_IDENTITY_KEY_FILE", str(key_file))


@pytest.fixture
def run(environment, folder):  # noqa: ARG001 - the settings
    def run(*words, expect=0, command="import"):
        arguments = [str(folder / word) if (folder / word).exists() else word for word in words]
        return commands.run(command, "reference", *arguments, expect=expect)

    return run
