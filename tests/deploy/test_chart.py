"""The chart renders what it should, Kubernetes and the operators would take it, and nonsense is refused."""

import difflib
import json
import re
import shutil
import subprocess

import jsonschema
import kubernetes_validate
import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from support.deploy.chart import (
    CHART,
    GOLDEN,
    KUBERNETES,
    ROOT,
    VALUES,
    NotRendered,
    documented_values,
    helm,
    need,
    objects,
    pod_specs,
    render,
    tool,
    values_schema,
    values_table,
)
from support.deploy.schemas import SPECS, schema
from wakupush.model.queues import QUEUES
from wakupush.runtime import metrics
from wakupush.runtime.settings import Settings

need("helm")

MINIMAL = VALUES["minimal"]
RESTORE = ROOT / "docs" / "operating" / "restore.md"


def test_helm_is_installed():
    assert tool("helm")


@pytest.mark.parametrize("name", VALUES)
def test_lint_is_strict(name):
    result = helm("lint", "--strict", "--kube-version", KUBERNETES, "--values", VALUES[name], CHART)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", VALUES)
def test_rendered_as_the_golden_file(name):
    golden, rendered = (GOLDEN / f"{name}.yaml").read_text(), render(VALUES[name])
    if golden != rendered:
        lines = difflib.unified_diff(golden.splitlines(), rendered.splitlines(), "golden", "rendered", lineterm="", n=2)
        pytest.fail("\n".join(list(lines)[:80]) + "\n\nif this is meant: make golden", pytrace=False)


def test_golden_files_are_those_of_values():
    assert {path.stem for path in GOLDEN.iterdir()} == set(VALUES)


@pytest.mark.parametrize("name", VALUES)
def test_objects_fit_their_schemas(name):
    kinds = {(each["apiVersion"], each["kind"]) for each in objects(VALUES[name])}
    assert len(kinds) > 5
    for each in objects(VALUES[name]):
        if (each["apiVersion"], each["kind"]) in SPECS:
            jsonschema.validate(each, schema(each["apiVersion"], each["kind"]))
        else:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_every_custom_resource_is_rendered_by_some_values():
    rendered = {(each["apiVersion"], each["kind"]) for values in VALUES.values() for each in objects(values)}
    assert set(SPECS) <= rendered | {("monitoring.coreos.com/v1", "PrometheusRule")}
    # There is a PrometheusRule and a dashboard for each file.
    kinds = [each["kind"] for each in objects(VALUES["keda"])]
    assert kinds.count("PrometheusRule") == len(list(CHART.glob("files/rules/*.yaml")))
    dashboards = [each for each in objects(VALUES["keda"]) if "grafana_dashboard" in each["metadata"]["labels"]]
    assert len(dashboards) == len(list(CHART.glob("files/dashboards/*.json")))
    for each in dashboards:
        [text] = each["data"].values()
        assert json.loads(text)["title"]


def test_alerts_link_to_where_the_runbook_is_read():
    address = "https://example.org/runbook.md"
    rendered = objects(VALUES["keda"], "--set", f"monitoring.runbookUrl={address}")
    [rule] = [each for each in rendered if each["kind"] == "PrometheusRule"]
    links = {alert["annotations"]["runbook_url"] for group in rule["spec"]["groups"] for alert in group["rules"]}
    assert len(links) > 10
    assert {link.partition("#")[0] for link in links} == {address}


