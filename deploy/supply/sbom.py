"""`make sbom`: writes the locked packages that each image contains, as CycloneDX, into dist/sbom."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator

from deploy.supply.locks import REQUIREMENTS, ROOT
from wakupush.pipeline.session import JARS

FOLDER: Final = ROOT / "dist" / "sbom"
#: The lock files of each image, and its additional jars by coordinates and hash.
IMAGES: Final[dict[str, tuple[tuple[str, ...], Mapping[str, str]]]] = {
    "wakupush": (("runtime",), {}),
    "wakupush-flower": (("flower",), {}),
    "wakupush-pipeline": (("runtime", "pipeline"), JARS),
    "wakupush-devnet": (("runtime", "devnet"), {}),
}
_VERSION: Final = SchemaVersion.V1_6


def sbom(image: str) -> str:
    """Return the content of an image: the packages as cyclonedx-py lists them, and the jars; reproducible.

    Raises:
        ValueError: the result would not match the schema of CycloneDX.
    """
    locks, jars = IMAGES[image]
    options = ["--output-reproducible", "--no-validate", "--spec-version", _VERSION.to_version()]
    answer = subprocess.run(  # noqa: S603 - our own arguments
        [sys.executable, "-m", "cyclonedx_py", "requirements", *options, "-"],
        input="".join((REQUIREMENTS / f"{lock}.lock").read_text() for lock in locks),
        capture_output=True,
        text=True,
        check=True,
    )
    content = json.loads(answer.stdout)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    content["metadata"]["component"] = {"type": "container", "bom-ref": image, "name": image, "version": version}
    content["components"] += [_jar(*jar) for jar in jars.items()]
    text = json.dumps(content, indent=1)
    if fault := make_schemabased_validator(OutputFormat.JSON, _VERSION).validate_str(text):
        raise ValueError(str(fault))
    return text + "\n"


def _jar(coordinates: str, sha256: str) -> dict[str, Any]:
    group, name, version = coordinates.split(":")
    purl = f"pkg:maven/{group}/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "group": group,
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": sha256}],
    }


def main() -> None:
    """Write one file for each image."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for image in IMAGES:
        (FOLDER / f"{image}.cdx.json").write_text(sbom(image))


if __name__ == "__main__":
    main()
