"""compose.yaml is valid and hardened, and the Dockerfile passes its linter."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict
from redis import AuthenticationError, Redis

from deploy.supply import sbom
from support.deploy import chart, podman
from support.deploy.chart import COMPOSE_NAMES, REDIS_USERS, ROOT, need, redis_users, tool
from support.deploy.compose import FILE, filled, needed
from support.deploy.containers import DOCKERFILE, instructions
from wakupush.devnet.postgres import temporary_postgres
from wakupush.devnet.processes import Process, free_port
from wakupush.devnet.redis import server_binary
from wakupush.model.queues import POOLS
from wakupush.model.roles import Role
from wakupush.protocol.keys import PrivateKey
from wakupush.redis.celery_app import TIME_LIMIT_SECONDS
from wakupush.redis.users import RedisUser
from wakupush.runtime.settings import Settings

need("compose-spec")

VARIABLES = dict.fromkeys(needed(), "x" * 16) | {"WAKUPUSH_USER": "10001:10001"}
SERVICES = filled(VARIABLES)["services"]
#: What prepare.sh makes.
MADE = ("./secrets", "./pipeline")
#: What runs to its end.
ONCE = {"migrate", "tools", "pipeline"}
#: Which role each service is of, in Postgres, and which user in Redis.
ROLES = {COMPOSE_NAMES.get(name, name): role for name, role in chart.ROLES.items()} | {"pipeline": Role.PIPELINE}
USERS = {COMPOSE_NAMES.get(name, name): user for name, user in chart.USERS.items()}
OURS = {name for name, service in SERVICES.items() if service["image"].startswith("wakupush")}


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def load(content, tmp_path):
    """Read a file as Docker Compose does: by compose-go, with its schema and its checks."""
    shutil.copytree(FILE.parent / "config", tmp_path / "config", dirs_exist_ok=True)
    (tmp_path / "compose.yaml").write_text(json.dumps(content))
    return subprocess.run(
        [tool("compose-spec"), "-format", "json", "compose.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )


def test_compose_is_valid(tmp_path):
    result = load(filled(VARIABLES), tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["services"].keys() == SERVICES.keys()


def test_everything_that_is_named_exists():
    content = filled(VARIABLES)
    used = {kind: set() for kind in ("networks", "volumes", "secrets")}
    for service in content["services"].values():
        used["networks"] |= set(service["networks"])
        volumes = [each for each in service.get("volumes", []) if each["type"] == "volume"]
        used["volumes"] |= {each["source"] for each in volumes if "source" in each}
        used["secrets"] |= {each["source"] for each in service.get("secrets", [])}
        assert service.get("depends_on", {}).keys() <= content["services"].keys()
    for kind, names in used.items():
        assert names == content[kind].keys(), kind


def test_missing_variable_stops_compose():
    assert needed() == {
        *("WAKUPUSH_USER", "WAKUPUSH_PUBLIC_KEY", "POSTGRES_PASSWORD", "REDIS_PASSWORD"),
        *(f"{role.upper().replace('WAKUPUSH', 'POSTGRES')}_PASSWORD" for role in ROLES.values()),
        *(f"REDIS_{user.name}_PASSWORD" for user in USERS.values()),
        *("FEEDBACK_SECRET", "FLOWER_BASIC_AUTH", "GRAFANA_PASSWORD"),
    }
    with pytest.raises(KeyError, match="REDIS_PASSWORD"):
        filled({name: value for name, value in VARIABLES.items() if name != "REDIS_PASSWORD"})


def prepare(directory, **env):
    command = f"{sys.executable} -m wakupush"
    return subprocess.run(
        [FILE.parent / "prepare.sh"],
        env=os.environ | {"DIRECTORY": str(directory), "WAKUPUSH": command} | env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_prepare_writes_all_that_is_needed_once(tmp_path):
    result = prepare(tmp_path)
    assert result.returncode == 0, result.stderr
    written = dict(line.split("=", 1) for line in (tmp_path / ".env").read_text().splitlines())
    assert written.keys() == needed()
    assert re.fullmatch("0x04[0-9a-f]{128}", written["WAKUPUSH_PUBLIC_KEY"])
    assert not written["WAKUPUSH_USER"].startswith("0:")
    secrets = [value for name, value in written.items() if re.search("PASSWORD|SECRET|AUTH", name)]
    assert len(set(secrets)) == len(secrets) == 5 + len(ROLES) + len(set(USERS.values()))
    assert all(len(secret) >= 48 for secret in secrets)
    for file in (tmp_path / ".env", tmp_path / "secrets" / "identity.key"):
        assert file.stat().st_mode & 0o077 == 0
    written = {f"./{folder.relative_to(tmp_path)}" for folder in (tmp_path / "pipeline").iterdir()}
    mounted = {each["source"] for each in SERVICES["pipeline"]["volumes"] if each["type"] == "bind"}
    assert written == {folder for folder in mounted if folder.startswith(MADE)}
    before = (tmp_path / ".env").read_text()
    again = prepare(tmp_path)
    assert again.returncode == 1
    assert "nothing was changed" in again.stderr
    assert (tmp_path / ".env").read_text() == before
    assert "\ndocker/.env\n" in (ROOT / ".gitignore").read_text()
    assert "\ndocker/secrets/\n" in (ROOT / ".gitignore").read_text()
    assert "\ndocker/pipeline/\n" in (ROOT / ".gitignore").read_text()


def test_prepare_makes_the_key_with_the_image(tmp_path):
    """A stand-in for docker runs the command here, with the folder that is mounted in the place of its mount point."""
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"
    docker.write_text(
        f"""#!{sys.executable}
