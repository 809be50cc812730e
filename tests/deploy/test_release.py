"""What `make release-check` finds, and what a release publishes."""

import re
import subprocess

import pytest
import yaml

from deploy.release import check, past, publish
from deploy.release.check import Check, NotReadyError
from deploy.release.past import ROOT
from deploy.release.publish import CHART, NotPublishedError
from deploy.supply.sbom import IMAGES


@pytest.fixture
def stated_versions(monkeypatch):
    """What is said to be the version; 0.2.0 everywhere unless a test changes it."""
    versions = dict.fromkeys(check.versions(), "0.2.0")
    monkeypatch.setattr(check, "versions", lambda: versions)
    return versions


def test_every_place_that_names_a_version_is_found():
    versions = check.versions()
    assert "none" not in versions.values()
    assert len({versions[where] for where in versions if where != "the top of CHANGELOG.md"}) == 1


def test_an_unreleased_changelog_is_found(stated_versions):
    stated_versions["the top of CHANGELOG.md"] = "Unreleased"
    with pytest.raises(NotReadyError, match=r"the top of CHANGELOG\.md: Unreleased"):
        check.one_version()


def test_a_wrong_first_migration_is_found(monkeypatch):
    files = "wakupush/state/migrations/0100_pre_a.sql\nwakupush/state/migrations/0199_post_b.sql\nREADME.md\n"
    monkeypatch.setattr(check, "_output", lambda *_: files)
    with pytest.raises(NotReadyError, match="is 200, not"):
        check.migrations_begin()


@pytest.mark.parametrize(("tags", "expected"), [("v0.3.0\n", "v0.3.0"), (None, past.BASE)])
def test_the_last_release_is_the_newest_tag_before(monkeypatch, tags, expected):
    process = subprocess.CompletedProcess([], 0 if tags else 128, stdout=tags or "")
    monkeypatch.setattr(past.subprocess, "run", lambda *_, **__: process)
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


def test_release_notes_are_the_section_of_the_version():
    changelog = "# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [1.0.0] - 2026-01-02\n\nFirst.\n\n- One.\n\n## [0.9]\n"
    assert publish.notes(changelog, "1.0.0") == "First.\n\n- One.\n"
    with pytest.raises(NotPublishedError, match=r"no section \[1\.1\.0\]"):
        publish.notes(changelog, "1.1.0")


DIGESTS = {image: f"sha256:{number:064x}" for number, image in enumerate(IMAGES)}


def test_published_chart_names_images_by_digest():
    values = yaml.safe_load(publish.values((CHART / "values.yaml").read_text(), "registry.example/push", DIGESTS))
    assert values["image"]["repository"] == "registry.example/push/wakupush"
    assert values["image"]["digest"] == DIGESTS["wakupush"]
    assert values["flowerImage"]["repository"] == "registry.example/push/wakupush-flower"
    assert values["flowerImage"]["digest"] == DIGESTS["wakupush-flower"]
    assert values["devnetImage"]["digest"] == DIGESTS["wakupush-devnet"]
    assert values["pipeline"]["image"] == f"registry.example/push/wakupush-pipeline@{DIGESTS['wakupush-pipeline']}"
    before = yaml.safe_load((CHART / "values.yaml").read_text())
    for tree in (values, before):
        del tree["image"], tree["flowerImage"], tree["devnetImage"], tree["pipeline"]["image"]
    assert values == before


@pytest.mark.parametrize("digest", ["", "latest", "sha256:00"])
def test_chart_without_digest_is_not_published(digest):
    with pytest.raises(NotPublishedError, match="dist/digests/wakupush-flower has no digest"):
        publish.values((CHART / "values.yaml").read_text(), "registry.example", DIGESTS | {"wakupush-flower": digest})


def test_released_images_have_bills_of_materials():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    matrix = workflow["jobs"]["images"]["strategy"]["matrix"]["include"]
    assert {row["image"] for row in matrix} == set(IMAGES)
    targets = re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    assert {row["target"] for row in matrix} <= set(targets)


def test_workflows_run_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for line in re.findall(r"run: make ([a-z -]+)", workflow.read_text()):
            assert set(line.split()) <= targets, f"{workflow.name}: make {line}"
