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
)
from wakupush.model.queues import QUEUES
from wakupush.runtime import metrics

need("helm")


def test_scaled_pools_begin_with_the_least_replicas():
    """Those that run already have what they have, which only an installation or upgrade sees (`lookup`)."""
    for name, kind in (("keda", "ScaledObject"), ("hpa", "HorizontalPodAutoscaler")):
        rendered = objects(VALUES[name])
        deployments = {each["metadata"]["name"]: each["spec"] for each in rendered if each["kind"] == "Deployment"}
        scaled = [each["spec"]["scaleTargetRef"]["name"] for each in rendered if each["kind"] == kind]
        assert sorted(scaled) == ["wakupush-dispatch", "wakupush-query", "wakupush-registration"]
        least = {each: "components." + each.removeprefix("wakupush-") for each in scaled}
        assert {deployments[each]["replicas"] for each in scaled} == {2}
        raised = ",".join(f"{each}.autoscaling.minReplicas=3" for each in least.values())
        more = {
            each["metadata"]["name"]: each["spec"]["replicas"]
            for each in objects(VALUES[name], "--set", raised)
            if each["kind"] == "Deployment" and each["metadata"]["name"] in scaled
        }
        assert set(more.values()) == {3}
        others = set(deployments) - set(scaled)
        assert all(deployments[each]["replicas"] >= 1 for each in others)


def test_autoscaling_asks_for_metrics_that_exist():
    known = {
        family.name
        for metric in vars(metrics).values()
        if isinstance(metric, Counter | Gauge | Histogram)
        for family in metric.describe()
    }
    queries = [
        trigger["metadata"]["query"]
        for each in objects(VALUES["keda"])
        if each["kind"] == "ScaledObject"
        for trigger in each["spec"]["triggers"]
        if trigger["type"] == "prometheus"
    ]
    asked = {name for query in queries for name in re.findall(r"wakupush_\w+", query)}
    assert asked == {
        *("wakupush_queue_messages", "wakupush_in_flight_messages"),
        *("wakupush_deliveries_due", "wakupush_breaker_state"),
    }
    assert asked <= known


def triggers(*options):
    return {
        (each["metadata"]["name"], trigger["type"], trigger["metricType"])
        for each in objects(VALUES["keda"], *options)
        if each["kind"] == "ScaledObject"
        for trigger in each["spec"]["triggers"]
    }


def test_redis_trigger_is_optional():
    """KEDA asks no trigger while it cannot build one of them, and it connects to Redis when it builds it."""
    pools = [f"wakupush-{queue}" for queue in QUEUES]
    of_prometheus = {(pool, "prometheus", "AverageValue") for pool in pools}
    of_redis = {(pool, "redis", "AverageValue") for pool in pools}
    assert triggers() == of_prometheus | of_redis
    assert triggers("--set", "autoscaling.redis.besidePrometheus=null") == of_prometheus
    assert triggers("--set", "autoscaling.prometheus.serverAddress=") == of_redis


def test_keda_shows_prometheus_who_it_is():
    given = "autoscaling.prometheus.authModes=bearer,autoscaling.prometheus.authentication.name=of-prometheus"
    rendered = objects(VALUES["keda"], "--set", given)
    every = [trigger for each in rendered if each["kind"] == "ScaledObject" for trigger in each["spec"]["triggers"]]
    of_prometheus = [trigger for trigger in every if trigger["type"] == "prometheus"]
    assert {trigger["metadata"]["authModes"] for trigger in of_prometheus} == {"bearer"}
    reference = {"name": "of-prometheus", "kind": "TriggerAuthentication"}
    assert [trigger["authenticationRef"] for trigger in of_prometheus] == [reference] * len(QUEUES)


def test_keda_asks_the_sentinels():
    rendered = objects(VALUES["keda"], *SENTINELS)
    asked = [
        trigger
        for each in rendered
        if each["kind"] == "ScaledObject"
        for trigger in each["spec"]["triggers"]
        if trigger["type"] != "prometheus"
    ]
    assert {trigger["type"] for trigger in asked} == {"redis-sentinel"}
    for trigger in asked:
        assert trigger["metadata"]["addresses"] == "s-0:26379,s-1:26379,s-2:26379"
        assert trigger["metadata"]["sentinelMaster"] == "mymaster"
        assert trigger["metadata"]["sentinelUsername"] == "ours"
        assert "address" not in trigger["metadata"]
    [secrets] = [
        each["spec"]["secretTargetRef"]
        for each in rendered
        if each["kind"] == "TriggerAuthentication" and each["metadata"]["name"] == "wakupush-redis"
    ]
    assert {each["parameter"]: each["name"] for each in secrets} == {
        "password": "wakupush",
        "sentinelPassword": "sentinels",
    }


def test_without_figures_no_pod_goes():
    fallbacks = [each["spec"]["fallback"] for each in objects(VALUES["keda"]) if each["kind"] == "ScaledObject"]
    assert {each["behavior"] for each in fallbacks} == {"currentReplicasIfHigher"}
    assert {each["replicas"] for each in fallbacks} == {4}


def test_keda_may_replace_kubernetes_autoscalers():
    """Helm creates the ScaledObjects before it deletes these, and KEDA's admission webhook looks at them."""
    found = [each["metadata"] for each in objects(VALUES["hpa"]) if each["kind"] == "HorizontalPodAutoscaler"]
    assert [each["annotations"] for each in found] == [{"validations.keda.sh/hpa-ownership": "false"}] * 3


def test_autoscaler_bounds_come_from_values():
    pools = yaml.safe_load((CHART / "values.yaml").read_text())["components"]
    for each in objects(VALUES["hpa"]):
        if each["kind"] == "HorizontalPodAutoscaler":
            spec = each["spec"]
            bounds = pools[each["metadata"]["name"].removeprefix("wakupush-")]["autoscaling"]
            [metric] = spec["metrics"]
            assert metric["resource"] == {
                "name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": bounds["cpu"]},
            }
            assert (spec["minReplicas"], spec["maxReplicas"]) == (bounds["minReplicas"], bounds["maxReplicas"])
            assert spec["scaleTargetRef"]["name"] == each["metadata"]["name"]


def test_dispatch_is_capped_by_gorush():
    spec = next(
        each["spec"]
        for each in objects(VALUES["keda"])
        if (each["kind"], each["metadata"]["name"]) == ("ScaledObject", "wakupush-dispatch")
    )
    # All may end while as many and one begin; each has two processes, those 8 posts (settings.gorush.concurrency).
    assert (2 * spec["maxReplicaCount"] + 1) * 2 * 8 * 64 <= 32768
