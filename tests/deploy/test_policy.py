"""Rules that every object of the chart keeps, whatever the values: who runs as what, and who reaches whom."""

import json
import re

import pytest
import yaml

from support.deploy.chart import ROOT, VALUES, need, objects, pod_specs
from support.deploy.reach import PARTS, REACHES
from wakupush.model.queues import QUEUES
from wakupush.model.roles import Role
from wakupush.redis.celery_app import TIME_LIMIT_SECONDS, VISIBILITY_TIMEOUT_SECONDS
from wakupush.runtime.settings import Settings

need("helm")

SETS = pytest.mark.parametrize("name", VALUES)


def component(each: dict) -> str:
    return each["metadata"]["labels"]["app.kubernetes.io/component"]


def containers(name: str):
    for each, spec in pod_specs(objects(VALUES[name])):
        for container in spec.get("initContainers", []) + spec["containers"]:
            yield each, spec, container


@SETS
def test_nobody_is_root_or_can_become_it(name):
    for _, spec, container in containers(name):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["privileged"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert not {"runAsUser", "runAsNonRoot", "seccompProfile"} & security.keys()
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()


@SETS
def test_nothing_is_written_but_volumes_of_their_own(name):
    for each, spec, container in containers(name):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]  # noqa: S108 - inside the container
        kinds = {kind for volume in spec.get("volumes", []) for kind in volume if kind != "name"}
        claims = {"persistentVolumeClaim"} if component(each) == "pipeline" else set()
        assert kinds <= {"emptyDir", "secret", "configMap"} | claims
        assert all("sizeLimit" in volume["emptyDir"] for volume in spec["volumes"] if "emptyDir" in volume)


@SETS
def test_everything_has_requests_and_limits(name):
    for _, _, container in containers(name):
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


@SETS
def test_images_have_versions(name):
    for _, _, container in containers(name):
        assert re.search(r"(:[^:/@]+|@sha256:[0-9a-f]{64})$", container["image"])
        assert not container["image"].endswith(":latest")


RIGHTS = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
#: Whom the pod of `helm test` asks the Kubernetes API for.
AUTOSCALERS = {
    "hpa": {f"wakupush-{pool}" for pool in QUEUES},
    "keda": {f"keda-hpa-wakupush-{pool}" for pool in QUEUES},
    "minimal": set(),
    "trial": set(),
}


@SETS
def test_nobody_speaks_to_the_kubernetes_api(name):
    """But the pod of `helm test`."""
    rendered = objects(VALUES[name])
    assert not {each["kind"] for each in rendered if component(each) != "doctor"} & RIGHTS
    for each, spec in pod_specs(rendered):
        asks = component(each) == "doctor" and AUTOSCALERS[name] != set()
        assert spec["automountServiceAccountToken"] is asks
        assert spec["enableServiceLinks"] is False


def test_helm_test_looks_at_the_autoscalers_that_there_are():
    for name, kind, prefix in (("hpa", "HorizontalPodAutoscaler", ""), ("keda", "ScaledObject", "keda-hpa-")):
        made = {prefix + each["metadata"]["name"] for each in objects(VALUES[name]) if each["kind"] == kind}
        assert made == AUTOSCALERS[name]


