"""Executors of the pipeline: Spark's settings and pod template, the rights of drivers, and who reaches whom."""

import json

import pytest
import yaml

from support.deploy.chart import VALUES, NotRendered, component, jobs, need, objects, of_kind, pod_specs

need("helm")

CHOSEN = (
    "pipeline.executors.count=3,pipeline.executors.cores=2,pipeline.executors.memory=4g,networkPolicy.enabled=true,"
    "pipeline.warehouse=s3://lake/wakupush"
)
SPARK = "wakupush-spark"


def rendered(kind, *options):
    return of_kind(objects(VALUES["keda"], "--set", CHOSEN, *options), kind)


def settings():
    lines = rendered("ConfigMap")[SPARK]["data"]["spark-defaults.conf"].splitlines()
    return dict(line.split(" ", 1) for line in lines if not line.startswith("#"))


def template():
    return yaml.safe_load(rendered("ConfigMap")[SPARK]["data"]["executor.yaml"])


def drivers():
    """Each job's command, pod and container."""
    return jobs(objects(VALUES["keda"], "--set", CHOSEN))


def test_without_them_nothing_of_them_is_made():
    names = {each["metadata"]["name"] for each in objects(VALUES["keda"])}
    assert not any("spark" in name for name in names)
    assert not any("subdomain" in spec for _, spec in pod_specs(objects(VALUES["keda"])))


def test_a_lake_on_a_volume_is_refused():
    with pytest.raises(NotRendered, match=r"pipeline\.warehouse is missing"):
        objects(VALUES["keda"], "--set", "pipeline.executors.count=1")


def test_executors_have_the_requested_number_and_size():
    properties = settings()
    image = next(container["image"] for _, _, container in drivers())
    assert properties["spark.executor.instances"] == "3"
    assert properties["spark.executor.cores"] == properties["spark.kubernetes.executor.limit.cores"] == "2"
    assert properties["spark.executor.memory"] == "4g"
    assert properties["spark.kubernetes.container.image"] == image
    assert properties["spark.authenticate"] == properties["spark.network.crypto.enabled"] == "true"


def test_a_driver_finds_settings_and_executors_find_it():
    service = rendered("Service")[SPARK]["spec"]
    assert service["clusterIP"] == "None"
    ports = {port["name"]: str(port["port"]) for port in service["ports"]}
    assert ports == {"driver": settings()["spark.driver.port"], "blocks": settings()["spark.blockManager.port"]}
    commands, hosts = set(), set()
    for command, spec, container in drivers():
        env = {entry["name"]: entry for entry in container["env"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        if command == "fetch-archive":  # which does not use Spark
            assert not {"hostname", "subdomain"} & spec.keys()
            assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("wakupush", False)
            assert not {"SPARK_CONF_DIR", "WAKUPUSH_PIPELINE__MASTER"} & env.keys()
            continue
        assert env["SPARK_LOCAL_HOSTNAME"]["value"] == f"{spec['hostname']}.{spec['subdomain']}.push.svc"
        assert (spec["subdomain"], spec["serviceAccountName"]) == (SPARK, SPARK)
        assert spec["automountServiceAccountToken"] is True
        assert env["SPARK_CONF_DIR"]["value"] == mounts["spark"]
        assert env["WAKUPUSH_PIPELINE__MASTER"]["value"].startswith("k8s://https://$(KUBERNETES_SERVICE_HOST)")
        assert env["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
        assert settings()["spark.kubernetes.driver.pod.name"] == "${env:POD_NAME}"
        assert settings()["spark.kubernetes.executor.podTemplateFile"] == f"{mounts['spark']}/executor.yaml"
        commands.add(command)
        hosts.add(f"wakupush-{spec['hostname']}")
    assert commands == {"export", "tidy", "report"}
    assert len(hosts) == 3
    assert hosts < rendered("CronJob").keys()


def test_jobs_without_executors_are_the_charts_account():
    """A cloud gives its role to pods by their account."""
    for name in ("hpa", "keda"):
        assert {spec["serviceAccountName"] for _, spec, _ in jobs(objects(VALUES[name]))} == {"wakupush"}
    own = objects(VALUES["keda"], "--set", "serviceAccount.create=false,serviceAccount.name=mine")
    assert {spec["serviceAccountName"] for _, spec, _ in jobs(own)} == {"mine"}


def test_drivers_have_the_annotations_of_the_charts_account():
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::000000000000:role/wakupush"}
    accounts = rendered("ServiceAccount", "--set-json", f"serviceAccount.annotations={json.dumps(role)}")
    assert {name: each["metadata"].get("annotations") for name, each in accounts.items() if "doctor" not in name} == {
        "wakupush": role,
        SPARK: role,
    }


def test_executors_have_labels_and_annotations_of_all_pods():
    options = ["--set", "pod.labels.mesh=none,pod.annotations.inject=no"]
    metadata = yaml.safe_load(rendered("ConfigMap", *options)[SPARK]["data"]["executor.yaml"])["metadata"]
    assert metadata["labels"].items() >= {"mesh": "none", **template()["metadata"]["labels"]}.items()
    assert metadata["annotations"] == {"inject": "no"}
    assert "annotations" not in template()["metadata"]


def test_executors_are_restricted_and_have_no_token():
    spec = template()["spec"]
    [container] = spec["containers"]
    [(_, driver, of_driver), *_] = drivers()
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] != SPARK
    assert spec["securityContext"] == driver["securityContext"]
    assert container["securityContext"] == of_driver["securityContext"]
    assert container["command"] == ["python", "-m", "wakupush.pipeline.executor"]
    [volume] = spec["volumes"]
    assert "sizeLimit" in volume["emptyDir"]
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/tmp"}]  # noqa: S108 - in the container


def test_a_driver_may_have_pods_and_nothing_else():
    [rule] = rendered("Role")[SPARK]["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
    assert {"create", "delete"} <= set(rule["verbs"])
    assert "*" not in rule["verbs"]
    binding = rendered("RoleBinding")[SPARK]
    assert [subject["name"] for subject in binding["subjects"]] == [SPARK]


def test_executors_reach_driver_and_postgres():
    policies = rendered("NetworkPolicy")
    between = policies[SPARK]["spec"]
    [ingress], [egress] = between["ingress"], between["egress"]
    assert ingress["from"] == egress["to"] == [{"podSelector": between["podSelector"]}]
    [expression] = between["podSelector"]["matchExpressions"]
    assert set(expression["values"]) == {"pipeline", component(template())}
    assert {port["port"] for port in ingress["ports"]} == {port["port"] for port in egress["ports"]} == {7078, 7079}
    kubernetes = policies[f"{SPARK}-kubernetes"]["spec"]
    assert kubernetes["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "pipeline"
    executor = policies["wakupush-executor"]["spec"]
    assert 5432 in {port["port"] for rule in executor["egress"] for port in rule["ports"]}
    assert executor["podSelector"]["matchLabels"].items() <= template()["metadata"]["labels"].items()
