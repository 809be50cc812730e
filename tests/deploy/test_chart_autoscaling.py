"""What scales the pools: between which bounds, by which metrics, and who is asked for them."""

import re

import yaml
from prometheus_client import Counter, Gauge, Histogram

from support.deploy.chart import (
    CHART,
    SENTINELS,
    VALUES,
    need,
    objects,
    of_kind,
)
from wakupush.model.queues import QUEUES
from wakupush.runtime import metrics

need("helm")


def triggers(*options):
    """The triggers of all ScaledObjects, each with the name of its own."""
    scaled = of_kind(objects(VALUES["keda"], *options), "ScaledObject")
    return [(name, trigger) for name, each in scaled.items() for trigger in each["spec"]["triggers"]]


def test_scaled_pools_begin_with_the_least_replicas():
    """Those that run already have what they have, which only an installation or upgrade sees (`lookup`)."""
    for name, kind in (("keda", "ScaledObject"), ("hpa", "HorizontalPodAutoscaler")):
        rendered = objects(VALUES[name])
        deployments = of_kind(rendered, "Deployment")
        scaled = {each["spec"]["scaleTargetRef"]["name"] for each in of_kind(rendered, kind).values()}
        assert scaled == {f"wakupush-{queue}" for queue in QUEUES}
        raised = ",".join(f"components.{queue}.autoscaling.minReplicas=3" for queue in QUEUES)
        more = of_kind(objects(VALUES[name], "--set", raised), "Deployment")
        assert {deployments[each]["spec"]["replicas"] for each in scaled} == {2}
        assert {more[each]["spec"]["replicas"] for each in scaled} == {3}
        assert all(deployments[each]["spec"]["replicas"] >= 1 for each in deployments.keys() - scaled)


def test_autoscaling_asks_for_metrics_that_exist():
    metric_names = {
        family.name
        for metric in vars(metrics).values()
        if isinstance(metric, Counter | Gauge | Histogram)
        for family in metric.describe()
    }
    queries = [trigger["metadata"]["query"] for _, trigger in triggers() if trigger["type"] == "prometheus"]
    queried_names = {name for query in queries for name in re.findall(r"wakupush_\w+", query)}
    assert queried_names == {
        *("wakupush_queue_messages", "wakupush_in_flight_messages"),
        *("wakupush_deliveries_due", "wakupush_breaker_state"),
    }
    assert queried_names <= metric_names


def kinds_of_triggers(*options):
    return {(name, trigger["type"], trigger["metricType"]) for name, trigger in triggers(*options)}


def test_redis_trigger_is_optional():
    """KEDA asks no trigger while it cannot build one of them, and it connects to Redis when it builds it."""
    pools = [f"wakupush-{queue}" for queue in QUEUES]
    of_prometheus = {(pool, "prometheus", "AverageValue") for pool in pools}
    of_redis = {(pool, "redis", "AverageValue") for pool in pools}
    assert kinds_of_triggers() == of_prometheus | of_redis
    assert kinds_of_triggers("--set", "autoscaling.redis.besidePrometheus=null") == of_prometheus
    assert kinds_of_triggers("--set", "autoscaling.prometheus.serverAddress=") == of_redis


def test_keda_shows_prometheus_who_it_is():
    options = "autoscaling.prometheus.authModes=bearer,autoscaling.prometheus.authentication.name=of-prometheus"
    of_prometheus = [trigger for _, trigger in triggers("--set", options) if trigger["type"] == "prometheus"]
    assert {trigger["metadata"]["authModes"] for trigger in of_prometheus} == {"bearer"}
    reference = {"name": "of-prometheus", "kind": "TriggerAuthentication"}
    assert [trigger["authenticationRef"] for trigger in of_prometheus] == [reference] * len(QUEUES)


def test_keda_asks_the_sentinels():
    sentinel_triggers = [trigger for _, trigger in triggers(*SENTINELS) if trigger["type"] != "prometheus"]
    assert {trigger["type"] for trigger in sentinel_triggers} == {"redis-sentinel"}
    for trigger in sentinel_triggers:
        assert trigger["metadata"]["addresses"] == "s-0:26379,s-1:26379,s-2:26379"
        assert trigger["metadata"]["sentinelMaster"] == "mymaster"
        assert trigger["metadata"]["sentinelUsername"] == "ours"
        assert "address" not in trigger["metadata"]
    authentication = of_kind(objects(VALUES["keda"], *SENTINELS), "TriggerAuthentication")["wakupush-redis"]
    assert {each["parameter"]: each["name"] for each in authentication["spec"]["secretTargetRef"]} == {
        "password": "wakupush",
        "sentinelPassword": "sentinels",
    }


def test_without_figures_no_pod_goes():
    fallbacks = [each["spec"]["fallback"] for each in of_kind(objects(VALUES["keda"]), "ScaledObject").values()]
    assert {each["behavior"] for each in fallbacks} == {"currentReplicasIfHigher"}
    assert {each["replicas"] for each in fallbacks} == {4}


def test_keda_may_replace_kubernetes_autoscalers():
    """Helm creates the ScaledObjects before it deletes these, and KEDA's admission webhook looks at them."""
    autoscalers = of_kind(objects(VALUES["hpa"]), "HorizontalPodAutoscaler").values()
    ownership = {"validations.keda.sh/hpa-ownership": "false"}
    assert [each["metadata"]["annotations"] for each in autoscalers] == [ownership] * 3


def test_autoscaler_bounds_come_from_values():
    pools = yaml.safe_load((CHART / "values.yaml").read_text())["components"]
    for name, each in of_kind(objects(VALUES["hpa"]), "HorizontalPodAutoscaler").items():
        spec, bounds = each["spec"], pools[name.removeprefix("wakupush-")]["autoscaling"]
        [metric] = spec["metrics"]
        target = {"type": "Utilization", "averageUtilization": bounds["cpu"]}
        assert metric["resource"] == {"name": "cpu", "target": target}
        assert (spec["minReplicas"], spec["maxReplicas"]) == (bounds["minReplicas"], bounds["maxReplicas"])
        assert spec["scaleTargetRef"]["name"] == name


def test_dispatch_is_capped_by_gorush():
    spec = of_kind(objects(VALUES["keda"]), "ScaledObject")["wakupush-dispatch"]["spec"]
    # All may end while as many and one begin; each has two processes, those 8 posts (settings.gorush.concurrency).
    assert (2 * spec["maxReplicaCount"] + 1) * 2 * 8 * 64 <= 32768