@SETS
def test_helm_test_may_look_at_the_autoscalers_and_at_nothing_else(name):
    rendered = objects(VALUES[name])
    test = [each for each in rendered if component(each) == "doctor" and each["kind"] != "NetworkPolicy"]
    by_kind = {each["kind"]: each for each in test}
    pod = by_kind.pop("Pod")
    command, *options = pod["spec"]["containers"][0]["args"]
    assert command == "doctor"
    assert set(options[::2]) <= {"--autoscaler"}
    assert sorted(options[1::2]) == sorted(AUTOSCALERS[name])
    if not AUTOSCALERS[name]:
        assert not by_kind
        assert "serviceAccountName" not in pod["spec"]
        return
    assert by_kind.keys() == {"ServiceAccount", "Role", "RoleBinding"}
    [rule] = by_kind["Role"]["rules"]
    assert rule | {"resourceNames": set(rule["resourceNames"])} == {
        "apiGroups": ["autoscaling"],
        "resources": ["horizontalpodautoscalers"],
        "resourceNames": AUTOSCALERS[name],
        "verbs": ["get"],
    }
    account = by_kind["ServiceAccount"]["metadata"]["name"]
    assert pod["spec"]["serviceAccountName"] == account
    assert by_kind["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "push"}]
    assert by_kind["RoleBinding"]["roleRef"]["name"] == by_kind["Role"]["metadata"]["name"]
    # They are there before the pod, and go with it.
    assert {each["metadata"]["name"] for each in test} == {pod["metadata"]["name"]}
    for each in by_kind.values():
        weight = {"helm.sh/hook-weight": "-1"}
        assert each["metadata"]["annotations"] == pod["metadata"]["annotations"] | weight
    assert "helm.sh/hook-weight" not in pod["metadata"]["annotations"]


def test_helm_test_does_not_ask_for_a_pool_that_is_switched_off():
    rendered = objects(VALUES["hpa"], "--set", "components.query.enabled=false")
    [rules] = [each["rules"] for each in rendered if each["kind"] == "Role"]
    assert set(rules[0]["resourceNames"]) == AUTOSCALERS["hpa"] - {"wakupush-query"}


@SETS
def test_helm_test_alone_reaches_the_kubernetes_api(name):
    rendered = objects(VALUES[name], "--set", "networkPolicy.enabled=true")
    found = [each for each in rendered if each["metadata"]["name"] == "wakupush-doctor-kubernetes"]
    if not AUTOSCALERS[name]:
        assert not found
        return
    [policy] = found
    [rule] = policy["spec"]["egress"]
    assert rule == {"ports": [{"port": port, "protocol": "TCP"} for port in (443, 6443)]}
    selected = policy["spec"]["podSelector"]["matchLabels"]
    [pod] = [each for each in rendered if each["kind"] == "Pod"]
    assert selected.items() <= pod["metadata"]["labels"].items()
    # The Job of docs/operating/restore.md has the key, and the labels of `doctor`, but does not come from Helm.
    assert not selected.items() <= policy_of_doctor(rendered)["podSelector"]["matchLabels"].items()


@SETS
def test_what_runs_for_ever_has_probes(name):
    for each, _, container in containers(name):
        if each["kind"] in {"Deployment", "StatefulSet"}:
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
            ports = {port["name"] for port in container["ports"]}
            probes = [value for key, value in container.items() if key.endswith("Probe")]
            assert all(probe["httpGet"]["port"] in ports for probe in probes if "httpGet" in probe)
            # Our own processes prove by /healthz that they do their work; a broker that is down must not restart them.
            if container["image"].rpartition("/")[2].startswith(("wakupush:", "wakupush@")):
                assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
                assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


@SETS
def test_pods_live_longer_than_their_longest_task(name):
    lease = Settings.model_fields["delivery"].default.lease
    graces = {component(each): spec["terminationGracePeriodSeconds"] for each, spec in pod_specs(objects(VALUES[name]))}
    for pool in QUEUES:
        assert graces[pool] > TIME_LIMIT_SECONDS
    assert graces["dispatch"] >= lease + 30
    assert graces["dispatch"] > VISIBILITY_TIMEOUT_SECONDS


@SETS
def test_what_runs_to_its_end_has_a_deadline(name):
    jobs = [each["spec"] for each in objects(VALUES[name]) if each["kind"] in {"Job", "CronJob"}]
    assert jobs
    for spec in jobs:
        assert spec.get("jobTemplate", {"spec": spec})["spec"]["activeDeadlineSeconds"] >= 60


@SETS
def test_pods_spread(name):
    for each, spec in pod_specs(objects(VALUES[name])):
        if each["kind"] == "Deployment":
            keys = {constraint["topologyKey"] for constraint in spec["topologySpreadConstraints"]}
            assert keys == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}


@SETS
def test_every_deployment_has_a_disruption_budget(name):
    rendered = objects(VALUES[name])
    budgets = {component(each) for each in rendered if each["kind"] == "PodDisruptionBudget"}
    assert budgets == {component(each) for each in rendered if each["kind"] == "Deployment"}


@SETS
def test_only_workers_hold_the_key(name):
    holders = {
        component(each)
        for each, spec in pod_specs(objects(VALUES[name]))
        if any(volume.get("secret", {}).get("secretName") == "wakupush-identity" for volume in spec["volumes"])
    }
    assert holders == set(QUEUES)
    for each, _, container in containers(name):
        used = {entry["name"] for entry in container.get("env", [])}
        assert ("WAKUPUSH_IDENTITY_KEY_FILE" in used) == (component(each) in QUEUES)
        assert "WAKUPUSH_IDENTITY_KEY" not in used


