"""`make cluster` where no control plane is: what it says, and whether its pods could be those of the chart."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.binaries import KEDA_CONFIG, PROGRAMS, VARIABLE, MissingError, find
from cluster.scenarios import SCENARIOS
from support.deploy.chart import ROOT, VALUES, need, objects, pod_specs

need("helm")

SETS = pytest.mark.parametrize("name", ["hpa", "keda", "minimal"])


def rehearse(*arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return subprocess.run(
        [sys.executable, "-m", "cluster.run", *arguments],
        env=environment | {"PYTHONPATH": str(ROOT / "tests")} | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_says_what_it_needs():
    ended = rehearse()
    assert ended.returncode == 2
    assert all(program in ended.stdout for program in (VARIABLE, *PROGRAMS, KEDA_CONFIG))


def test_it_lists_its_scenarios_without_a_cluster():
    ended = rehearse("--list")
    assert ended.returncode == 0
    assert ended.stdout.splitlines() == [scenario.name for scenario in SCENARIOS]


def test_a_scenario_that_there_is_not_is_said():
    ended = rehearse("--only", "no such scenario")
    assert ended.returncode == 2
    assert all(scenario.name in ended.stdout for scenario in SCENARIOS)


def test_it_names_each_program_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for program in ("etcd", "kubectl"):
        (tmp_path / program).touch()
    with pytest.raises(MissingError) as error:
        find(Path(sys.executable))
    missing = {Path(path).name for path in str(error.value).removeprefix("missing: ").split(", ")}
    assert missing == {*PROGRAMS, KEDA_CONFIG} - {"etcd", "kubectl"}


@SETS
def test_its_pods_can_be_those_of_the_chart(name):
    """A pod of the rehearsal has one container, and knows these sources of variables and files alone."""
    for each, spec in pod_specs(objects(VALUES[name])):
        if each["metadata"]["labels"]["app.kubernetes.io/component"] in {"flower", "node", "gorush", "pipeline"}:
            continue
        [container] = spec["containers"]
        assert {key for source in container.get("envFrom", []) for key in source} <= {"configMapRef"}
        assert {key for variable in container["env"] for key in variable.get("valueFrom", {})} <= {"secretKeyRef"}
        assert {key for volume in spec["volumes"] for key in volume} <= {"name", "emptyDir", "secret"}
        secrets = {volume["name"] for volume in spec["volumes"] if "secret" in volume}
        mounts = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in secrets]
        assert all(path.startswith("/run/") for path in mounts)
