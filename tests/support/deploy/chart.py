"""The chart: rendering it, and what is made of values.yaml and of the program."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from wakupush.model.queues import POOLS
from wakupush.model.roles import Role
from wakupush.redis.users import RedisUser, rules
from wakupush.runtime.docstrings import attribute_docstrings
from wakupush.runtime.profiles import BUILT_IN, ContentTable, ProfileTable
from wakupush.runtime.settings import AppSettings, Settings

TESTS = Path(__file__).parents[2]
ROOT = TESTS.parent
CHART = ROOT / "deploy" / "helm" / "wakupush"
REDIS_USERS = CHART / "files" / "redis-users.acl"
GOLDEN = TESTS / "deploy" / "golden.yaml"
#: Values that the chart is tested with.
VALUES = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))}
#: A version of Kubernetes that the schemas of objects are taken from.
KUBERNETES = "1.33"
#: What the chart itself sets, so that an operator cannot under `settings`: secrets, addresses, ports.
OWNED = {"http_host", "http_port", "public_key", "previous_public_keys", "identity_key", "identity_key_file"}
OWNED_FIELDS = {
    ("waku", "url"),
    *(("redis", name) for name in ("url", "sentinels", "sentinel_user", "sentinel_password")),
    ("postgres", "dsn"),
    ("postgres", "direct_dsn"),
    ("gorush", "url"),
    ("gorush", "feedback_secret"),
    ("canary", "device_token"),
    ("canary", "gorush_url"),
    ("feedback", "http_port"),
    *(("pipeline", name) for name in ("warehouse", "catalog", "keys", "archive", "reports", "report_dsn", "jars")),
}


class NotRendered(Exception):
    """`helm template` failed; with its words."""


def tool(name: str) -> str | None:
    """The path of a program that `make setup-deploy` installs."""
    own = ROOT / ".tools" / name
    return str(own) if own.exists() else shutil.which(name)


def need(name: str) -> None:
    """Skip a module whose tests need a program that is not there; on CI nothing is skipped in silence."""
    if tool(name) is None and os.environ.get("CI") != "true":
        pytest.skip(f"{name} is missing: install Go, then run: make setup-deploy", allow_module_level=True)


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool("helm"), *arguments], capture_output=True, text=True, check=False)


@cache
def render(values: Path | None = None, *options: str) -> str:
    """What `helm template` prints.

    Raises:
        NotRendered: the values are refused.
    """
    files = ["--values", str(values)] if values else []
    result = helm("template", "wakupush", CHART, "--namespace", "push", "--kube-version", KUBERNETES, *files, *options)
    if result.returncode:
        raise NotRendered(result.stderr)
    return result.stdout


#: Dashboards and alerts are files of the chart. Tests say of all budgets and network policies what is in them.
NOT_GOLDEN = ("monitoring.dashboards", "monitoring.rules", "podDisruptionBudget.enabled", "networkPolicy.enabled")


def golden() -> str:
    """What the golden file holds: the values with most parts, without what other tests say everything of.

    Of the pipeline's jobs it has the export; tests say how the others differ from it.
    """
    documents = render(VALUES["keda"], "--set", ",".join(f"{name}=false" for name in NOT_GOLDEN)).split("---\n")
    return "---\n".join(each for each in documents if "kind: CronJob" not in each or "name: wakupush-export\n" in each)


@cache
def objects(values: Path, *options: str) -> list[dict]:
    """What is rendered, to be read only."""
    return [document for document in yaml.load_all(render(values, *options), yaml.CSafeLoader) if document]


def of_kind(rendered: list[dict], kind: str) -> dict[str, dict]:
    """The objects of a kind, by their names."""
    return {document["metadata"]["name"]: document for document in rendered if document["kind"] == kind}


def pod_templates(rendered: list[dict]) -> Iterator[tuple[dict, dict]]:
    """Every object that makes pods, and the pod's metadata and spec."""
    for document in rendered:
        match document["kind"]:
            case "Pod":
                yield document, document
            case "Deployment" | "StatefulSet" | "Job":
                yield document, document["spec"]["template"]
            case "CronJob":
                yield document, document["spec"]["jobTemplate"]["spec"]["template"]


def pod_specs(rendered: list[dict]) -> Iterator[tuple[dict, dict]]:
    """Every object that makes pods, and the pod's spec."""
    for document, template in pod_templates(rendered):
        yield document, template["spec"]


def jobs(rendered: list[dict]) -> Iterator[tuple[str, dict, dict]]:
    """Every job of the pipeline: its command, its pod's spec and its container."""
    for document, spec in pod_specs(rendered):
        if document["kind"] == "CronJob":
            [container] = spec["containers"]
            yield container["args"][1], spec, container


def settings_schema() -> dict:
    """The JSON schema of `settings` in values.yaml: the program's own, without what the chart sets."""
    schema = Settings.model_json_schema()
    meanings = attribute_docstrings(Settings)
    properties = {}
    for name, field in schema["properties"].items():
        if name in OWNED:
            continue
        if name == "profiles":
            properties[name] = _profiles_schema(schema["$defs"])
            continue
        if name == "apps":
            properties[name] = _apps_schema(schema["$defs"]["AppSettings"])
            continue
        if "$ref" in field:
            group = schema["$defs"][field["$ref"].rpartition("/")[2]]
            inner_meanings = attribute_docstrings(Settings.model_fields[name].annotation)
            inner = {
                each: _plain(value, inner_meanings.get(each))
                for each, value in group["properties"].items()
                if (name, each) not in OWNED_FIELDS
            }
            if inner:
                properties[name] = {"type": "object", "additionalProperties": False, "properties": inner}
        else:
            properties[name] = _plain(field, meanings[name])
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _apps_schema(app: dict) -> dict:
    """The JSON schema of apps, by their names; the secret of each is in `secrets`."""
    meanings = attribute_docstrings(AppSettings)
    fields = {
        each: _plain(value, meanings[each]) for each, value in app["properties"].items() if each != "feedback_secret"
    }
    table = {"type": "object", "additionalProperties": False, "properties": fields}
    return {"type": "object", "additionalProperties": False, "patternProperties": {"^[a-z0-9]+(_[a-z0-9]+)*$": table}}


