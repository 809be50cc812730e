"""The values of the chart: nonsense is refused in clear words, the schema is the program's, the notes warn."""

import json
import shutil
from functools import reduce
from operator import getitem

import pytest
import yaml

from support.deploy.chart import (
    CHART,
    KUBERNETES,
    VALUES,
    NotRendered,
    documented_values,
    helm,
    need,
    render,
    values_schema,
    values_table,
)

need("helm")


MINIMAL = VALUES["minimal"]
REFUSED = {
    "a value nobody knows": ("replicas=3", "replicas"),
    "a component nobody knows": ("components.spark.enabled=true", "spark"),
    "two kinds of Redis": (
        "redis.bundled.enabled=true,redis.sentinel.addresses={a:1}",
        "redis: sentinel.addresses and bundled.enabled are both set",
    ),
    "a primary without Sentinels": ("autoscaling.redis.sentinelMaster=mymaster", "redis.sentinel.addresses is missing"),
    "a setting nobody knows": ("settings.waku.tiemout=5", "tiemout"),
    "a setting that the chart sets": ("settings.redis.url=redis://x", "url"),
    "a setting of the wrong type": ("settings.waku.timeout=soon", "/settings/waku/timeout"),
    "a profile that is not there": (
        "settings.gorush.dialect=french",
        "settings.gorush.dialect: there is no profile french",
    ),
    "a profile of a name that is none": ("settings.profiles.French.text=x", "/settings/profiles"),
    "a profile that is built in": ("settings.profiles.spec.text=x", "/settings/profiles/spec"),
    "a profile with an unknown key": ("settings.profiles.mine.txt=x", "/settings/profiles/mine"),
    "a profile of a wrong type": ("settings.profiles.mine.mention.badge=yes", "/settings/profiles/mine/mention/badge"),
    "an app of a name that is none": ("settings.apps.Nightly.firebase=true", "/settings/apps"),
    "an app with an unknown key": ("settings.apps.nightly.topic=x", "/settings/apps/nightly"),
    "an app's secret in the clear": ("settings.apps.nightly.feedback_secret=x", "/settings/apps/nightly"),
    "latest": ("image.tag=latest", "/image/tag"),
    "latest of a bundled part": ("redis.bundled.image=redis:latest", "/redis/bundled/image"),
    "an image without a version": ("postgres.bundled.image=postgres", "/postgres/bundled/image"),
    "a short digest": ("image.digest=sha256:abc", "/image/digest"),
    "no key": ("publicKey=", "publicKey is missing: `wakupush keygen` prints it"),
    "a private key as public key": ("publicKey=" + "ab" * 32, "/publicKey"),
    "no node": ("node.urls=null", "node.urls is missing: say where it is, or set node.bundled.enabled"),
    "no gorush": ("gorush.url=", "gorush.url is missing: say where it is, or set gorush.bundled.enabled"),
    "a URL with a password": ("gorush.url=http://user:secret@gorush:8088", "/gorush/url"),
    "two gorushes": ("gorush.bundled.enabled=true", "gorush: an URL and bundled.enabled are both set"),
    "iOS without a team": (
        "gorush.url=,gorush.bundled.enabled=true,gorush.bundled.ios.enabled=true",
        "/gorush/bundled/ios",
    ),
    "no pods": ("components.query.replicas=0", "/components/query/replicas"),
    "scaling to nothing": (
        "autoscaling.mode=hpa,components.dispatch.autoscaling.minReplicas=0",
        "/components/dispatch/autoscaling/minReplicas",
    ),
    "more at least than at most": (
        "autoscaling.mode=hpa,components.query.autoscaling.minReplicas=20",
        "components.query.autoscaling: minReplicas is above maxReplicas",
    ),
    "a pod that is killed in its task": (
        "components.query.terminationGracePeriodSeconds=30",
        "/components/query/terminationGracePeriodSeconds",
    ),
    "a pod that is killed in its post": (
        "settings.delivery.lease=300",
        "components.dispatch.terminationGracePeriodSeconds must be at least 330",
    ),
    "a lease that is shorter than a post": (
        "settings.gorush.timeout=130",
        "settings.delivery.lease must be at least 160",
    ),
    "a lease in minutes that is shorter than a post": (
        "settings.gorush.timeout=2m,settings.delivery.lease=2m",
        "settings.delivery.lease must be at least 150",
    ),
    "a time without a known unit": ("settings.waku.timeout=5 min", "/settings/waku/timeout"),
    "shards that the bundled node cannot have": (
        "node.urls=null,node.bundled.enabled=true,settings.waku.shards={waku-32}",
        "settings.waku.shards: waku-32 is no static shard",
    ),
    "shards of two clusters": (
        "node.urls=null,node.bundled.enabled=true,settings.waku.shards={/waku/2/rs/16/32,/waku/2/rs/1/0}",
        "settings.waku.shards are of several clusters",
    ),
    "more posts than gorush holds": (
        "components.dispatch.replicas=8",
        "37 processes (with those of pods that end) x 16 posts x 64 notifications are 37888, above gorush.queueNum",
    ),
    "more posts than a gorush of one's own holds": (
        "gorush.queueNum=8192,components.dispatch.replicas=5",
        "core.queue_num of a gorush of your own",
    ),
    "scaling past gorush": (
        "autoscaling.mode=hpa,components.dispatch.autoscaling.maxReplicas=8",
        "37 processes (with those of pods that end)",
    ),
    "KEDA without numbers": ("autoscaling.mode=keda", "autoscaling.mode is keda, which needs"),
    "KEDA without the exporter": (
        "autoscaling.mode=keda,autoscaling.prometheus.serverAddress=http://p:9090,components.exporter.enabled=false",
        "components.exporter.enabled is false",
    ),
    "an unknown way of scaling": ("autoscaling.mode=magic", "/autoscaling/mode"),
    "a store without a name": ("externalSecrets.enabled=true", "externalSecrets.store.name is missing"),
    "a secret that is nowhere": (
        "externalSecrets.enabled=true,externalSecrets.store.name=vault",
        "externalSecrets.remote.identity is missing",
    ),
    "no limits": ("components.beat.resources.limits=null", "/components/beat/resources"),
    "two Flowers": ("components.flower.replicas=2", "replicas"),
    "two canaries": ("components.canary.replicas=2", "replicas"),
    "a component's own choice of users": ("components.query.pod.fixedUser=false", "/components/query/pod"),
    "jobs without an image": (
        "pipeline.jobs.daily.schedule=15 2 * * *,pipeline.jobs.daily.args={pipeline,report}",
        "pipeline.image is missing",
    ),
    "a job without a command": (
        "pipeline.image=pipeline:1,pipeline.jobs.daily.schedule=15 2 * * *,pipeline.jobs.daily.args={pipeline}",
        "/pipeline/jobs/daily/args",
    ),
}


