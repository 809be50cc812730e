"""The chart renders what it should, and Kubernetes and the operators would take it."""

import difflib
import json
import re
import subprocess

import jsonschema
import kubernetes_validate
import pytest
import yaml

from support.deploy.chart import (
    CHART,
    GOLDEN,
    KUBERNETES,
    ROOT,
    SENTINELS,
    VALUES,
    golden,
    helm,
    need,
    objects,
    of_kind,
    pod_specs,
    pod_templates,
)
from support.deploy.schemas import SPECS, schema
from wakupush.model.queues import QUEUES
from wakupush.runtime.settings import Settings

need("helm")


MINIMAL = VALUES["minimal"]
RESTORE = ROOT / "docs" / "operating" / "restore.md"


@pytest.mark.parametrize("name", VALUES)
def test_lint_is_strict(name):
    result = helm("lint", "--strict", "--kube-version", KUBERNETES, "--values", VALUES[name], CHART)
    assert result.returncode == 0, result.stdout + result.stderr


def test_rendered_as_the_golden_file():
    written, rendered = GOLDEN.read_text(), golden()
    if written != rendered:
        lines = difflib.unified_diff(
            written.splitlines(), rendered.splitlines(), "golden", "rendered", lineterm="", n=2
        )
        pytest.fail("\n".join(list(lines)[:80]) + "\n\nif this is meant: make golden", pytrace=False)


@pytest.mark.parametrize("name", VALUES)
def test_objects_fit_their_schemas(name):
    kinds = {(each["apiVersion"], each["kind"]) for each in objects(VALUES[name])}
    assert len(kinds) > 5
    for each in objects(VALUES[name]):
        if (each["apiVersion"], each["kind"]) in SPECS:
            jsonschema.validate(each, schema(each["apiVersion"], each["kind"]))
        else:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_every_custom_resource_is_rendered():
    rendered = {(each["apiVersion"], each["kind"]) for values in VALUES.values() for each in objects(values)}
    assert set(SPECS) <= rendered | {("monitoring.coreos.com/v1", "PrometheusRule")}
    # There is a PrometheusRule and a dashboard for each file.
    assert len(of_kind(objects(VALUES["keda"]), "PrometheusRule")) == len(list(CHART.glob("files/rules/*.yaml")))
    dashboards = [each for each in objects(VALUES["keda"]) if "grafana_dashboard" in each["metadata"]["labels"]]
    assert len(dashboards) == len(list(CHART.glob("files/dashboards/*.json")))
    for each in dashboards:
        [text] = each["data"].values()
        assert json.loads(text)["title"]


def test_alerts_are_those_of_the_file():
    """They look at this release alone, and link to where the runbook is read."""
    address = "https://example.org/runbook.md"
    [rule] = of_kind(objects(VALUES["keda"], "--set", f"monitoring.runbookUrl={address}"), "PrometheusRule").values()
    text = (CHART / "files" / "rules" / "wakupush.yaml").read_text()
    text = text.replace("docs/operating/respond.md#", f"{address}#").replace('namespace=~".*"', 'namespace="push"')
    assert text.count(address) > 10
    assert 'namespace="push"' in text
    assert rule["spec"]["groups"] == yaml.safe_load(text)["groups"]


@pytest.mark.parametrize("name", VALUES)
def test_names_are_unique_and_selectors_match(name):
    rendered = objects(VALUES[name])
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered]
    assert len(names) == len(set(names))
    pods = [template["metadata"]["labels"] for _, template in pod_templates(rendered)]
    for each in rendered:
        match each["kind"]:
            case "Service":
                selectors = [each["spec"]["selector"]]
            case "Deployment" | "StatefulSet" | "PodDisruptionBudget":
                selectors = [each["spec"]["selector"]["matchLabels"]]
            case "NetworkPolicy":
                selectors = [each["spec"]["podSelector"]["matchLabels"]]
            case _:
                continue
        for labels in selectors:
            assert any(labels.items() <= pod.items() for pod in pods), each["metadata"]["name"]


def hooks(name, hook):
    return [
        each
        for each in objects(VALUES[name])
        if hook in each["metadata"].get("annotations", {}).get("helm.sh/hook", "")
    ]