def _profiles_schema(tables: dict) -> dict:
    """The JSON schema of profiles, by their names."""
    meanings = attribute_docstrings(ContentTable) | attribute_docstrings(ProfileTable)

    def table(name: str) -> dict:
        fields = {
            each: table("ContentTable") | {"description": meanings[each]}
            if "$ref" in value
            else _plain(value, meanings[each])
            for each, value in tables[name]["properties"].items()
        }
        return {"type": "object", "additionalProperties": False, "properties": fields}

    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict.fromkeys(BUILT_IN, False),
        "patternProperties": {"^[a-z0-9_-]+$": table("ProfileTable")},
    }


def _plain(field: dict, meaning: str | None) -> dict:
    plain = {name: value for name, value in field.items() if name not in {"default", "title"}}
    return plain if meaning is None else dict(sorted({**plain, "description": meaning}.items()))


def values_schema() -> str:
    """values.schema.json with the program's settings in it."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    schema["$defs"]["settings"] = settings_schema()
    return json.dumps(schema, indent=2) + "\n"


def redis_users() -> str:
    """The users of the bundled Redis and of compose's, with the names of their passwords; one without is off."""
    lines = ["user default on >${REDIS_PASSWORD} ~* &* +@all"]
    for user in RedisUser:
        variable = f"REDIS_{user.name}_PASSWORD"
        lines.append(f"user {user} ${{{variable}:+on >${variable}}} {rules(user)}")
    return "\n".join(lines) + "\n"


def values_table() -> str:
    """The table of README.md: each value with its default and the comment above it that begins with `--`."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    rows, path, comment = ["| value | default | meaning |", "| --- | --- | --- |"], [], []
    for line in (CHART / "values.yaml").read_text().splitlines():
        if key := re.match(r" *# (.*)", line):
            text = key[1]
            if text.startswith("-- "):
                comment = [text.removeprefix("-- ")]
            elif comment:
                comment.append(text)
        elif key := re.match(r"( *)([\w-]+):", line):
            depth = len(key[1]) // 2
            path = [*path[:depth], key[2]]
            if comment:
                value = defaults
                for part in path:
                    value = value[part]
                rows.append(f"| `{'.'.join(path)}` | `{json.dumps(value)}` | {' '.join(comment)} |".replace("\\", ""))
            comment = []
        else:
            comment = []
    return "\n".join(rows) + "\n"


def documented_values() -> set[str]:
    return set(re.findall(r"^\| `([\w.]+)` \|", values_table(), re.MULTILINE))


SENTINELS = (
    *("--set", "redis.sentinel.addresses={s-0:26379,s-1:26379,s-2:26379}"),
    *("--set", "redis.sentinel.user=ours", "--set", "redis.sentinel.passwordSecret.name=sentinels"),
    *("--set", "autoscaling.redis.sentinelMaster=mymaster"),
)


def component(document: dict) -> str:
    return document["metadata"]["labels"]["app.kubernetes.io/component"]


def policy_of_doctor(rendered):
    return of_kind(rendered, "NetworkPolicy")["wakupush-doctor"]["spec"]


#: What may reach which part; whatever is not named reaches none.
REACHES = {
    "ingest": {"redis", "node"},
    "reconcile": {"redis", "node", "postgres"},
    "registration": {"redis", "node", "postgres"},
    "query": {"redis", "node", "postgres"},
    "dispatch": {"redis", "node", "postgres", "gorush"},
    "rest": {"redis", "node", "postgres", "gorush"},
    "beat": {"redis", "node", "postgres"},
    "feedback": {"postgres"},
    "exporter": {"redis", "postgres"},
    "flower": {"redis"},
    "migrate": {"postgres"},
    "doctor": {"redis", "node", "postgres", "gorush"},
}
PARTS = {"redis": 6379, "postgres": 5432, "node": 8645, "gorush": 8088}
#: What compose calls otherwise.
COMPOSE_NAMES = {"doctor": "tools"}
#: Which role each component is of, in Postgres.
ROLES = {
    "reconcile": Role.RECONCILE,
    "registration": Role.REGISTRATION,
    "query": Role.QUERY,
    "dispatch": Role.DISPATCH,
    "rest": Role.REST,
    "beat": Role.SCHEDULE,
    "feedback": Role.FEEDBACK,
    "exporter": Role.EXPORTER,
    "doctor": Role.OPERATOR,
}
#: Which user each component is, in Redis.
USERS = {
    "ingest": RedisUser.INGEST,
    "reconcile": RedisUser.RECONCILE,
    **dict.fromkeys(POOLS, RedisUser.WORKER),
    "beat": RedisUser.BEAT,
    "exporter": RedisUser.EXPORTER,
    "flower": RedisUser.FLOWER,
    "doctor": RedisUser.OPERATOR,
}