#: What each command of the pipeline has; the keys of pseudonyms are the export's alone.
VOLUMES = {"export": {"lake", "keys"}, "tidy": {"lake"}, "report": {"lake", "reports"}, "fetch-archive": {"archive"}}
DATABASES = {
    "export": {"WAKUPUSH_POSTGRES__DSN"},
    "tidy": {"WAKUPUSH_POSTGRES__DSN"},
    "report": {"WAKUPUSH_POSTGRES__DSN", "WAKUPUSH_PIPELINE__REPORT_DSN"},
}


@pytest.mark.parametrize("name", ["hpa", "keda"])
def test_jobs_of_the_pipeline_have_the_volumes_that_they_need(name):
    claims = {each["metadata"]["name"] for each in objects(VALUES[name]) if each["kind"] == "PersistentVolumeClaim"}
    jobs = [(each, spec) for each, spec in pod_specs(objects(VALUES[name])) if each["kind"] == "CronJob"]
    assert jobs
    used = set()
    for _, spec in jobs:
        [container] = spec["containers"]
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert mounted.keys() == {"tmp"} | VOLUMES[container["args"][1]]
        for volume in mounted.keys() - {"tmp"}:
            setting = "WAREHOUSE" if volume == "lake" else volume.upper()
            assert env[f"WAKUPUSH_PIPELINE__{setting}"] == mounted[volume]
        used |= {volume["persistentVolumeClaim"]["claimName"] for volume in spec["volumes"] if volume["name"] != "tmp"}
    # A claim that exists, or one that is made; none is made for nothing, which `helm --wait` would wait for.
    assert claims == used - {"lake"} if name == "keda" else used


def test_a_lake_in_a_store_has_no_volume():
    chosen = "pipeline.warehouse=s3://lake/wakupush,secrets.lakeCatalog.key=lake-catalog"
    rendered = objects(VALUES["keda"], "--set", chosen, "--set", "externalSecrets.remote.lakeCatalog.key=wakupush/lake")
    claims = {each["metadata"]["name"] for each in rendered if each["kind"] == "PersistentVolumeClaim"}
    assert not any("lake" in name for name in claims)
    found = {}
    for each, spec in pod_specs(rendered):
        if each["kind"] == "CronJob":
            [container] = spec["containers"]
            env = {entry["name"]: entry for entry in container["env"]}
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            command = container["args"][1]
            assert mounted == {"tmp"} | VOLUMES[command] - {"lake"}
            found[command] = env.get("WAKUPUSH_PIPELINE__WAREHOUSE", {}).get("value")
            assert ("WAKUPUSH_PIPELINE__CATALOG" in env) == ("lake" in VOLUMES[command])
            if "lake" in VOLUMES[command]:
                secret = env["WAKUPUSH_PIPELINE__CATALOG"]["valueFrom"]["secretKeyRef"]
                assert secret == {"name": "wakupush", "key": "lake-catalog"}
    assert found == {
        command: "s3://lake/wakupush" if "lake" in volumes else None for command, volumes in VOLUMES.items()
    }


def test_jobs_of_the_pipeline_have_the_databases_that_they_use():
    jobs = {"warm": "warm-topics", "other": "synthesize"}
    more = [
        f"pipeline.jobs.{name}.schedule=0 0 * * *,pipeline.jobs.{name}.args={{pipeline,{command}}}"
        for name, command in jobs.items()
    ]
    found = {}
    for each, spec in pod_specs(objects(VALUES["keda"], "--set", ",".join(more))):
        if each["kind"] == "CronJob":
            [container] = spec["containers"]
            names = {entry["name"] for entry in container["env"]}
            found[container["args"][1]] = {name for name in names if name.endswith("DSN")}
    assert found == DATABASES | {
        "fetch-archive": set(),
        "warm-topics": {"WAKUPUSH_POSTGRES__DSN"},
        "synthesize": set.union(*DATABASES.values()),
    }


#: Which role each component's connection string is of.
ROLE_OF_COMPONENT = {
    "reconcile": Role.RECONCILE,
    "registration": Role.REGISTRATION,
    "query": Role.QUERY,
    "dispatch": Role.DISPATCH,
    "beat": Role.SCHEDULE,
    "feedback": Role.FEEDBACK,
    "exporter": Role.EXPORTER,
    "doctor": Role.OPERATOR,
    "tidy": Role.LAKE,
    "report": Role.LAKE,
}


def connection_secrets(*options):
    """By component, or command of the pipeline, the key of the Secret with its connection string."""
    return {
        container["args"][1] if component(each) == "pipeline" else component(each): entry["valueFrom"]["secretKeyRef"][
            "key"
        ]
        for each, spec in pod_specs(objects(*options))
        for container in spec["containers"]
        for entry in container.get("env", [])
        if entry["name"] == "WAKUPUSH_POSTGRES__DSN" and "valueFrom" in entry
    }