@pytest.mark.parametrize(("value", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_nonsense_is_refused_with_a_clear_message(value, words):
    with pytest.raises(NotRendered) as refused:
        render(MINIMAL, "--set", value)
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

    def resolved(each):
        if "$ref" not in each:
            return each
        return reduce(getitem, each["$ref"].removeprefix("#/").split("/"), schema_)

    def compare(properties, values, path):
        missing = set(values) - set(properties)
        assert not missing, (path, missing)
        absent = set(properties) - set(values) - {"pod"}
        assert not absent, (path, absent)
        # Of the others nobody needs all.
        for name in properties.keys() - {"pod", "remote", "resources", "settings"}:
            inner = resolved(properties[name])
            if "properties" in inner and isinstance(values.get(name), dict):
                compare(inner["properties"], values[name], (*path, name))

    compare(schema_["properties"], defaults, ())


def test_every_secret_may_come_from_the_store():
    properties = json.loads((CHART / "values.schema.json").read_text())["properties"]
    remote = properties["externalSecrets"]["properties"]["remote"]["properties"]
    assert remote.keys() == properties["secrets"]["properties"].keys() - {"apps"}


def test_references_of_the_schema_stand_alone():
    """Draft 7 ignores what is beside one."""

    def references(each):
        if isinstance(each, dict):
            if "$ref" in each:
                yield each
            each = list(each.values())
        if isinstance(each, list):
            for inner in each:
                yield from references(inner)

    all_ = list(references(json.loads((CHART / "values.schema.json").read_text())))
    assert len(all_) > 50
    assert [each for each in all_ if len(each) > 1] == []


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
    assert webhook in notes("minimal", "--set", "gorush.url=,gorush.urls={http://gorush-0:8088,http://gorush-1:8088}")
    assert webhook not in notes("minimal", "--set", "components.feedback.enabled=false")
    for name in ("keda", "trial", "hpa"):
        text = notes(name)
        assert metrics_ not in text
        assert webhook not in text
