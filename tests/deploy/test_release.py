"""What `make release-check` finds."""

import subprocess

import pytest

from deploy.release import check, past
from deploy.release.check import Check, NotReadyError


@pytest.fixture
def said(monkeypatch):
    """What is said to be the version; 0.2.0 everywhere unless a test changes it."""
    found = dict.fromkeys(check.versions(), "0.2.0")
    monkeypatch.setattr(check, "versions", lambda: found)
    return found


def test_every_place_that_names_a_version_is_found():
    found = check.versions()
    assert "none" not in found.values()
    assert len({found[where] for where in found if where != "the top of CHANGELOG.md"}) == 1


def test_an_unreleased_changelog_is_found(said):
    said["the top of CHANGELOG.md"] = "Unreleased"
    with pytest.raises(NotReadyError, match=r"the top of CHANGELOG\.md: Unreleased"):
        check.one_version()


def test_a_wrong_first_migration_is_found(monkeypatch):
    files = "wakupush/state/migrations/0100_pre_a.sql\nwakupush/state/migrations/0199_post_b.sql\nREADME.md\n"
    monkeypatch.setattr(check, "_output", lambda *_: files)
    with pytest.raises(NotReadyError, match="is 200, not"):
        check.migrations_begin()


@pytest.mark.parametrize(("tags", "expected"), [("v0.3.0\n", "v0.3.0"), (None, past.BASE)])
def test_the_last_release_is_the_newest_tag_before(monkeypatch, tags, expected):
    done = subprocess.CompletedProcess([], 0 if tags else 128, stdout=tags or "")
    monkeypatch.setattr(past.subprocess, "run", lambda *_, **__: done)
    assert past.last_release() == expected


def fails(error):
    def run():
        raise error

    return run


CHECKS = (
    Check("good", "holds", lambda: None),
    Check("bad", "does not", fails(NotReadyError("it is red"))),
    Check("ended", "a program that fails", fails(subprocess.CalledProcessError(2, ["make"]))),
)


def test_one_failed_check_fails_all(capsys):
    assert check.main([], CHECKS) == 1
    out = capsys.readouterr().out
    assert "it is red" in out
    assert "exit code 2" in out
    assert check.main(["--only", "good"], CHECKS) == 0
