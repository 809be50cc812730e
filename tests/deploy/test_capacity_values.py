"""What `wakupush pipeline capacity` prints is values that the chart takes, and scales by."""

import math

import pytest
import yaml

from support.deploy.chart import CHART, VALUES, NotRendered, need, objects, of_kind, render

pytest.importorskip("pyspark", reason="pyspark is not installed: install wakupush[pipeline]")
need("helm")

from wakupush.model.queues import QUEUES  # noqa: E402 - with it
from wakupush.pipeline import capacity  # noqa: E402 - needs pyspark

QUESTION = capacity.Question(wait=0.25, users=1, gorush=0.05, costs=capacity.COSTS, connections=8, notifications=64)


def plan(busiest: int) -> capacity.CapacityPlan:
    """Return a plan that needs so many processes in its busiest hour."""
    pools = tuple(
        capacity.Pool(
            queue=queue,
            messages=1000,
            batch=2.5,
            cost=0.001,
            processes={0: 1, 9: busiest},
            mean_processes=1,
            p99_wait=0.1,
            late=0.0,
        )
        for queue in QUEUES
    )
    return capacity.CapacityPlan(question=QUESTION, pools=pools)


@pytest.fixture
def values(tmp_path):
    """Write what is printed for a plan into a file of values."""

    def write(busiest):
        path = tmp_path / f"{busiest}.yaml"
        path.write_text(capacity.describe(plan(busiest)))
        return path

    return write


@pytest.mark.parametrize("busiest", [1, 9, 90])
def test_pools_are_scaled_as_planned(values, busiest):
    scalers = of_kind(objects(VALUES["keda"], "--values", values(busiest)), "ScaledObject")
    assert scalers.keys() == {f"wakupush-{queue}" for queue in QUEUES}
    replicas = max(2, math.ceil(busiest / capacity.CONCURRENCY))
    messages = int(QUESTION.wait * capacity.USE / 0.001)
    for each in scalers.values():
        spec = each["spec"]
        assert spec["minReplicaCount"] == 2
        assert spec["maxReplicaCount"] == max(3, math.ceil(1.5 * replicas))
        assert spec["fallback"]["replicas"] == replicas
        thresholds = {each["type"]: each["metadata"] for each in spec["triggers"]}
        assert thresholds["prometheus"]["threshold"] == str(capacity.CONCURRENCY * messages)
        assert thresholds["redis"]["listLength"] == str(int(messages * capacity.CONCURRENCY / 2.5))


@pytest.mark.parametrize("busiest", [1, 90])
def test_unscaled_pools_fit_the_busiest_hour(values, busiest):
    rendered = objects(VALUES["minimal"], "--values", values(busiest), "--set", "settings.gorush.concurrency=8")
    deployments = of_kind(rendered, "Deployment")
    replicas = {deployments[f"wakupush-{queue}"]["spec"]["replicas"] for queue in QUEUES}
    assert replicas == {max(2, math.ceil(busiest / capacity.CONCURRENCY))}


def test_plan_beyond_gorushs_queue_is_refused(values, tmp_path):
    changed = yaml.safe_load(values(90).read_text())
    chart = yaml.safe_load((CHART / "values.yaml").read_text())
    assert changed.pop("gorush")["queueNum"] > capacity.GORUSH_QUEUE == chart["gorush"]["queueNum"]
    path = tmp_path / "without.yaml"
    path.write_text(yaml.safe_dump(changed))
    with pytest.raises(NotRendered, match="queueNum"):
        render(VALUES["keda"], "--values", path)
