"""Rules that every object of the chart keeps, whatever the values: who runs as what, with which secrets and volumes."""

import re

import pytest
import yaml

from support.deploy.chart import (
    ROLES,
    ROOT,
    USERS,
    VALUES,
    NotRendered,
    component,
    jobs,
    need,
    objects,
    of_kind,
    pod_specs,
    policy_of_doctor,
)
from wakupush.model.queues import POOLS
from wakupush.model.roles import Role
from wakupush.redis.celery_app import TIME_LIMIT_SECONDS, VISIBILITY_TIMEOUT_SECONDS
from wakupush.runtime.settings import Settings

need("helm")


SETS = pytest.mark.parametrize("name", VALUES)


def containers(name: str):
    for each, spec in pod_specs(objects(VALUES[name])):
        for container in spec.get("initContainers", []) + spec["containers"]:
            yield each, spec, container


@SETS
def test_nobody_is_root_or_can_become_it(name):
    for _, spec, container in containers(name):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert name == "openshift" or spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["privileged"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert not {"runAsUser", "runAsNonRoot", "seccompProfile"} & security.keys()
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()


@SETS
def test_nothing_is_written_but_volumes_of_their_own(name):
    for each, spec, container in containers(name):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]  # noqa: S108 - inside the container
        kinds = {kind for volume in spec.get("volumes", []) for kind in volume if kind != "name"}
        claims = {"persistentVolumeClaim"} if component(each) == "pipeline" else set()
        assert kinds <= {"emptyDir", "secret", "configMap"} | claims
        assert all("sizeLimit" in volume["emptyDir"] for volume in spec["volumes"] if "emptyDir" in volume)


@SETS
def test_everything_has_requests_and_limits(name):
    for _, _, container in containers(name):
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


@SETS
def test_images_have_versions(name):
    for _, _, container in containers(name):
        assert re.search(r"(:[^:/@]+|@sha256:[0-9a-f]{64})$", container["image"])
        assert not container["image"].endswith(":latest")


@SETS
def test_what_runs_for_ever_has_probes(name):
    for each, _, container in containers(name):
        if each["kind"] in {"Deployment", "StatefulSet"}:
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
            ports = {port["name"] for port in container["ports"]}
            probes = [value for key, value in container.items() if key.endswith("Probe")]
            assert all(probe["httpGet"]["port"] in ports for probe in probes if "httpGet" in probe)
            # Our own processes prove by /healthz that they do their work; a broker that is down must not restart them.
            if container["image"].rpartition("/")[2].startswith(("wakupush:", "wakupush@")):
                assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
                assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


@SETS
def test_pods_live_longer_than_their_longest_task(name):
    lease = Settings.model_fields["delivery"].default.lease
    graces = {component(each): spec["terminationGracePeriodSeconds"] for each, spec in pod_specs(objects(VALUES[name]))}
    for pool in POOLS:
        assert graces[pool] > TIME_LIMIT_SECONDS
    assert graces["dispatch"] >= lease + 30
    assert graces["dispatch"] > VISIBILITY_TIMEOUT_SECONDS


@SETS
def test_what_runs_to_its_end_has_a_deadline(name):
    ending = [each["spec"] for each in objects(VALUES[name]) if each["kind"] in {"Job", "CronJob"}]
    assert ending
    for spec in ending:
        assert spec.get("jobTemplate", {"spec": spec})["spec"]["activeDeadlineSeconds"] >= 60


@SETS
def test_pods_spread(name):
    for each in of_kind(objects(VALUES[name]), "Deployment").values():
        constraints = each["spec"]["template"]["spec"]["topologySpreadConstraints"]
        keys = {constraint["topologyKey"] for constraint in constraints}
        assert keys == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}


@SETS
def test_every_deployment_has_a_disruption_budget(name):
    rendered = objects(VALUES[name])
    budgets = of_kind(rendered, "PodDisruptionBudget")
    assert budgets.keys() == of_kind(rendered, "Deployment").keys()
    for budget in budgets.values():
        spec = budget["spec"]
        assert spec["selector"]["matchLabels"]["app.kubernetes.io/component"] == component(budget)
        # One that is alone may go, and one that is not ready.
        assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


@SETS
def test_only_workers_hold_the_key(name):
    holders = {
        component(each)
        for each, spec in pod_specs(objects(VALUES[name]))
        if any(volume.get("secret", {}).get("secretName") == "wakupush-identity" for volume in spec["volumes"])
    }
    assert holders == set(POOLS)
    for each, _, container in containers(name):
        used = {entry["name"] for entry in container.get("env", [])}
        assert ("WAKUPUSH_IDENTITY_KEY_FILE" in used) == (component(each) in POOLS)
        assert "WAKUPUSH_IDENTITY_KEY" not in used