def test_each_process_connects_to_postgres_as_its_own_role():
    roles = {name: f"postgres-{role.removeprefix('wakupush_')}-dsn" for name, role in ROLE_OF_COMPONENT.items()}
    roles["export"] = "pipeline-dsn"
    assert connection_secrets(VALUES["keda"]) == roles | {"migrate": "postgres-dsn"}
    # Unless they are given, everybody is the owner, as before there were roles.
    assert set(connection_secrets(VALUES["minimal"]).values()) == {"postgres-dsn"}


def test_a_bundled_postgres_has_roles_too_if_they_are_given():
    found = connection_secrets(VALUES["trial"], "--set", "secrets.postgresFeedback.key=feedback-dsn")
    assert found == {"feedback": "feedback-dsn"}


@SETS
def test_no_secret_is_written_down(name):
    for each in objects(VALUES[name]):
        assert each["kind"] != "Secret"
    for _, _, container in containers(name):
        for entry in container.get("env", []):
            if re.search("PASSWORD|SECRET|AUTH|__URL|__DSN|BROKER", entry["name"]):
                value = entry.get("value", "$(")
                assert "valueFrom" in entry or "$(" in value or entry["name"] == "WAKUPUSH_WAKU__URLS"


# Network policies.


def policies(name: str) -> dict[str, dict]:
    found = {}
    for each in objects(VALUES[name]):
        if each["kind"] == "NetworkPolicy":
            assert each["spec"]["policyTypes"] == ["Ingress", "Egress"]
            found[component(each)] = each["spec"]
    return found


def test_nobody_reaches_anybody_but_as_said():
    for name in ("minimal", "trial", "keda"):
        everything = policies(name)["all"]
        assert "app.kubernetes.io/component" not in everything["podSelector"]["matchLabels"]
        assert not {"ingress", "egress"} & everything.keys()
        pods = {component(each) for each, _ in pod_specs(objects(VALUES[name]))}
        assert pods <= policies(name).keys(), "a pod without a policy reaches nothing, not even the DNS"


def test_each_process_reaches_the_parts_it_needs():
    """With bundled parts, whose pods are named in the rules."""
    found = policies("trial")
    for process, parts in REACHES.items():
        reached, ports = set(), set()
        dns, *rules = found[process]["egress"]
        assert {port["port"] for port in dns["ports"]} == {53}
        for rule in rules:
            [peer] = rule["to"]
            reached.add(peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"])
            ports |= {port["port"] for port in rule["ports"]}
        assert reached == parts, process
        assert ports == {PARTS[part] for part in parts}


def test_each_part_is_reached_by_those_who_need_it():
    found = policies("trial")
    for part, port in PARTS.items():
        rule = found[part]["ingress"][0]
        callers = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]}
        assert callers == {process for process, parts in REACHES.items() if part in parts}
        assert [each["port"] for each in rule["ports"]] == [port]
    assert "egress" not in found["redis"]
    assert "egress" not in found["postgres"]


def test_parts_outside_are_reached_by_their_ports_and_where_they_are():
    for name, expected in (("minimal", {}), ("keda", {"redis": 6380})):
        found = policies(name)
        ports = {53, *(expected.get(part, port) for part, port in PARTS.items())}
        for process, parts in REACHES.items():
            rules = found[process]["egress"]
            assert {port["port"] for rule in rules for port in rule["ports"]} <= ports
            assert len(rules) == 1 + len(parts)
            anywhere = [rule for rule in rules if "to" not in rule]
            assert len(anywhere) == (len(parts) if name == "minimal" else 0)


def test_jobs_of_the_pipeline_reach_the_node_where_one_fetches_from_it():
    for name, ports in (("keda", [5432, 8645]), ("hpa", [5432])):
        [spec] = [
            each["spec"]
            for each in objects(VALUES[name], "--set", "networkPolicy.enabled=true")
            if each["kind"] == "NetworkPolicy" and component(each) == "pipeline"
        ]
        assert [port["port"] for rule in spec["egress"][1:] for port in rule["ports"]] == ports


def policy_of_doctor(rendered):
    [policy] = [
        each["spec"]
        for each in rendered
        if (each["kind"], each["metadata"]["name"]) == ("NetworkPolicy", "wakupush-doctor")
    ]
    return policy