@pytest.mark.parametrize("name", VALUES)
def test_names_are_unique_and_selectors_find_their_pods(name):
    rendered = objects(VALUES[name])
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered]
    assert len(names) == len(set(names))
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in rendered if "template" in each.get("spec", {})]
    pods += [each["metadata"]["labels"] for each in rendered if each["kind"] == "Pod"]
    pods += [
        each["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
        for each in rendered
        if each["kind"] == "CronJob"
    ]
    for each in rendered:
        match each["kind"]:
            case "Service":
                wanted = [each["spec"]["selector"]]
            case "Deployment" | "StatefulSet" | "PodDisruptionBudget":
                wanted = [each["spec"]["selector"]["matchLabels"]]
            case "NetworkPolicy":
                wanted = [each["spec"]["podSelector"]["matchLabels"]]
            case _:
                continue
        for labels in wanted:
            assert any(labels.items() <= pod.items() for pod in pods), each["metadata"]["name"]


def hooks(name, hook):
    return [
        each
        for each in objects(VALUES[name])
        if hook in each["metadata"].get("annotations", {}).get("helm.sh/hook", "")
    ]


@pytest.mark.parametrize("name", VALUES)
def test_what_runs_before_the_installation_needs_nothing_of_it(name):
    before = hooks(name, "pre-install")
    assert bool(before) == (name != "trial")  # which migrates its own Postgres, so after the installation
    for each in before:
        assert not re.search("configMap|serviceAccountName", str(each["spec"]))


def test_migrations_run_before_the_code_and_secrets_come_first():
    for name in ("minimal", "keda", "hpa"):
        [before] = [each for each in hooks(name, "pre-upgrade") if each["kind"] == "Job"]
        assert before["spec"]["template"]["spec"]["containers"][0]["args"] == ["migrate", "--pre"]
        # Old pods still end after an upgrade, however it waits: what they need goes with the next one.
        assert not hooks(name, "post-upgrade")
    secrets = [each for each in hooks("keda", "pre-install") if each["kind"] == "ExternalSecret"]
    assert {each["metadata"]["name"] for each in secrets} == {"wakupush", "wakupush-identity"}
    [job] = [each for each in hooks("keda", "pre-install") if each["kind"] == "Job"]
    for each in secrets:
        assert int(_weight(each)) < int(_weight(job))
        assert each["spec"]["target"]["creationPolicy"] == "Orphan"
    # With the bundled Postgres, which a hook would not find: a Job of its own for each revision.
    assert not hooks("trial", "pre-install")
    [job] = [each for each in objects(VALUES["trial"]) if each["kind"] == "Job"]
    assert (job["metadata"]["name"], "annotations" in job["metadata"]) == ("wakupush-migrate-1", False)


def _weight(each):
    return each["metadata"]["annotations"]["helm.sh/hook-weight"]


def test_what_is_switched_off_has_no_budget_either():
    rendered = objects(VALUES["trial"], "--set", "podDisruptionBudget.enabled=false")
    assert "PodDisruptionBudget" not in {each["kind"] for each in rendered}


@pytest.mark.parametrize("component", yaml.safe_load((CHART / "values.yaml").read_text())["components"])
def test_what_is_switched_off_is_not_there(component):
    rendered = objects(MINIMAL, "--set", f"components.{component}.enabled=false")
    left = {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in rendered}
    assert component not in left
    assert len(left) > 8


def test_nothing_writes_while_a_database_is_restored():
    """By the command of docs/operating/restore.md, whose braces are the shell's."""
    [command] = re.findall(r"helm upgrade (wakupush [^\n]+--reuse-values(?:[^\n]+\\\n)*[^\n]+)", RESTORE.read_text())
    shell = subprocess.run(["bash", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True, check=True)
    options = shell.stdout.split()
    assert "--no-hooks" in options
    rendered = objects(VALUES["keda"], "--no-hooks", *(each for each in options if each.startswith("--set=")))
    jobs = [each["spec"]["suspend"] for each in rendered if each["kind"] == "CronJob"]
    assert jobs
    assert all(jobs)
    running = {each["metadata"]["name"] for each, _ in pod_specs(rendered) if each["kind"] != "CronJob"}
    assert running == {"wakupush-exporter", "wakupush-flower"}
    assert "ScaledObject" not in {each["kind"] for each in rendered}


def test_a_component_may_be_placed_by_itself():
    options = [
        "--set",
        "pod.nodeSelector.pool=all,pod.nodeSelector.zone=a,components.query.pod.nodeSelector.pool=query",
    ]
    found = {each["metadata"]["name"]: spec["nodeSelector"] for each, spec in pod_specs(objects(MINIMAL, *options))}
    assert found.pop("wakupush-query") == {"pool": "query"}
    assert all(each == {"pool": "all", "zone": "a"} for each in found.values())


def test_names_stay_short_with_the_longest_release():
    result = helm("template", "r" * 53, CHART, "--kube-version", KUBERNETES, "--values", VALUES["trial"])
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(result.stdout) if each]
    assert len(names) > 40
    assert max(map(len, names)) <= 63


def test_pools_that_are_scaled_never_begin_with_fewer_than_the_least():
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


def test_redis_is_asked_beside_prometheus_only_if_that_is_wanted():
    """KEDA asks no trigger while it cannot build one of them, and it connects to Redis when it builds it."""
    pools = [f"wakupush-{queue}" for queue in QUEUES]
    of_prometheus = {(pool, "prometheus", "AverageValue") for pool in pools}
    of_redis = {(pool, "redis", "AverageValue") for pool in pools}
    assert triggers() == of_prometheus | of_redis
    assert triggers("--set", "autoscaling.redis.besidePrometheus=null") == of_prometheus
    assert triggers("--set", "autoscaling.prometheus.serverAddress=") == of_redis


SENTINELS = (
    *("--set", "redis.sentinel.addresses={s-0:26379,s-1:26379,s-2:26379}"),
    *("--set", "redis.sentinel.user=ours", "--set", "redis.sentinel.passwordSecret.name=sentinels"),
    *("--set", "autoscaling.redis.sentinelMaster=mymaster"),
)


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
        "password": "redis-password",
        "sentinelPassword": "sentinels",
    }