#: What each command of the pipeline has; the keys of pseudonyms are the export's alone.
VOLUMES = {"export": {"lake", "keys"}, "tidy": {"lake"}, "report": {"lake", "reports"}, "fetch-archive": {"archive"}}
DATABASES = {
    "export": {"WAKUPUSH_POSTGRES__DSN"},
    "tidy": {"WAKUPUSH_POSTGRES__DSN"},
    "report": {"WAKUPUSH_POSTGRES__DSN", "WAKUPUSH_PIPELINE__REPORT_DSN"},
}


@pytest.mark.parametrize("name", ["hpa", "keda"])
def test_pipeline_jobs_have_their_volumes(name):
    used = set()
    for command, spec, container in jobs(objects(VALUES[name])):
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert mounted.keys() - {"settings"} == {"tmp"} | VOLUMES[command]
        for volume in VOLUMES[command]:
            setting = "WAREHOUSE" if volume == "lake" else volume.upper()
            assert env[f"WAKUPUSH_PIPELINE__{setting}"] == mounted[volume]
        claims = {volume["name"]: volume.get("persistentVolumeClaim") for volume in spec["volumes"]}
        used |= {claims[volume]["claimName"] for volume in VOLUMES[command]}
    # A claim that exists, or one that is made; none is made for nothing, which `helm --wait` would wait for.
    claim_names = of_kind(objects(VALUES[name]), "PersistentVolumeClaim").keys()
    assert used
    assert claim_names == used - ({"lake"} if name == "keda" else set())


def test_a_lake_and_reports_in_a_store_have_no_volume():
    chosen = (
        "pipeline.warehouse=s3://lake/wakupush,secrets.lakeCatalog.key=lake-catalog,pipeline.reports=s3://lake/reports"
    )
    rendered = objects(VALUES["keda"], "--set", chosen, "--set", "externalSecrets.remote.lakeCatalog.key=wakupush/lake")
    assert not any("lake" in name or "reports" in name for name in of_kind(rendered, "PersistentVolumeClaim"))
    commands = set()
    for command, _, container in jobs(rendered):
        env = {entry["name"]: entry for entry in container["env"]}
        mounted = {mount["name"] for mount in container["volumeMounts"]} - {"settings"}
        assert mounted == {"tmp"} | VOLUMES[command] - {"lake", "reports"}
        reports = env.get("WAKUPUSH_PIPELINE__REPORTS", {}).get("value")
        assert reports == ("s3://lake/reports" if "reports" in VOLUMES[command] else None)
        warehouse = env.get("WAKUPUSH_PIPELINE__WAREHOUSE", {}).get("value")
        assert warehouse == ("s3://lake/wakupush" if "lake" in VOLUMES[command] else None)
        assert ("WAKUPUSH_PIPELINE__CATALOG" in env) == ("lake" in VOLUMES[command])
        if "lake" in VOLUMES[command]:
            secret = env["WAKUPUSH_PIPELINE__CATALOG"]["valueFrom"]["secretKeyRef"]
            assert secret == {"name": "wakupush", "key": "lake-catalog"}
        commands.add(command)
    assert commands == VOLUMES.keys()


def test_reports_in_a_store_need_a_lake_in_a_store():
    with pytest.raises(NotRendered, match=r"pipeline\.warehouse is missing"):
        objects(VALUES["keda"], "--set", "pipeline.reports=s3://lake/reports")


def test_pipeline_jobs_have_their_databases():
    more = [
        f"pipeline.jobs.{name}.schedule=0 0 * * *,pipeline.jobs.{name}.args={{pipeline,{command}}}"
        for name, command in {"warm": "warm-topics", "other": "synthesize"}.items()
    ]
    more.append("externalSecrets.remote.postgresRebuild.key=wakupush/postgres")
    dsn_names = {}
    for command, _, container in jobs(objects(VALUES["keda"], "--set", ",".join(more))):
        dsn_names[command] = {entry["name"] for entry in container["env"] if entry["name"].endswith("DSN")}
    assert dsn_names == DATABASES | {
        "fetch-archive": set(),
        "warm-topics": {"WAKUPUSH_POSTGRES__DSN"},
        "synthesize": set.union(*DATABASES.values()),
    }