import subprocess, sys
words = sys.argv[1:]
[mounted, inside] = words[words.index("--volume") + 1].split(":")
image = next(index for index, word in enumerate(words) if word.startswith("wakupush:"))
assert words[:4] == ["run", "--rm", "--network", "none"]
arguments = [word.replace(inside, mounted) for word in words[image + 1:]]
sys.exit(subprocess.run([sys.executable, "-m", "wakupush", *arguments]).returncode)
"""
    )
    docker.chmod(0o755)
    result = prepare(tmp_path, WAKUPUSH="", PATH=f"{docker.parent}:{os.environ['PATH']}")
    assert result.returncode == 0, result.stderr
    key = PrivateKey.from_hex((tmp_path / "secrets" / "identity.key").read_text())
    assert f"WAKUPUSH_PUBLIC_KEY={key.public_key}\n" in (tmp_path / ".env").read_text()


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_hardened(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"cpus", "memory"} <= service["deploy"]["resources"]["limits"].keys()
    assert re.search(r":v?\d[\w.-]+$", service["image"])
    assert not service.get("privileged")
    # Published on loopback, but for the node's peers.
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:") or name == "nwaku"
    if name in OURS - {"flower"}:
        assert service["user"] == "10001:10001"


@pytest.mark.parametrize("name", SERVICES)
def test_services_have_health_checks(name):
    if name in ONCE:
        assert SERVICES[name]["healthcheck"] == {"disable": True}
    elif name in OURS:
        assert "healthcheck" not in SERVICES[name]  # the image's
    else:
        assert SERVICES[name]["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}


def test_grace_periods_exceed_the_longest_task():
    def grace(name):
        return int(SERVICES[name]["stop_grace_period"].removesuffix("s"))

    assert all(grace(pool) > TIME_LIMIT_SECONDS for pool in POOLS)
    assert grace("dispatch") >= Settings.model_fields["delivery"].default.lease + 30


def test_gorush_queue_holds_all_documented_posts():
    settings = Settings.model_fields["gorush"].default
    queue = yaml.safe_load((FILE.parent / "config" / "gorush.yml").read_text())["core"]["queue_num"]
    [most, each] = re.search(
        r"of dispatch at most (\d+), .* (\d+) for each", (ROOT / "docs" / "operating" / "deploy.md").read_text()
    ).groups()
    assert int(each) == settings.concurrency * settings.batch_size
    # The pool rest posts, too, with one process.
    assert filled({name: name for name in VARIABLES})["services"]["rest"]["command"] == ["worker", "rest"]
    assert int(most) + 1 == queue // int(each)


def test_each_service_has_its_own_postgres_role():
    dsns = {
        name: conninfo_to_dict(service["environment"]["WAKUPUSH_POSTGRES__DSN"])
        for name, service in filled({name: name for name in VARIABLES})["services"].items()
        if "WAKUPUSH_POSTGRES__DSN" in service.get("environment", {})
    }
    assert {name: dsn["user"] for name, dsn in dsns.items()} == ROLES | {"migrate": "wakupush"}
    for name, dsn in dsns.items():
        assert dsn["password"] == f"{dsn['user'].upper().replace('WAKUPUSH', 'POSTGRES')}_PASSWORD", name


def test_each_role_logs_in_with_its_password():
    service = filled({name: f"{name.lower()} with ' and $" for name in VARIABLES})["services"]["migrate"]
    with temporary_postgres() as server, psycopg.connect(server.dsn, autocommit=True) as admin:
        environment = service["environment"] | {
            "WAKUPUSH_POSTGRES__DSN": server.dsn,
            "WAKUPUSH_CONFIG": str(FILE.parent / "config" / "settings.toml"),
        }
        secret = "SELECT rolname, rolcanlogin, rolpassword FROM pg_authid WHERE rolname = ANY (%s)"
        for _ in range(2):
            process = subprocess.run(
                [sys.executable, "-m", "wakupush", *service["command"]],
                env=os.environ | environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert (process.returncode, process.stderr) == (0, "")
        rows = admin.execute(secret, [list(ROLES.values())]).fetchall()
        assert {(name, login) for name, login, _ in rows} == {(role, True) for role in ROLES.values()}
        assert len({password for _, _, password in rows}) == len(ROLES)
        assert all(password.startswith("SCRAM-SHA-256$") for _, _, password in rows)


def test_each_service_has_its_own_redis_user():
    services = filled({name: name for name in VARIABLES})["services"]
    urls = {
        name: urlsplit(environment.get("WAKUPUSH_REDIS__URL") or environment["CELERY_BROKER_URL"])
        for name, service in services.items()
        if (environment := service.get("environment", {})).keys() & {"WAKUPUSH_REDIS__URL", "CELERY_BROKER_URL"}
    }
    assert {name: url.username for name, url in urls.items()} == USERS
    for name, url in urls.items():
        assert url.password == f"REDIS_{USERS[name].name}_PASSWORD"


def test_redis_starts_with_its_users(tmp_path):
    service = filled({name: f"{name.lower()}-password" for name in VARIABLES})["services"]["redis"]
    [users] = [volume for volume in service["volumes"] if volume["type"] == "bind"]
    *shell, script = service["command"]
    port = free_port()
    (tmp_path / "data").mkdir()
    for old, new in {
        "$$": "$",
        users["target"]: str(FILE.parent / users["source"]),
        "/tmp/": f"{tmp_path}/",  # noqa: S108 - inside the container
        "--dir /data": f"--dir {tmp_path}/data --bind 127.0.0.1 --port {port}",
        "exec redis-server": f"exec {server_binary()}",
    }.items():
        script = script.replace(old, new)
    passwords = {"default": service["environment"]["REDIS_PASSWORD"]}
    passwords |= {user: service["environment"][f"REDIS_{user.name}_PASSWORD"] for user in USERS.values()}

    def answer(user, password):
        with Redis(port=port, username=user, password=password) as client:
            return client.ping()

    log = tmp_path / "log"
    with Process(
        "redis", [*shell, script], log=log, env=os.environ | service["environment"], ready=lambda: is_open(port)
    ):
        assert all(answer(user, password) for user, password in passwords.items())
        for user in (*passwords, RedisUser.KEDA):
            with pytest.raises(AuthenticationError):
                answer(user, "another")
        with Redis(port=port) as stranger, pytest.raises(AuthenticationError):
            stranger.ping()


def test_users_of_redis_are_those_of_the_program():
    assert REDIS_USERS.read_text() == redis_users(), "make golden"


def test_only_workers_hold_the_key():
    assert {name for name, service in SERVICES.items() if service.get("secrets")} == {*POOLS, "tools"}


def test_redis_loses_nothing_by_its_settings():
    command = SERVICES["redis"]["command"][-1]
    for option in ("--appendonly yes", "--appendfsync everysec", "--maxmemory-policy noeviction", "--aclfile"):
        assert option in command


def test_open_networks_have_one_part_each():
    networks = filled(VARIABLES)["networks"]
    outside = {name for name, network in networks.items() if not network.get("internal")}
    assert outside == {"operators", "peers", "platforms"}
    assert [name for name, service in SERVICES.items() if "peers" in service["networks"]] == ["nwaku"]
    assert [name for name, service in SERVICES.items() if "platforms" in service["networks"]] == ["gorush"]


def test_node_does_not_reach_gorush():
    """A taken node could push with our credentials, because gorush has no authentication."""
    assert not set(SERVICES["nwaku"]["networks"]) & set(SERVICES["gorush"]["networks"])


def test_who_can_push_is_named():
    """Whoever reaches gorush's port can push to every device."""
    assert {name for name, service in SERVICES.items() if "gorush" in service["networks"]} == {
        *("gorush", "dispatch", "rest", "tools"),
    }


