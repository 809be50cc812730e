"""Network policies: who reaches whom, and who is reached from outside."""

import json

import pytest
import yaml

from support.deploy.chart import PARTS, REACHES, VALUES, component, need, objects, of_kind, pod_specs

need("helm")


def policies(name: str, *options: str) -> dict[str, dict]:
    """The specs of all policies, by the components that they are for."""
    manifests = of_kind(objects(VALUES[name], *options), "NetworkPolicy").values()
    assert all(each["spec"]["policyTypes"] == ["Ingress", "Egress"] for each in manifests)
    return {component(each): each["spec"] for each in manifests}


def test_nobody_reaches_anybody_but_as_said():
    for name in ("minimal", "trial", "keda"):
        everything = policies(name)["all"]
        assert "app.kubernetes.io/component" not in everything["podSelector"]["matchLabels"]
        assert not {"ingress", "egress"} & everything.keys()
        pods = {component(each) for each, _ in pod_specs(objects(VALUES[name]))}
        assert pods <= policies(name).keys(), "a pod without a policy reaches nothing, not even the DNS"


def test_each_process_reaches_the_parts_it_needs():
    """With bundled parts, whose pods are named in the rules."""
    specs = policies("trial")
    for process, parts in REACHES.items():
        reached, ports = set(), set()
        dns, *rules = specs[process]["egress"]
        assert dns["to"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]
        assert {port["port"] for port in dns["ports"]} == {53}
        for rule in rules:
            [peer] = rule["to"]
            reached.add(peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"])
            ports |= {port["port"] for port in rule["ports"]}
        assert reached == parts, process
        assert ports == {PARTS[part] for part in parts}


def test_each_part_is_reached_by_those_who_need_it():
    specs = policies("trial")
    for part, port in PARTS.items():
        rule = specs[part]["ingress"][0]
        callers = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]}
        assert callers == {process for process, parts in REACHES.items() if part in parts}
        assert [each["port"] for each in rule["ports"]] == [port]
    assert "egress" not in specs["redis"]
    assert "egress" not in specs["postgres"]


@pytest.mark.parametrize("name", ["minimal", "keda"])
def test_parts_outside_are_reached_by_address_and_port(name):
    """As the values say; anywhere, on the usual port, where they say nothing."""
    values = yaml.safe_load(VALUES[name].read_text())
    networks = {part: values.get(part, {}).get("network", {}) for part in PARTS}
    specs = policies(name)
    for process, parts in REACHES.items():
        _, *rules = specs[process]["egress"]
        reached = {rule["ports"][0]["port"]: rule.get("to") for rule in rules}
        expected = {networks[part].get("ports", [PARTS[part]])[0]: networks[part].get("peers") for part in parts}
        assert reached == expected, process
        assert all(port["protocol"] == "TCP" for rule in rules for port in rule["ports"])
        assert len(rules) == len(parts)


def test_jobs_that_fetch_reach_the_node():
    for name, ports in (("keda", [5432, 8645]), ("hpa", [5432])):
        _, *rules = policies(name, "--set", "networkPolicy.enabled=true")["pipeline"]["egress"]
        assert [port["port"] for rule in rules for port in rule["ports"]] == ports


def test_flower_metrics_and_webhook_are_internal():
    closed, open_ = policies("minimal"), policies("keda")
    for process in REACHES:
        assert "ingress" not in closed[process]
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    for process in REACHES.keys() - {"migrate", "doctor"}:
        [rule] = open_[process]["ingress"]
        assert (monitoring in rule["from"]) is (process != "flower")
        assert rule["ports"] == [{"port": "http", "protocol": "TCP"}]
    [flower] = open_["flower"]["ingress"]
    assert flower["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}]
    callers = policies("trial")["feedback"]["ingress"][0]["from"]
    assert [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in callers] == ["gorush"]


def test_workers_that_post_reach_the_canary_and_nobody_else_does():
    options = ("--set", "components.canary.enabled=true")
    rendered, specs = objects(VALUES["trial"], *options), policies("trial", *options)
    [rule] = specs["canary"]["ingress"]
    callers = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]}
    clients = {
        name
        for name, spec in specs.items()
        for rule in spec.get("egress", [])
        for peer in rule.get("to", [])
        if peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component") == "canary"
    }
    assert callers == clients == {"dispatch", "rest"}
    _, node = specs["canary"]["egress"]
    assert [port["port"] for port in node["ports"]] == [PARTS["node"]]
    [url] = [
        each["data"]["WAKUPUSH_CANARY__GORUSH_URL"]
        for each in rendered
        if "WAKUPUSH_CANARY__GORUSH_URL" in each.get("data", {})
    ]
    [port] = of_kind(rendered, "Service")["wakupush-canary"]["spec"]["ports"]
    assert url == f"http://wakupush-canary:{port['port']}"


@pytest.mark.parametrize("namespace", ["keda", "operators"])
def test_keda_asks_the_bundled_redis_from_where_it_is(namespace):
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    options = ["--set", "autoscaling.mode=keda", "--set-json", f"networkPolicy.kedaFrom=[{json.dumps(peer)}]"]
    [rule] = policies("trial", *options[: 2 if namespace == "keda" else None])["redis"]["ingress"]
    assert [each for each in rule["from"] if "namespaceSelector" in each] == [peer]


def test_null_is_nobody():
    values = [f"networkPolicy.{name}=null" for name in ("metricsFrom", "flowerFrom", "kedaFrom", "extraEgress")]
    options = ",".join(["autoscaling.mode=keda", "gorush.network.peers=null", *values])
    specs = policies("trial", "--set", options).values()
    assert "namespaceSelector" not in str([spec.get("ingress") for spec in specs])


def test_all_our_processes_may_be_let_out_besides():
    rule = {"to": [{"namespaceSelector": {"matchLabels": {"name": "tracing"}}}], "ports": [{"port": 4318}]}
    specs = policies("minimal", "--set-json", f"networkPolicy.extraEgress=[{json.dumps(rule)}]")
    assert {name for name, spec in specs.items() if rule in spec.get("egress", [])} == REACHES.keys() - {"flower"}


def test_external_egress_excludes_the_cluster():
    specs = policies("trial")
    for part in ("gorush", "node"):
        world = next(rule for rule in specs[part]["egress"] if "ipBlock" in rule["to"][0])
        assert {"10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16"} <= set(world["to"][0]["ipBlock"]["except"])
    world = next(rule for rule in specs["gorush"]["egress"] if "ipBlock" in rule["to"][0])
    assert [port["port"] for port in world["ports"]] == [443]


def test_prometheus_reaches_the_bundled_node():
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    options = [
        "--set-json",
        f"networkPolicy.metricsFrom=[{json.dumps(monitoring)}]",
        "--set",
        "monitoring.podMonitor=true",
    ]
    rendered = objects(VALUES["trial"], *options)
    ingress = policies("trial", *options)["node"]["ingress"]
    assert {"from": [monitoring], "ports": [{"port": 8008, "protocol": "TCP"}]} in ingress
    [monitor] = of_kind(rendered, "PodMonitor").values()
    assert [each["port"] for each in monitor["spec"]["podMetricsEndpoints"]] == ["http", "metrics"]
    [container] = of_kind(rendered, "StatefulSet")["wakupush-node"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "metrics", "containerPort": 8008} in container["ports"]