def test_a_job_without_secrets_needs_none():
    """Nor does a release that fetches the archive alone make the login of the export."""
    fetch = "pipeline.jobs.archive.schedule=0 0 * * *,pipeline.jobs.archive.args={pipeline,fetch-archive}"
    options = ("--set", f"pipeline.image=registry.example/wakupush-pipeline:1.0.0rc1,{fetch}")
    migrate = environments("minimal", *options)["migrate"]
    assert migrate == environments("minimal")["migrate"]
    assert "POSTGRES_PIPELINE_PASSWORD" not in migrate
    assert "POSTGRES_LAKE_PASSWORD" in environments("hpa")["migrate"]


#: Which role each component's connection string is of.
ROLE_OF_COMPONENT = ROLES | {"tidy": Role.LAKE, "report": Role.LAKE}


def environments(name, *options):
    """By component, or command of the pipeline, the variables of its container; of a Secret its name and key."""
    return {
        container["args"][1] if component(each) == "pipeline" else component(each): {
            entry["name"]: entry.get("value") or tuple(entry["valueFrom"]["secretKeyRef"].values())
            for entry in container.get("env", [])
        }
        for each, spec in pod_specs(objects(VALUES[name], *options))
        for container in spec["containers"]
    }


def connections(variables):
    return {name: env["WAKUPUSH_POSTGRES__DSN"] for name, env in variables.items() if "WAKUPUSH_POSTGRES__DSN" in env}


def password_of(role):
    return "wakupush", f"postgres-{role.removeprefix('wakupush_')}-password"


@pytest.mark.parametrize(("name", "host"), [("hpa", "$(POSTGRES_HOST)"), ("trial", "wakupush-postgres")])
def test_each_process_connects_as_its_role(name, host):
    """By default: the migration makes the logins, and connects as the owner; nobody else does."""
    variables = environments(name)
    migrate = variables.pop("migrate")
    roles = {each: role for each, role in ROLE_OF_COMPONENT.items() if each in variables}
    assert connections(variables) == {
        each: f"postgresql://{role}:$(POSTGRES_PASSWORD)@{host}:5432/wakupush" for each, role in roles.items()
    }
    for each, role in roles.items():
        assert variables[each]["POSTGRES_PASSWORD"] == password_of(role)
        assert migrate[f"POSTGRES_{role.name}_PASSWORD"] == password_of(role)
    all_secrets = {secret for env in variables.values() for secret in env.values() if isinstance(secret, tuple)}
    owner = {migrate.get("PGPASSWORD"), migrate.get("PGUSER"), migrate.get("POSTGRES_PASSWORD")} - {None}
    assert owner
    # The container of the bundled Postgres makes its owner.
    assert not owner & (all_secrets - set(variables.get("postgres", {}).values()))


def test_migration_makes_logins_from_parts_of_a_secret():
    options = "postgres.port=5433,postgres.database=push,postgres.parameters=sslmode=verify-full"
    variables = environments("minimal", "--set", options)
    assert {
        name: variables["migrate"][name] for name in ("PGHOST", "PGUSER", "PGPASSWORD", "WAKUPUSH_POSTGRES__DSN")
    } == {
        "PGHOST": ("wakupush", "postgres-host"),
        "PGUSER": ("wakupush", "postgres-user"),
        "PGPASSWORD": ("wakupush", "postgres-password"),
        "WAKUPUSH_POSTGRES__DSN": "postgresql://:5433/push?sslmode=verify-full",
    }
    assert variables["feedback"]["POSTGRES_HOST"] == ("wakupush", "postgres-host")
    assert variables["feedback"]["WAKUPUSH_POSTGRES__DSN"] == (
        "postgresql://wakupush_feedback:$(POSTGRES_PASSWORD)@$(POSTGRES_HOST):5433/push?sslmode=verify-full"
    )
    [job] = of_kind(objects(VALUES["minimal"], "--set", options), "Job").values()
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["migrate", "--pre", "--logins"]


def test_connection_strings_can_be_given():
    roles = {name: f"postgres-{role.removeprefix('wakupush_')}-dsn" for name, role in ROLE_OF_COMPONENT.items()}
    keys = {name: key for name, (_, key) in connections(environments("keda")).items()}
    assert keys == roles | {"export": "postgres-pipeline-dsn", "migrate": "postgres-dsn"}