def test_everybody_who_reaches_redis_knows_its_sentinels():
    for _, spec in pod_specs(objects(VALUES["keda"], *SENTINELS)):
        for container in spec["containers"]:
            names = {each["name"] for each in container.get("env", [])}
            given = {name for name in names if name.startswith("WAKUPUSH_REDIS__SENTINEL")}
            reaches = names & {"WAKUPUSH_REDIS__URL", "CELERY_BROKER_URL"}
            assert len(given) == (3 if reaches else 0), container["name"]


def test_without_figures_no_pod_goes():
    fallbacks = [each["spec"]["fallback"] for each in objects(VALUES["keda"]) if each["kind"] == "ScaledObject"]
    assert {each["behavior"] for each in fallbacks} == {"currentReplicasIfHigher"}
    assert {each["replicas"] for each in fallbacks} == {4}


def test_keda_may_take_over_from_the_autoscalers_of_kubernetes():
    """Helm creates the ScaledObjects before it deletes these, and KEDA's admission webhook looks at them."""
    found = [each["metadata"] for each in objects(VALUES["hpa"]) if each["kind"] == "HorizontalPodAutoscaler"]
    assert [each["annotations"] for each in found] == [{"validations.keda.sh/hpa-ownership": "false"}] * 3


def test_dispatch_is_capped_by_gorush():
    spec = next(
        each["spec"]
        for each in objects(VALUES["keda"])
        if (each["kind"], each["metadata"]["name"]) == ("ScaledObject", "wakupush-dispatch")
    )
    # All may end while as many and one begin; each has two processes, those 8 posts (settings.gorush.concurrency).
    assert (2 * spec["maxReplicaCount"] + 1) * 2 * 8 * 64 <= 32768


@pytest.mark.parametrize("mode", ["none", "keda"])
def test_the_bundled_postgres_takes_the_connections_of_all(mode):
    rendered = objects(VALUES["trial"], "--set", f"autoscaling.mode={mode}")
    pods = {
        each["metadata"]["name"]: each["spec"].get("maxReplicaCount") or each["spec"]["replicas"]
        for kind in ("Deployment", "ScaledObject")
        for each in rendered
        if each["kind"] == kind
    }
    pools = sum(2 * pods[f"wakupush-{pool}"] + 1 for pool in QUEUES)
    others = sum(2 * pods[f"wakupush-{name}"] + 1 for name in ("reconcile", "beat", "feedback", "exporter"))
    needed = (2 * pools + others) * Settings.model_fields["postgres"].default.pool_size
    [args] = [
        spec["containers"][0]["args"] for each, spec in pod_specs(rendered) if "postgres" in str(each["metadata"])
    ]
    assert args[:2] == ["postgres", "-c"]
    assert int(args[2].removeprefix("max_connections=")) >= needed + 10 > 100