def test_the_job_that_rebuilds_fits_the_chart():
    """Of docs/operating/restore.md."""
    page = (ROOT / "docs" / "operating" / "restore.md").read_text()
    [manifest] = [
        yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "kind: Job" in each
    ]
    fetch = "pipeline.jobs.archive.schedule=0 0 * * *,pipeline.jobs.archive.args={pipeline,fetch-archive}"
    image = "pipeline.image=registry.example/wakupush-pipeline:0.1.0"
    rendered = objects(VALUES["minimal"], "--set", fetch, "--set", image)
    specs = {component(each): spec for each, spec in pod_specs(rendered)}
    policy = policy_of_doctor(rendered)
    template = manifest["spec"]["template"]
    assert template["metadata"]["labels"] == policy["podSelector"]["matchLabels"]
    [own], [job], [worker] = (
        spec["containers"] for spec in (template["spec"], specs["pipeline"], specs["registration"])
    )
    assert own["image"] == job["image"]
    assert own["envFrom"] == job["envFrom"] == worker["envFrom"]
    env, of_worker, of_job = ({each["name"]: each for each in one["env"]} for one in (own, worker, job))
    for name in ("WAKUPUSH_REDIS__URL", "WAKUPUSH_IDENTITY_KEY_FILE"):
        assert env[name] == of_worker[name]
    assert env["WAKUPUSH_PIPELINE__ARCHIVE"] == of_job["WAKUPUSH_PIPELINE__ARCHIVE"]
    volumes = {each["name"]: each for each in template["spec"]["volumes"]}
    assert [volumes["tmp"], volumes["archive"]] == specs["pipeline"]["volumes"]
    [identity] = [each["secret"] for each in specs["registration"]["volumes"] if each["name"] == "identity"]
    assert volumes["identity"]["secret"] == {name: identity[name] for name in ("secretName", "defaultMode")}
    assert {each["name"] for each in own["volumeMounts"]} == volumes.keys()


def test_flower_metrics_and_the_webhook_are_closed_to_the_outside():
    closed, open_ = policies("minimal"), policies("keda")
    for process in REACHES:
        assert "ingress" not in closed[process]
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    for process in set(REACHES) - {"flower", "migrate", "doctor"}:
        assert monitoring in open_[process]["ingress"][0]["from"]
    [flower] = open_["flower"]["ingress"]
    assert flower["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}]
    callers = policies("trial")["feedback"]["ingress"][0]["from"]
    assert [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in callers] == ["gorush"]


@pytest.mark.parametrize("namespace", ["keda", "operators"])
def test_keda_asks_the_bundled_redis_from_where_it_is(namespace):
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    options = ["--set", "autoscaling.mode=keda", "--set-json", f"networkPolicy.kedaFrom=[{json.dumps(peer)}]"]
    rendered = objects(VALUES["trial"], *options[: 2 if namespace == "keda" else None])
    [redis] = [each for each in rendered if each["kind"] == "NetworkPolicy" and component(each) == "redis"]
    [rule] = redis["spec"]["ingress"]
    assert [each for each in rule["from"] if "namespaceSelector" in each] == [peer]


def test_null_is_nobody():
    values = [f"networkPolicy.{name}=null" for name in ("metricsFrom", "flowerFrom", "kedaFrom", "extraEgress")]
    options = ",".join(["autoscaling.mode=keda", "gorush.network.peers=null", *values])
    rendered = [each for each in objects(VALUES["trial"], "--set", options) if each["kind"] == "NetworkPolicy"]
    assert "namespaceSelector" not in str([each["spec"].get("ingress") for each in rendered])


def test_all_our_processes_may_be_let_out_besides():
    rule = {"to": [{"namespaceSelector": {"matchLabels": {"name": "tracing"}}}], "ports": [{"port": 4318}]}
    rendered = objects(VALUES["minimal"], "--set-json", f"networkPolicy.extraEgress=[{json.dumps(rule)}]")
    let_out = {component(each) for each in rendered if rule in each.get("spec", {}).get("egress", [])}
    assert let_out == REACHES.keys() - {"flower"}


def test_what_speaks_to_the_world_does_not_reach_the_cluster():
    found = policies("trial")
    for part in ("gorush", "node"):
        world = next(rule for rule in found[part]["egress"] if "ipBlock" in rule["to"][0])
        assert {"10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16"} <= set(world["to"][0]["ipBlock"]["except"])
    world = next(rule for rule in found["gorush"]["egress"] if "ipBlock" in rule["to"][0])
    assert [port["port"] for port in world["ports"]] == [443]