@pytest.mark.parametrize("name", ["minimal", "trial"])
def test_only_explicit_owner_connects_everybody_as_owner(name):
    variables = environments(name, "--set", "postgres.connectBy=owner")
    del variables["postgres" if name == "trial" else "flower"]
    assert len(set(connections(variables).values())) == 1
    assert not any(variable.startswith("POSTGRES_QUERY") for variable in variables["migrate"])
    with pytest.raises(NotRendered, match="connectBy"):
        objects(VALUES[name], "--set", "postgres.connectBy=superuser")


@pytest.mark.parametrize(
    ("name", "url"), [("trial", "redis://%s@wakupush-redis:6379/0"), ("keda", "rediss://%s@redis.example.org:6380/0")]
)
def test_each_process_has_its_own_redis_user(name, url):
    variables = environments(name)
    urls = {
        each: env.get("WAKUPUSH_REDIS__URL") or env.get("CELERY_BROKER_URL")
        for each, env in variables.items()
        if {"WAKUPUSH_REDIS__URL", "CELERY_BROKER_URL"} & env.keys()
    }
    assert urls == {each: url % f"{user}:$(REDIS_PASSWORD)" for each, user in USERS.items()}
    for each, user in USERS.items():
        assert variables[each]["REDIS_PASSWORD"] == ("wakupush", f"redis-{user}-password")
    if name == "trial":
        for user in USERS.values():
            assert variables["redis"][f"REDIS_{user.name}_PASSWORD"] == ("wakupush", f"redis-{user}-password")


def test_keda_has_its_own_redis_user():
    rendered = objects(VALUES["keda"])
    triggers = [each["spec"]["triggers"] for each in of_kind(rendered, "ScaledObject").values()]
    assert {one["metadata"].get("username") for each in triggers for one in each if one["type"] == "redis"} == {"keda"}
    [authentication] = of_kind(rendered, "TriggerAuthentication").values()
    assert authentication["spec"]["secretTargetRef"] == [
        {"parameter": "password", "name": "wakupush", "key": "redis-keda-password"}
    ]


@SETS
def test_no_secret_is_written_down(name):
    for each in objects(VALUES[name]):
        assert each["kind"] != "Secret"
    for _, _, container in containers(name):
        for entry in container.get("env", []):
            if re.search("PASSWORD|SECRET|AUTH|__URL|__DSN|BROKER", entry["name"]):
                value = entry.get("value", "$(")
                # The owner's user and password are in variables of libpq.
                is_without = entry["name"] == "WAKUPUSH_POSTGRES__DSN" and "@" not in value
                assert "valueFrom" in entry or "$(" in value or is_without or entry["name"] == "WAKUPUSH_WAKU__URL"


def test_the_job_that_rebuilds_fits_the_chart():
    """Of docs/operating/restore.md."""
    page = (ROOT / "docs" / "operating" / "restore.md").read_text()
    [manifest] = [
        yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "kind: Job" in each
    ]
    fetch = "pipeline.jobs.archive.schedule=0 0 * * *,pipeline.jobs.archive.args={pipeline,fetch-archive}"
    image = "pipeline.image=registry.example/wakupush-pipeline:1.0.0rc1"
    rendered = objects(VALUES["minimal"], "--set", fetch, "--set", image)
    specs = {component(each): spec for each, spec in pod_specs(rendered)}
    policy = policy_of_doctor(rendered)
    template = manifest["spec"]["template"]
    assert template["metadata"]["labels"] == policy["podSelector"]["matchLabels"]
    [own], [job], [worker] = (
        spec["containers"] for spec in (template["spec"], specs["pipeline"], specs["registration"])
    )
    assert own["image"] == job["image"]
    assert own["envFrom"] == job["envFrom"] == worker["envFrom"]
    env, of_worker, of_job = ({each["name"]: each for each in one["env"]} for one in (own, worker, job))
    for name in ("WAKUPUSH_REDIS__URL", "WAKUPUSH_IDENTITY_KEY_FILE"):
        assert env[name] == of_worker[name]
    assert env["WAKUPUSH_PIPELINE__ARCHIVE"] == of_job["WAKUPUSH_PIPELINE__ARCHIVE"]
    volumes = {each["name"]: each for each in template["spec"]["volumes"]}
    assert [volumes["tmp"], volumes["archive"]] == specs["pipeline"]["volumes"]
    [identity] = [each["secret"] for each in specs["registration"]["volumes"] if each["name"] == "identity"]
    assert volumes["identity"]["secret"] == {name: identity[name] for name in ("secretName", "defaultMode")}
    assert {each["name"] for each in own["volumeMounts"]} == volumes.keys()
