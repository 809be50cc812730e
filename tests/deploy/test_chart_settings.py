"""The settings of the chart and of compose against the program's: none unknown, none missing, all readable."""

import os
import re
from pathlib import PurePosixPath
from tempfile import NamedTemporaryFile

import pytest
import typer
import yaml

from support.deploy.chart import (
    CHART,
    COMPOSE_NAMES,
    PARTS,
    REACHES,
    ROOT,
    VALUES,
    need,
    objects,
    of_kind,
    pod_specs,
    render,
)
from wakupush.cli import app
from wakupush.model.queues import POOLS
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime import keyfile
from wakupush.runtime.profiles import BUILT_IN
from wakupush.runtime.settings import START_SECONDS, STORE_SECONDS, Settings, load_settings
from wakupush.server.engine.identity import is_published, load_identity

need("helm")

#: What a process cannot do without.
NEEDS = {
    "ingest": {"WAKUPUSH_PUBLIC_KEY", "WAKUPUSH_WAKU__URL", "WAKUPUSH_REDIS__URL"},
    "reconcile": {"WAKUPUSH_PUBLIC_KEY", "WAKUPUSH_WAKU__URL", "WAKUPUSH_REDIS__URL", "WAKUPUSH_POSTGRES__DSN"},
    "beat": {"WAKUPUSH_WAKU__URL", "WAKUPUSH_REDIS__URL", "WAKUPUSH_POSTGRES__DSN"},
    "feedback": {"WAKUPUSH_POSTGRES__DSN", "WAKUPUSH_GORUSH__FEEDBACK_SECRET"},
    "exporter": {"WAKUPUSH_REDIS__URL", "WAKUPUSH_POSTGRES__DSN"},
    "migrate": {"WAKUPUSH_POSTGRES__DSN"},
    "pipeline": {"WAKUPUSH_PUBLIC_KEY", "WAKUPUSH_WAKU__URL"},
}
NEEDS["doctor"] = NEEDS["reconcile"] | {"WAKUPUSH_GORUSH__URL"}
NEEDS["registration"] = NEEDS["query"] = NEEDS["reconcile"] | {"WAKUPUSH_IDENTITY_KEY_FILE"}
NEEDS["dispatch"] = NEEDS["rest"] = NEEDS["registration"] | {"WAKUPUSH_GORUSH__URL"}
#: Who may have which secret; the private key is in test_policy.py.
HOLDERS = {
    "WAKUPUSH_POSTGRES__DSN": NEEDS.keys() - {"ingest"},
    "WAKUPUSH_REDIS__URL": NEEDS.keys() - {"migrate", "feedback", "pipeline"},
    "WAKUPUSH_GORUSH__FEEDBACK_SECRET": {"feedback"},
    "WAKUPUSH_PIPELINE__REPORT_DSN": {"pipeline"},
    "WAKUPUSH_PIPELINE__CATALOG": {"pipeline"},
}
SECRETS = {
    "WAKUPUSH_REDIS__URL": "rediss://:secret@redis.example.org:6380/0",
    "WAKUPUSH_POSTGRES__DSN": "postgresql://wakupush:secret@postgres.example.org/wakupush",
    "WAKUPUSH_GORUSH__FEEDBACK_SECRET": "0123456789abcdef",
    "WAKUPUSH_PIPELINE__REPORT_DSN": "postgresql://reports:secret@postgres.example.org/reports",
    "WAKUPUSH_PIPELINE__CATALOG": '{"s3.endpoint": "https://store.example.org", "s3.secret-access-key": "secret"}',
}


def environments(name):
    """Component, arguments and variables of every process of ours, with secrets as a cluster would give them.

    Instead of the path of a file of settings, its variable has the content.
    """
    rendered = objects(VALUES[name])
    maps = {name: each["data"] for name, each in of_kind(rendered, "ConfigMap").items()}
    for each, spec in pod_specs(rendered):
        component = each["metadata"]["labels"]["app.kubernetes.io/component"]
        [container] = spec["containers"]
        if component not in NEEDS:
            continue
        env = {}
        for source in container.get("envFrom", []):
            env |= maps[source["configMapRef"]["name"]]
        for entry in container["env"]:
            env[entry["name"]] = entry["value"] if "value" in entry else SECRETS.get(entry["name"], "secret")
        for variable, value in env.items():
            env[variable] = re.sub(r"\$\((\w+)\)", lambda match, variables=env: variables[match[1]], value)
        if "WAKUPUSH_CONFIG" in env:
            path = PurePosixPath(env["WAKUPUSH_CONFIG"])
            [mount] = [mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == str(path.parent)]
            [source] = [volume["configMap"]["name"] for volume in spec["volumes"] if volume["name"] == mount]
            env["WAKUPUSH_CONFIG"] = maps[source][path.name]
        yield component, container["args"], env