@pytest.mark.parametrize("name", VALUES)
def test_pre_install_hooks_depend_on_no_release_object(name):
    before = hooks(name, "pre-install")
    # Those with a Postgres of their own migrate it after the installation.
    assert bool(before) == (name not in {"trial", "devnet"})
    for each in before:
        assert not re.search("configMap|serviceAccountName", str(each["spec"]))


def test_secrets_precede_migrations_and_code():
    for name in ("minimal", "keda", "hpa"):
        [before] = of_kind(hooks(name, "pre-upgrade"), "Job").values()
        assert before["spec"]["template"]["spec"]["containers"][0]["args"][:2] == ["migrate", "--pre"]
        # Old pods still end after an upgrade, however it waits: what they need goes with the next one.
        assert not hooks(name, "post-upgrade")
    secrets = of_kind(hooks("keda", "pre-install"), "ExternalSecret")
    assert secrets.keys() == {"wakupush", "wakupush-identity"}
    [job] = of_kind(hooks("keda", "pre-install"), "Job").values()
    for each in secrets.values():
        assert int(_weight(each)) < int(_weight(job))
        assert each["spec"]["target"]["creationPolicy"] == "Orphan"
    # With the bundled Postgres, which a hook would not find: a Job that another image or other arguments name anew.
    assert not hooks("trial", "pre-install")
    [(name, job)] = of_kind(objects(VALUES["trial"]), "Job").items()
    assert "annotations" not in job["metadata"]
    assert re.fullmatch("wakupush-migrate-[0-9a-f]{8}", name)
    # Kubernetes refuses another pod in a Job that is there.
    changes = ("image.tag=9.9.9", "pod.labels.mesh=none", "pod.annotations.mesh=none", "pod.nodeSelector.pool=push")
    for change in changes:
        assert name not in of_kind(objects(VALUES["trial"], "--set", change), "Job")


def _weight(each):
    return each["metadata"]["annotations"]["helm.sh/hook-weight"]


def test_what_is_switched_off_has_no_budget_either():
    rendered = objects(VALUES["trial"], "--set", "podDisruptionBudget.enabled=false")
    assert not of_kind(rendered, "PodDisruptionBudget")


@pytest.mark.parametrize("component", yaml.safe_load((CHART / "values.yaml").read_text())["components"])
def test_what_is_switched_off_is_not_there(component):
    rendered = objects(MINIMAL, "--set", f"components.{component}.enabled=false")
    components = {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in rendered}
    assert component not in components
    assert len(components) > 8