REFUSED = {
    "a value nobody knows": (["--set", "replicas=3"], "replicas"),
    "a component nobody knows": (["--set", "components.spark.enabled=true"], "spark"),
    "two kinds of Redis": (
        ["--set", "redis.bundled.enabled=true,redis.sentinel.addresses={a:1}"],
        "redis: sentinel.addresses and bundled.enabled are both set",
    ),
    "a primary without Sentinels": (
        ["--set", "autoscaling.redis.sentinelMaster=mymaster"],
        "redis.sentinel.addresses is missing",
    ),
    "a setting nobody knows": (["--set", "settings.waku.tiemout=5"], "tiemout"),
    "a setting that the chart sets": (["--set", "settings.redis.url=redis://x"], "url"),
    "a setting of the wrong type": (["--set", "settings.waku.timeout=soon"], "/settings/waku/timeout"),
    "a dialect nobody speaks": (["--set", "settings.gorush.dialect=french"], "/settings/gorush/dialect"),
    "latest": (["--set", "image.tag=latest"], "/image/tag"),
    "latest of a bundled part": (["--set", "redis.bundled.image=redis:latest"], "/redis/bundled/image"),
    "an image without a version": (["--set", "postgres.bundled.image=postgres"], "/postgres/bundled/image"),
    "a short digest": (["--set", "image.digest=sha256:abc"], "/image/digest"),
    "no key": (["--set", "publicKey="], "publicKey is missing: `wakupush keygen` prints it"),
    "a private key as public key": (["--set", "publicKey=" + "ab" * 32], "/publicKey"),
    "no node": (["--set", "node.urls=null"], "node.urls is missing: say where it is, or set node.bundled.enabled"),
    "no gorush": (["--set", "gorush.url="], "gorush.url is missing: say where it is, or set gorush.bundled.enabled"),
    "a URL with a password": (["--set", "gorush.url=http://user:secret@gorush:8088"], "/gorush/url"),
    "two gorushes": (["--set", "gorush.bundled.enabled=true"], "gorush: an URL and bundled.enabled are both set"),
    "iOS without a team": (
        ["--set", "gorush.url=,gorush.bundled.enabled=true,gorush.bundled.ios.enabled=true"],
        "/gorush/bundled/ios",
    ),
    "no pods": (["--set", "components.query.replicas=0"], "/components/query/replicas"),
    "scaling to nothing": (
        ["--set", "autoscaling.mode=hpa,components.dispatch.autoscaling.minReplicas=0"],
        "/components/dispatch/autoscaling/minReplicas",
    ),
    "more at least than at most": (
        ["--set", "autoscaling.mode=hpa,components.query.autoscaling.minReplicas=20"],
        "components.query.autoscaling: minReplicas is above maxReplicas",
    ),
    "a pod that is killed in its task": (
        ["--set", "components.query.terminationGracePeriodSeconds=30"],
        "/components/query/terminationGracePeriodSeconds",
    ),
    "a pod that is killed in its post": (
        ["--set", "settings.delivery.lease=300"],
        "components.dispatch.terminationGracePeriodSeconds must be at least 330",
    ),
    "a lease that is shorter than a post": (
        ["--set", "settings.gorush.timeout=130"],
        "settings.delivery.lease must be at least 155",
    ),
    "shards that the bundled node cannot have": (
        ["--set", "node.urls=null,node.bundled.enabled=true,settings.waku.shards={waku-32}"],
        "settings.waku.shards: waku-32 is no static shard",
    ),
    "shards of two clusters": (
        ["--set", "node.urls=null,node.bundled.enabled=true,settings.waku.shards={/waku/2/rs/16/32,/waku/2/rs/1/0}"],
        "settings.waku.shards are of several clusters",
    ),
    "more posts than gorush holds": (
        ["--set", "components.dispatch.replicas=8"],
        "17 pods (with those that end) x 2 processes x 16 posts x 64 notifications are 34816, above gorush.queueNum",
    ),
    "more posts than a gorush of one's own holds": (
        ["--set", "gorush.queueNum=8192,components.dispatch.replicas=5"],
        "core.queue_num of a gorush of your own",
    ),
    "scaling past gorush": (
        ["--set", "autoscaling.mode=hpa,components.dispatch.autoscaling.maxReplicas=8"],
        "17 pods (with those that end)",
    ),
    "KEDA without numbers": (["--set", "autoscaling.mode=keda"], "autoscaling.mode is keda, which needs"),
    "KEDA without the exporter": (
        [
            "--set",
            "autoscaling.mode=keda,autoscaling.prometheus.serverAddress=http://p:9090,components.exporter.enabled=false",
        ],
        "components.exporter.enabled is false",
    ),
    "an unknown way of scaling": (["--set", "autoscaling.mode=magic"], "/autoscaling/mode"),
    "a store without a name": (["--set", "externalSecrets.enabled=true"], "externalSecrets.store.name is missing"),
    "a secret that is nowhere": (
        ["--set", "externalSecrets.enabled=true,externalSecrets.store.name=vault"],
        "externalSecrets.remote.identity is missing",
    ),
    "no limits": (["--set", "components.beat.resources.limits=null"], "/components/beat/resources"),
    "two Flowers": (["--set", "components.flower.replicas=2"], "/components/flower/replicas"),
    "jobs without an image": (
        ["--set", "pipeline.jobs.daily.schedule=15 2 * * *,pipeline.jobs.daily.args={pipeline,report}"],
        "pipeline.image is missing",
    ),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_nonsense_is_refused_with_a_clear_message(options, words):
    with pytest.raises(NotRendered) as refused:
        render(MINIMAL, *options)
    assert words in str(refused.value).replace("'", "")


def test_all_problems_are_told_at_once():
    with pytest.raises(NotRendered, match="cannot be installed like this") as refused:
        render()
    assert str(refused.value).count("\n  - ") == 3


def test_schema_is_that_of_the_program():
    assert (CHART / "values.schema.json").read_text() == values_schema(), "run: make golden"


def test_every_value_is_documented():
    assert values_table() in (CHART / "README.md").read_text(), "run: make golden"
    assert set(_leaves(yaml.safe_load((CHART / "values.yaml").read_text()))) == documented_values()


def _leaves(values, path=()):
    """Names of values that are no groups of others: a group's values have comments of their own."""
    documented = documented_values()
    for name, value in values.items():
        dotted = ".".join((*path, name))
        if isinstance(value, dict) and value and dotted not in documented:
            yield from _leaves(value, (*path, name))
        else:
            yield dotted


def test_every_value_of_the_schema_has_a_default():
    schema_ = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())

    def compare(properties, values, path):
        known = {name: each for name, each in properties.items() if name != "global"}
        if path and path[-1] in {"pod", "peers", "remote"}:
            return
        missing = set(values) - set(known)
        assert not missing, (path, missing)
        absent = {name for name in set(known) - set(values) if name != "pod"}
        assert not absent, (path, absent)
        for name, each in known.items():
            if "properties" in each and isinstance(values.get(name), dict):
                compare(each["properties"], values[name], (*path, name))

    compare(schema_["properties"], defaults, ())