def settings_of(env, monkeypatch):
    with monkeypatch.context() as patch, NamedTemporaryFile("w") as file:
        for variable in list(os.environ):
            if variable.startswith("WAKUPUSH_"):
                patch.delenv(variable)
        for variable, value in env.items():
            patch.setenv(variable, value)
        if "WAKUPUSH_CONFIG" in env:
            file.write(env["WAKUPUSH_CONFIG"])
            file.flush()
            patch.setenv("WAKUPUSH_CONFIG", file.name)
        return load_settings()


@pytest.mark.parametrize("name", VALUES)
def test_the_program_reads_the_settings_of_the_chart(name, monkeypatch):
    components = set()
    for component, _, env in environments(name):
        settings = settings_of(env, monkeypatch)
        assert NEEDS[component] <= env.keys(), component
        if component not in {"migrate", "doctor", "pipeline"}:
            assert settings.http_port == settings.feedback.http_port == 9100
        for secret, holders in HOLDERS.items():
            assert secret not in env or component in holders, (component, secret)
        components.add(component)
    assert components >= NEEDS.keys() - {"feedback", "pipeline"}


def test_values_arrive_as_they_are_meant(monkeypatch):
    by_component = {component: settings_of(env, monkeypatch) for component, _, env in environments("keda")}
    dispatch = by_component["dispatch"]
    assert dispatch.log_level == "WARNING"
    assert dispatch.waku.timeout == 5
    assert dispatch.waku.shards == ("/waku/2/rs/16/32", "/waku/2/rs/16/64")
    assert dispatch.gorush.dialect == "example"
    # Every process knows the profile; otherwise it would not start.
    assert {
        name for name, settings in by_component.items() if "example" in settings.profiles
    } == by_component.keys() - {"migrate"}
    assert list(dispatch.gorush_of("nightly").instances) == ["gorush-nightly:8088"]
    assert dispatch.profiles["example"].mention.text == "You were mentioned"
    assert dispatch.profiles["example"].mention.data_only == ("android",)
    assert dispatch.profiles["example"].message.badge is True
    assert dispatch.gorush.concurrency == 8
    assert dispatch.limits.first_registrations_per_hour == 250_000
    assert dispatch.retention.events == 1_209_600
    # Everybody knows all nodes: ingest reads them, reconcile walks their Stores, and answers go to two.
    nodes = {"nwaku-0.nwaku.waku.svc:8645", "nwaku-1.nwaku.waku.svc:8645"}
    assert {name for name, settings in by_component.items() if settings.waku.nodes.keys() == nodes} >= {
        "ingest",
        "dispatch",
    }
    assert by_component["reconcile"].stores.keys() == nodes


def test_chart_checks_with_the_programs_defaults():
    text = (CHART / "templates" / "_helpers.tpl").read_text()
    defaults = re.findall(r'"group" "(\w+)" "field" "(\w+)" "default" ([\d.]+)', text)
    assert len(defaults) == 6
    for group, field, default in defaults:
        assert float(default) == getattr(Settings.model_fields[group].default, field), (group, field)
    [profiles] = re.findall(r"has \$profile \(list (.*?)\)", text)
    assert tuple(profiles.replace('"', "").split()) == BUILT_IN
    [shards] = re.findall(r"shards \| default \(list (.*?)\)", text)
    assert tuple(shards.replace('"', "").split()) == Settings.model_fields["waku"].default.shards
    assert f"addf $post (mulf $tries $connect) {START_SECONDS + STORE_SECONDS:.0f}" in text


def commands():
    """The words of every command of `wakupush`."""

    def walk(command, words):
        yield words
        for name, each in getattr(command, "commands", {}).items():
            yield from walk(each, (*words, name))

    return set(walk(typer.main.get_command(app), ()))


@pytest.mark.parametrize("name", VALUES)
def test_arguments_are_commands_of_the_program(name):
    all_commands = commands()
    for _, args, _ in environments(name):
        words = tuple(word for word in args if not word.startswith("-"))
        assert words[:2] in all_commands or words[:1] in all_commands - {("ingest",)}, args


def compose_services():
    return yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]


def compose_environments():
    """Component and variables of every process of ours in compose, with secrets as `.env` would give them."""
    services = compose_services()
    for component in NEEDS:
        service = services[COMPOSE_NAMES.get(component, component)]
        [file] = [each["source"] for each in service["volumes"] if each["target"] == "/etc/wakupush/settings.toml"]
        files = {"WAKUPUSH_CONFIG": (ROOT / "docker" / file).read_text()}
        yield (
            component,
            {
                variable: (SECRETS | files).get(variable, re.sub(r"\$\{\w+:-(.*)\}", r"\1", value))
                for variable, value in service["environment"].items()
            },
        )


def test_compose_has_every_component_of_the_chart():
    chart = {component for component, _, _ in environments("minimal")}
    assert {COMPOSE_NAMES.get(component, component) for component in chart} <= compose_services().keys()


