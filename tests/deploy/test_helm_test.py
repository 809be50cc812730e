"""The pod of `helm test`: the only one that speaks to the Kubernetes API, and of what."""

import pytest

from support.deploy.chart import VALUES, component, need, objects, of_kind, pod_specs, policy_of_doctor
from wakupush.model.queues import QUEUES

need("helm")


SETS = pytest.mark.parametrize("name", VALUES)
RIGHTS = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
#: Whom the pod of `helm test` asks the Kubernetes API for.
AUTOSCALERS = {
    **{name: {f"wakupush-{pool}" for pool in QUEUES} for name in ("aws", "gcp", "hpa")},
    **{name: {f"keda-hpa-wakupush-{pool}" for pool in QUEUES} for name in ("argocd", "keda")},
    "devnet": set(),
    "minimal": set(),
    "openshift": set(),
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


def test_helm_test_checks_existing_autoscalers():
    for name, kind, prefix in (("hpa", "HorizontalPodAutoscaler", ""), ("keda", "ScaledObject", "keda-hpa-")):
        assert {prefix + each for each in of_kind(objects(VALUES[name]), kind)} == AUTOSCALERS[name]


@SETS
def test_helm_test_may_read_only_autoscalers(name):
    rendered = objects(VALUES[name])
    test = [each for each in rendered if component(each) == "doctor" and each["kind"] != "NetworkPolicy"]
    by_kind = {each["kind"]: each for each in test}
    pod = by_kind.pop("Pod")
    command, connections, number, *options = pod["spec"]["containers"][0]["args"]
    assert (command, connections, int(number) > 0) == ("doctor", "--connections", True)
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


def test_helm_test_skips_disabled_pools():
    rendered = objects(VALUES["hpa"], "--set", "components.query.enabled=false")
    [role] = of_kind(rendered, "Role").values()
    assert set(role["rules"][0]["resourceNames"]) == AUTOSCALERS["hpa"] - {"wakupush-query"}


@SETS
def test_helm_test_alone_reaches_the_kubernetes_api(name):
    rendered = objects(VALUES[name], "--set", "networkPolicy.enabled=true")
    policy = of_kind(rendered, "NetworkPolicy").get("wakupush-doctor-kubernetes")
    assert bool(policy) is bool(AUTOSCALERS[name])
    if policy is None:
        return
    [rule] = policy["spec"]["egress"]
    assert rule == {"ports": [{"port": port, "protocol": "TCP"} for port in (443, 6443)]}
    selected = policy["spec"]["podSelector"]["matchLabels"]
    [pod] = of_kind(rendered, "Pod").values()
    assert selected.items() <= pod["metadata"]["labels"].items()
    # The Job of docs/operating/restore.md has the key, and the labels of `doctor`, but does not come from Helm.
    assert not selected.items() <= policy_of_doctor(rendered)["podSelector"]["matchLabels"].items()