@pytest.fixture
def notes(tmp_path):
    # Helm shows them when it installs, for which it wants a cluster: so they are put into an object.
    chart = shutil.copytree(CHART, tmp_path / "wakupush")
    (chart / "templates" / "notes.yaml").write_text(
        'notes: {{ include (print .Template.BasePath "/NOTES.txt") . | quote }}\n'
    )

    def show(name, *more):
        options = ["--kube-version", KUBERNETES, "--values", VALUES[name], "--show-only", "templates/notes.yaml", *more]
        result = helm("template", "wakupush", chart, *options)
        assert result.returncode == 0, result.stderr
        return yaml.safe_load(result.stdout)["notes"]

    return show


def test_notes_say_what_is_needed(notes):
    text = notes("trial")
    for words in ("helm test wakupush", "wakupush-identity, key identity.key", "wakupush-gorush", "postgres-password"):
        assert words in text
    assert "WARNING: the bundled Redis and Postgres are for trials." in text
    assert "network.peers is empty" not in text  # everything is bundled


def test_notes_warn_of_what_policies_cut_off(notes):
    metrics_, webhook = "networkPolicy.metricsFrom is empty", "gorush's webhook does not reach wakupush-feedback"
    assert metrics_ in notes("minimal", "--set", "monitoring.podMonitor=true")
    keda = ("--set", "autoscaling.mode=keda,autoscaling.prometheus.serverAddress=http://prometheus:9090")
    assert metrics_ in notes("minimal", *keda)
    assert metrics_ not in notes("minimal")
    assert webhook in notes("minimal")
    assert webhook not in notes("minimal", "--set", "components.feedback.enabled=false")
    for name in ("keda", "trial", "hpa"):
        text = notes(name)
        assert metrics_ not in text
        assert webhook not in text
