"""`make chart` and `make release-notes`: writes what a release publishes besides images and the package, into dist/."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deploy.release.check import versions
from deploy.release.past import ROOT

CHART: Final = ROOT / "deploy" / "helm" / "wakupush"
DIST: Final = ROOT / "dist"
#: Where the chart's values name our images: the key of the value, and the image. The pipeline's value is a whole name.
_IMAGES: Final = (("image", "wakupush"), ("flowerImage", "wakupush-flower"), ("devnetImage", "wakupush-devnet"))
_PIPELINE: Final = "wakupush-pipeline"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class NotPublishedError(Exception):
    """Something is missing; the text says what."""


def notes(changelog: str, version: str) -> str:
    """Return what the changelog says of a version.

    Raises:
        NotPublishedError: it says nothing.
    """
    section = re.search(rf"^## \[{re.escape(version)}\].*\n((?:(?!^## ).*\n?)*)", changelog, re.MULTILINE)
    if section is None or not section[1].strip():
        raise NotPublishedError(f"CHANGELOG.md has no section [{version}]")
    return section[1].strip() + "\n"


def values(text: str, registry: str, digests: Mapping[str, str]) -> str:
    """Return the chart's values with our images in this registry, by digest.

    Args:
        text: values.yaml.
        registry: host and path, without a slash at the end.
        digests: ``sha256:…`` by image.

    Raises:
        NotPublishedError: a digest is missing or is none, or values.yaml has changed.
    """
    for image in (*(image for _, image in _IMAGES), _PIPELINE):
        if not _DIGEST.fullmatch(digests.get(image, "")):
            raise NotPublishedError(f"dist/digests/{image} has no digest, sha256 and 64 hex digits")
    for key, image in _IMAGES:
        block = re.compile(rf'(^{key}:\n(?:  .*\n)*?)  repository: {image}\n((?:  .*\n)*?)  digest: ""\n', re.MULTILINE)
        text, count = block.subn(rf'\1  repository: {registry}/{image}\n\2  digest: "{digests[image]}"\n', text)
        _once(count, key)
    pipeline = re.compile(r'(^pipeline:\n(?:(?:  .*)?\n)*?)  image: ""\n', re.MULTILINE)
    text, count = pipeline.subn(rf'\1  image: "{registry}/{_PIPELINE}@{digests[_PIPELINE]}"\n', text)
    _once(count, "pipeline")
    return text


def _once(count: int, key: str) -> None:
    if count != 1:
        raise NotPublishedError(f"values.yaml has {count} images under {key}")


def write_chart(registry: str, digests: Mapping[str, str]) -> None:
    """Package the chart into dist/.

    Raises:
        NotPublishedError: there is no registry, or see `values`.
        subprocess.CalledProcessError: Helm refuses the chart.
    """
    if not registry:
        raise NotPublishedError("REGISTRY is missing: host and path of the images, without their names")
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / "wakupush"
        shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns("ci"))
        (chart / "values.yaml").write_text(values((CHART / "values.yaml").read_text(), registry, digests))
        helm = os.environ.get("HELM", str(ROOT / ".tools" / "helm"))
        subprocess.run([helm, "package", str(chart), "--destination", str(DIST)], check=True)


def main() -> None:
    """Write the notes, or the chart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["notes", "chart"])
    arguments = parser.parse_args()
    DIST.mkdir(exist_ok=True)
    try:
        if arguments.what == "notes":
            version = versions()["pyproject.toml"]
            (DIST / "notes.md").write_text(notes((ROOT / "CHANGELOG.md").read_text(), version))
            return
        digests = {file.name: file.read_text().strip() for file in (DIST / "digests").glob("*")}
        write_chart(os.environ.get("REGISTRY", "").rstrip("/"), digests)
    except NotPublishedError as error:
        sys.exit(f"make: {error}")


if __name__ == "__main__":
    main()