def test_nothing_writes_while_a_database_is_restored():
    """By the command of docs/operating/restore.md, whose braces are the shell's."""
    [command] = re.findall(r"helm upgrade (wakupush [^\n]+--reuse-values(?:[^\n]+\\\n)*[^\n]+)", RESTORE.read_text())
    shell = subprocess.run(["bash", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True, check=True)
    options = shell.stdout.split()
    assert "--no-hooks" in options
    rendered = objects(VALUES["keda"], "--no-hooks", *(each for each in options if each.startswith("--set=")))
    jobs = [each["spec"]["suspend"] for each in of_kind(rendered, "CronJob").values()]
    assert jobs
    assert all(jobs)
    running = {each["metadata"]["name"] for each, _ in pod_specs(rendered) if each["kind"] != "CronJob"}
    assert running == {"wakupush-exporter", "wakupush-flower"}
    assert not of_kind(rendered, "ScaledObject")


def test_a_component_may_be_placed_by_itself():
    options = [
        "--set",
        "pod.nodeSelector.pool=all,pod.nodeSelector.zone=a,components.query.pod.nodeSelector.pool=query",
    ]
    selectors = {each["metadata"]["name"]: spec["nodeSelector"] for each, spec in pod_specs(objects(MINIMAL, *options))}
    assert selectors.pop("wakupush-query") == {"pool": "query"}
    assert all(each == {"pool": "all", "zone": "a"} for each in selectors.values())


#: What operators add to pods, as `--set-json` takes it.
ADDITIONS = {
    "caSecret": {"name": "own-authority", "key": "ca.crt"},
    "commonLabels": {"team": "push"},
    "pod.labels": {"azure.workload.identity/use": "true"},
    "pod.annotations": {"sidecar.istio.io/inject": "false"},
    "pod.extraEnv": [{"name": "MORE", "value": "1"}],
    "pod.extraEnvFrom": [{"secretRef": {"name": "more"}}],
    "pod.extraVolumes": [{"name": "more", "emptyDir": {}}],
    "pod.extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "pod.initContainers": [{"name": "first", "image": "first:1"}],
    "pod.sidecars": [{"name": "beside", "image": "beside:1"}],
    "pod.lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
    "pod.probes": {"startup": {"failureThreshold": 120}},
}


def test_what_operators_add_is_in_every_pod_of_ours():
    options = [part for name, value in ADDITIONS.items() for part in ("--set-json", f"{name}={json.dumps(value)}")]
    daily = "pipeline.jobs.daily.schedule=1 2 * * *,pipeline.jobs.daily.args={pipeline,tidy}"
    job = ("--set", f"pipeline.image=pipeline:1,{daily}")
    rendered = objects(VALUES["trial"], *options, *job)
    assert all(each["metadata"]["labels"]["team"] == "push" for each in rendered if each["kind"] != "List")
    parts = {"wakupush-redis", "wakupush-postgres", "wakupush-node", "wakupush-gorush"}
    ours = [(each, template) for each, template in pod_templates(rendered) if each["metadata"]["name"] not in parts]
    assert {each["kind"] for each, _ in ours} == {"Deployment", "Job", "CronJob", "Pod"}
    for each, template in ours:
        metadata, spec = template["metadata"], template["spec"]
        beside, [own] = spec["containers"][:-1], spec["containers"][-1:]
        assert [container["name"] for container in beside] == ["beside"] * (each["kind"] == "Deployment")
        assert [container["name"] for container in spec["initContainers"]] == ["first"]
        assert {"name": "MORE", "value": "1"} in own["env"]
        assert {"secretRef": {"name": "more"}} in own["envFrom"]
        assert {"ca", "more"} <= {mount["name"] for mount in own["volumeMounts"]}
        assert {"ca", "more"} <= {volume["name"] for volume in spec["volumes"]}
        assert metadata["labels"]["azure.workload.identity/use"] == "true"
        # A sidecar that a mesh adds would never end, and its job neither.
        assert metadata["annotations"]["sidecar.istio.io/inject"] == "false"
        if each["kind"] == "Deployment" and each["metadata"]["name"] != "wakupush-flower":
            assert own["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
            assert (own["startupProbe"]["failureThreshold"], own["livenessProbe"]["failureThreshold"]) == (120, 4)


def test_only_feedback_listens_on_before_it_stops():
    pods = {
        each["metadata"]["name"]: spec for each, spec in pod_specs(objects(MINIMAL)) if each["kind"] == "Deployment"
    }
    hooks = {
        name: container["lifecycle"]
        for name, spec in pods.items()
        for container in spec["containers"]
        if "lifecycle" in container
    }
    assert hooks == {"wakupush-feedback": {"preStop": {"exec": {"command": ["sleep", "5"]}}}}


def test_all_images_come_from_the_mirror():
    mirror = "mirror.example.org:5000/all"
    rendered = objects(VALUES["trial"], "--set", f"global.imageRegistry={mirror},global.storageClass=fast")
    images = [container["image"] for _, spec in pod_specs(rendered) for container in spec["containers"]]
    assert len(images) > 10
    assert all(image.startswith(f"{mirror}/") for image in images)
    assert f"{mirror}/appleboy/gorush:1.22.0" in images
    claims = [claim for each in rendered for claim in each.get("spec", {}).get("volumeClaimTemplates", [])]
    assert {claim["spec"]["storageClassName"] for claim in claims} == {"fast"}
    # The name of a registry gives way.
    [image] = {
        spec["containers"][0]["image"]
        for each, spec in pod_specs(objects(VALUES["keda"], "--set", f"global.imageRegistry={mirror}"))
        if each["metadata"]["name"] == "wakupush-beat"
    }
    assert image == f"{mirror}/wakupush@sha256:{'0' * 64}"


def test_openshift_chooses_the_users():
    for _, spec in pod_specs(objects(VALUES["openshift"])):
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_replicas_may_be_left_to_the_autoscaler():
    deployments = of_kind(objects(VALUES["argocd"]), "Deployment")
    scaled = {name for name, each in deployments.items() if "replicas" not in each["spec"]}
    assert scaled == {f"wakupush-{queue}" for queue in QUEUES}


def test_an_account_may_be_one_of_the_operator():
    rendered = objects(MINIMAL, "--set", "serviceAccount.create=false,serviceAccount.name=mine")
    assert "wakupush" not in of_kind(rendered, "ServiceAccount")
    pods = [each["spec"]["template"]["spec"] for each in of_kind(rendered, "Deployment").values()]
    assert {pod["serviceAccountName"] for pod in pods} == {"mine"}
    account = of_kind(objects(VALUES["aws"]), "ServiceAccount")["wakupush"]
    assert "eks.amazonaws.com/role-arn" in account["metadata"]["annotations"]


def test_a_service_monitor_finds_our_pods():
    rendered = objects(VALUES["openshift"])
    service = of_kind(rendered, "Service")["wakupush-metrics"]
    [monitor] = of_kind(rendered, "ServiceMonitor").values()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    deployments, selector = of_kind(rendered, "Deployment"), service["spec"]["selector"]
    labels = {name: each["spec"]["template"]["metadata"]["labels"] for name, each in deployments.items()}
    selected_names = {name for name, of_pod in labels.items() if selector.items() <= of_pod.items()}
    assert selected_names == deployments.keys() - {"wakupush-flower"}


def test_names_stay_short_with_the_longest_release():
    result = helm("template", "r" * 53, CHART, "--kube-version", KUBERNETES, "--values", VALUES["trial"])
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(result.stdout) if each]
    assert len(names) > 40
    assert max(map(len, names)) <= 63


def test_every_redis_client_knows_the_sentinels():
    for _, spec in pod_specs(objects(VALUES["keda"], *SENTINELS)):
        for container in spec["containers"]:
            names = {each["name"] for each in container.get("env", [])}
            sentinel_names = {name for name in names if name.startswith("WAKUPUSH_REDIS__SENTINEL")}
            reaches = names & {"WAKUPUSH_REDIS__URL", "CELERY_BROKER_URL"}
            assert len(sentinel_names) == (3 if reaches else 0), container["name"]


@pytest.mark.parametrize("mode", ["none", "keda"])
def test_bundled_postgres_allows_all_connections(mode):
    rendered = objects(VALUES["trial"], "--set", f"autoscaling.mode={mode}")
    scaled = of_kind(rendered, "ScaledObject")
    pods = {name: each["spec"]["replicas"] for name, each in of_kind(rendered, "Deployment").items()}
    pods |= {name: each["spec"]["maxReplicaCount"] for name, each in scaled.items()}
    pools = sum(2 * pods[f"wakupush-{pool}"] + 1 for pool in QUEUES)
    others = sum(2 * pods[f"wakupush-{name}"] + 1 for name in ("reconcile", "rest", "beat", "feedback", "exporter"))
    needed = (2 * pools + others) * Settings.model_fields["postgres"].default.pool_size
    [args] = [
        spec["containers"][0]["args"] for each, spec in pod_specs(rendered) if "postgres" in str(each["metadata"])
    ]
    assert args[:2] == ["postgres", "-c"]
    assert int(args[2].removeprefix("max_connections=")) >= needed + 10 > 100


@pytest.mark.parametrize("name", ["hpa", "keda", "minimal"])
def test_the_cluster_rehearsal_can_run_these_pods(name):
    """A pod of the rehearsal has one container, and knows these sources of variables and files alone."""
    for each, spec in pod_specs(objects(VALUES[name])):
        if each["metadata"]["labels"]["app.kubernetes.io/component"] in {"flower", "node", "gorush", "pipeline"}:
            continue
        [container] = spec["containers"]
        assert {key for source in container.get("envFrom", []) for key in source} <= {"configMapRef"}
        assert {key for variable in container["env"] for key in variable.get("valueFrom", {})} <= {"secretKeyRef"}
        assert {key for volume in spec["volumes"] for key in volume} <= {"name", "emptyDir", "secret", "configMap"}
        mounts = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] != "tmp"]
        assert all(path.startswith("/run/") for path in mounts)
