"""The audit of what is locked, and the bills of materials of the images."""

import datetime as dt
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from deploy.supply import audit
from deploy.supply.audit import AuditError, Exemption, Vulnerability
from deploy.supply.locks import REQUIREMENTS, Pin, pins
from deploy.supply.sbom import IMAGES, sbom
from wakupush.pipeline.session import JARS

TODAY = dt.date(2026, 11, 22)
HOLE = Vulnerability(Pin("celery", "5.7.0"), ("PYSEC-0000-1", "CVE-0000-1"), ("5.7.1",))


def test_pins_are_those_of_every_python_and_system(tmp_path):
    lock = tmp_path / "some.lock"
    lock.write_text(
        "Some_Name==1.0 ; python_full_version < '3.12' \\\n    --hash=sha256:00\n"
        "some-name==2.0 ; python_full_version >= '3.12' \\\n    --hash=sha256:01\n"
        "celery[redis]==5.7.0 \\\n    --hash=sha256:02\n"
    )
    assert pins(lock) == {("some-name", "1.0"), ("some-name", "2.0"), ("celery", "5.7.0")}


@pytest.mark.parametrize("lock", sorted(REQUIREMENTS.glob("*.lock")), ids=lambda path: path.stem)
def test_every_line_of_the_locks_is_a_pin_with_a_hash(lock):
    """What the audit and the bills of materials read is all that there is; and no address is among it."""
    text = lock.read_text()
    requirements = [line for line in text.splitlines() if not line.startswith("    --hash=sha256:")]
    assert all(re.fullmatch(r"[\w.-]+(\[[\w,]+\])?==\S+( ; .*)? \\", line) for line in requirements)
    assert len(pins(lock)) == len(requirements)
    assert "://" not in text


def accept(until, name="PYSEC-0000-1", package="celery"):
    return Exemption(id=name, package=package, reason="nobody reaches it", until=until)


def test_a_known_hole_is_a_fault():
    assert audit.faults([HOLE], [], TODAY) == [
        "celery 5.7.0: PYSEC-0000-1, CVE-0000-1; mended in 5.7.1",
    ]
    assert audit.faults([HOLE._replace(fixed_in=())], [], TODAY)[0].endswith("; not mended yet")
    assert audit.faults([], [], TODAY) == []


@pytest.mark.parametrize("name", HOLE.ids)
def test_a_hole_is_accepted_until_a_day_and_on_it(name):
    assert audit.faults([HOLE], [accept(TODAY, name)], TODAY) == []
    over = accept(TODAY - dt.timedelta(days=1), name)
    assert audit.faults([HOLE], [over], TODAY) == [f"{name} of celery was accepted until 2026-11-21 only"]


def test_an_exception_covers_its_own_hole_alone():
    other = accept(TODAY, package="kombu")
    assert len(audit.faults([HOLE], [other], TODAY)) == 2
    assert audit.faults([], [accept(TODAY)], TODAY) == ["PYSEC-0000-1 of celery is accepted, and no longer there"]


def test_the_exceptions_are_readable(tmp_path):
    assert all(each.reason and isinstance(each.until, dt.date) for each in audit.exemptions())
    file = tmp_path / "accepted.toml"
    # The example that the file gives.
    example = audit.ACCEPTED.read_text().split("#\n", 1)[1]
    file.write_text(re.sub(r"^# ?", "", example, flags=re.MULTILINE))
    [exemption] = audit.exemptions(file)
    assert exemption.id == "PYSEC-2026-1"
    assert exemption.until == dt.date(2027, 1, 31)


def test_what_cannot_be_looked_at_is_no_success():
    """pip-audit itself ends well where its service knows nothing of a package."""
    with pytest.raises(AuditError, match="could not look at 1 packages, at first: not found"):
        audit.read({"dependencies": [{"name": "celery", "skip_reason": "not found"}]})


@contextmanager
def service(holes: dict[tuple[str, str], list[dict]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A service of the form of OSV, and what it was asked."""
    requested_pins = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requested_pins.append((query["package"]["name"], query["version"]))
            answer = json.dumps({"vulns": holes[requested_pins[-1]]} if requested_pins[-1] in holes else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/query", requested_pins
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run_audit(url):
    env = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    return subprocess.run(
        [sys.executable, "-m", "deploy.supply.audit"],
        cwd=REQUIREMENTS.parent,
        env=env | {"PIP_AUDIT_VULNERABILITY_SERVICE": "osv", "PIP_AUDIT_OSV_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )


def test_audit_covers_all_locks():
    pinned = set().union(*map(pins, REQUIREMENTS.glob("*.lock")))
    with service({}) as (url, requested_pins):
        result = run_audit(url)
    assert result.returncode == 0, result.stderr
    assert sorted(requested_pins) == sorted(pinned)
    name, version = min(each for each in pinned if each.name == "celery")
    hole = {
        "id": "PYSEC-0000-1",
        "summary": "made up",
        "affected": [
            {
                "package": {"name": name, "ecosystem": "PyPI"},
                "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}],
            }
        ],
    }
    with service({(name, version): [hole]}) as (url, _):
        result = run_audit(url)
    assert result.returncode == 1
    assert result.stderr == f"celery {version}: PYSEC-0000-1; mended in 99\n"


def test_without_its_service_the_audit_fails():
    with service({}) as (url, _):
        pass
    result = run_audit(url)
    assert result.returncode == 1
    assert "pip-audit failed" in result.stderr


@pytest.mark.parametrize("image", IMAGES)
def test_bill_of_materials_lists_the_locked_packages(image):
    text = sbom(image)
    content = json.loads(text)
    assert content["bomFormat"] == "CycloneDX"
    assert content["metadata"]["component"]["name"] == image
    locks, jars = IMAGES[image]
    pinned = [pin for lock in locks for pin in pins(REQUIREMENTS / f"{lock}.lock")]
    components = content["components"]
    urls = {each["purl"] for each in components}
    assert {f"pkg:pypi/{pin.name}@{pin.version}" for pin in pinned} <= urls
    assert len(components) == len(pinned) + len(jars)
    assert len({each["bom-ref"] for each in components}) == len(components)
    # Each has a hash: of the jar, or of each file of the package.
    assert all("hashes" in each or each["externalReferences"][0]["hashes"] for each in components)
    if jars:
        assert {each["hashes"][0]["content"] for each in components if "hashes" in each} == set(JARS.values())


def test_images_hold_what_the_dockerfile_installs():
    dockerfile = (REQUIREMENTS.parent / "docker" / "Dockerfile").read_text()
    installed = set(re.findall(r"COPY requirements/(\w+)\.lock", dockerfile)) - {"build"}
    assert installed == {lock for locks, _ in IMAGES.values() for lock in locks}