def test_compose_services_have_their_settings(monkeypatch):
    for component, env in compose_environments():
        assert NEEDS[component] <= env.keys(), component
        assert not {secret for secret, holders in HOLDERS.items() if secret in env and component not in holders}
        settings_of(env, monkeypatch)


def test_workers_know_the_public_key_of_ingest(monkeypatch, tmp_path):
    """A worker with another key than that of ingest has to refuse: it would answer as a server that nobody asked."""
    ours, theirs = PrivateKey.generate(), PrivateKey.generate()
    keyfile.write(tmp_path / "ours", ours.secret)
    keyfile.write(tmp_path / "theirs", theirs.secret)
    chart = ((component, env) for component, _, env in environments("minimal"))
    holders = set()
    for component, env in (*chart, *compose_environments()):
        if "WAKUPUSH_IDENTITY_KEY_FILE" not in env:
            continue
        holders.add(component)
        for name, published in (("ours", True), ("theirs", False)):
            key = {"WAKUPUSH_PUBLIC_KEY": str(ours.public_key), "WAKUPUSH_IDENTITY_KEY_FILE": str(tmp_path / name)}
            settings = settings_of(env | {variable: key[variable] for variable in key & env.keys()}, monkeypatch)
            assert is_published(load_identity(settings), settings) is published, component
    assert holders == {*POOLS, "doctor"}


def test_earlier_keys_reach_whoever_has_the_key():
    key = "0x04" + "cd" * 64
    rendered = objects(VALUES["minimal"], "--set-json", f'previousPublicKeys=["{key}"]')
    maps = [each["data"] for each in rendered if "WAKUPUSH_PUBLIC_KEY" in each.get("data", ())]
    assert [data["WAKUPUSH_PREVIOUS_PUBLIC_KEYS"] for data in maps] == [f'["{key}"]']
    for component, env in compose_environments():
        assert ("WAKUPUSH_PREVIOUS_PUBLIC_KEYS" in env) is ("WAKUPUSH_PUBLIC_KEY" in env), component


def test_compose_networks_match_the_chart():
    services = compose_services()
    for component, parts in (REACHES | {"pipeline": {"postgres", "node"}}).items():
        if component != "doctor":
            assert set(services[component]["networks"]) & PARTS.keys() == parts, component
    for part, service in {"redis": "redis", "postgres": "postgres", "node": "nwaku", "gorush": "gorush"}.items():
        assert part in services[service]["networks"]


def test_gorush_is_configured_alike():
    """The bundled gorush of the chart and that of compose, but for names and what the environment says there."""
    text = of_kind(objects(VALUES["trial"]), "ConfigMap")["wakupush-gorush"]["data"]["config.yml"]
    chart, compose = yaml.safe_load(text), yaml.safe_load((ROOT / "docker/config/gorush.yml").read_text())
    for config in (chart, compose):
        config["core"].pop("feedback_hook_url")
        for platform in ("ios", "android"):
            for name in ("enabled", "production", "key_id", "team_id"):
                config[platform].pop(name, None)
    assert chart == compose
    assert (chart["core"]["sync"], chart["queue"]["engine"]) == (True, "local")
    assert (chart["ios"]["max_retry"], chart["android"]["max_retry"]) == (0, 0)


def bundled(part):
    """Return the container of a part that the chart brings along, and the stateful set that it is of."""
    spec = of_kind(objects(VALUES["trial"]), "StatefulSet")[f"wakupush-{part}"]["spec"]
    [container] = spec["template"]["spec"]["containers"]
    return container, spec


def test_bundled_parts_have_the_options_of_compose():
    services = compose_services()
    node, redis = bundled("node")[0], bundled("redis")[0]
    assert set(node["args"]) - set(services["nwaku"]["command"]) == {
        "--dns-discovery-url=enrtree://example@nodes.example.org"  # compose says it in the environment
    }
    assert set(services["nwaku"]["command"]) <= set(node["args"])
    assert [each.replace("$$", "$") for each in services["nwaku"]["entrypoint"]] == node["command"]
    *shell, options = services["redis"]["command"]
    assert redis["command"] == shell
    assert options_of(redis["args"][0]) == options_of(options.replace("$$", "$"))


def test_bundled_node_caches_what_ingest_assumes():
    rendered = render(VALUES["trial"], "--set", "settings.waku.cache_capacity=5000")
    assert "--rest-relay-cache-capacity=5000" in rendered
    assert 'WAKUPUSH_WAKU__CACHE_CAPACITY: "5000"' in rendered


def options_of(command):
    return sorted(re.findall(r"--[a-z-]+ \S+", command))


@pytest.mark.parametrize("part", ["node", "redis", "postgres"])
def test_bundled_parts_keep_their_data(part):
    container, spec = bundled(part)
    [claim] = spec["volumeClaimTemplates"]
    assert {"name": claim["metadata"]["name"], "mountPath": "/data"} in container["volumeMounts"]
    written = str([container.get("args"), container["env"] if part == "postgres" else ""])
    assert "/data" in written