def test_prometheus_asks_every_process():
    config = yaml.safe_load((FILE.parent / "config" / "prometheus.yml").read_text())
    [names] = [each["names"] for job in config["scrape_configs"] for each in job.get("dns_sd_configs", [])]
    assert set(names) == OURS - ONCE - {"flower"}
    assert all("metrics" in SERVICES[name]["networks"] for name in names)


def test_the_node_keeps_its_key(tmp_path):
    shell, option, script, *name = SERVICES["nwaku"]["entrypoint"]
    script = script.replace("$$", "$").replace("/data", str(tmp_path)).replace("exec /usr/bin/wakunode", "echo")
    starts = [subprocess.check_output([shell, option, script, *name, "--relay=true"], text=True) for _ in range(2)]
    assert re.fullmatch(r"--nodekey=[0-9a-f]{64} --relay=true\n", starts[0])
    assert starts[0] == starts[1]
    assert (tmp_path / "nodekey").stat().st_mode & 0o077 == 0


def test_alerts_reach_alertmanager():
    config = yaml.safe_load((FILE.parent / "config" / "prometheus.yml").read_text())
    [[target]] = [each["targets"] for one in config["alerting"]["alertmanagers"] for each in one["static_configs"]]
    name, _, port = target.partition(":")
    assert SERVICES[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert set(SERVICES[name]["networks"]) & set(SERVICES["prometheus"]["networks"])
    routes = yaml.safe_load((FILE.parent / "config" / "alertmanager.yml").read_text())
    receivers = {each["name"] for each in routes["receivers"]}
    assert {each["receiver"] for each in (routes["route"], *routes["route"]["routes"])} <= receivers


def test_documented_command_pins_external_images():
    [names] = re.findall(r"--lock-image-digests -o \S+ (.*)", (ROOT / "docs" / "operating" / "deploy.md").read_text())
    assert set(names.split()) == SERVICES.keys() - OURS


def test_mounted_files_exist():
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            if volume["type"] == "bind" and not volume["source"].startswith(MADE):
                assert (FILE.parent / volume["source"]).exists(), volume["source"]


def test_the_dockerfile_passes_its_linter():
    hadolint = Path(sys.executable).parent / "hadolint"
    result = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_images_have_one_name_everywhere():
    ours = {SERVICES[name]["build"]["target"]: SERVICES[name]["image"].split(":")[0] for name in OURS}
    # Compose runs the real node and gorush.
    ours["devnet"] = "wakupush-devnet"
    assert ours == podman.IMAGES
    assert set(ours.values()) == sbom.IMAGES.keys()
    [built] = re.findall(r"^for image in (.*); do$", (DOCKERFILE.parent / "build.sh").read_text(), re.MULTILINE)
    assert built.split() == sorted(ours.values())
    # As build.sh makes the target out of the name.
    assert ours == {name.removeprefix("wakupush-"): name for name in ours.values()}


def test_images_are_pinned_small_and_not_root():
    steps = instructions(DOCKERFILE.read_text())
    bases = dict(text.split("=") for instruction, text in steps if instruction == "ARG" and "=" in text)
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", bases.pop("PYTHON"))
    assert re.fullmatch(r"eclipse-temurin:17\.\d+\.\d+_\d+-jre-\w+@sha256:[0-9a-f]{64}", bases.pop("JAVA"))
    assert not bases
    froms = [text.split(" AS ") for instruction, text in steps if instruction == "FROM"]
    names = [name for _, name in froms]
    assert all(parent in {"${PYTHON}", "${JAVA}", *names} for parent, _ in froms)
    for instruction, text in steps:
        if instruction == "RUN" and "pip install" in text:
            # By hash, or without dependencies from what was built before; never compiled.
            assert "--only-binary :all:" in text
            assert "--require-hashes" in text or "--no-deps --no-index" in text
        assert "apt-get" not in text
        assert instruction != "ADD"
    assert ("USER", "10001:10001") in steps
    # Nothing follows that could be done as root.
    after = [instruction for instruction, _ in steps[steps.index(("USER", "10001:10001")) :]]
    assert not {"RUN", "USER"} & set(after[1:])
