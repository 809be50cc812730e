"""What is rehearsed, in this order. Each scenario returns what was seen, or fails with what should have been."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import httpx2

from cluster.control_plane import CommandError
from cluster.executors import runs_executors
from cluster.rehearsal import FALLBACK, LEAST, NAMESPACE, NODES, POOLS, RELEASE, Rehearsal, Watched
from cluster.traffic import Load, ScenarioFailedError, check, delivered, register, send

#: Each change of `autoscaling.mode` into each other one, once.
CHANGES = ("none", "hpa", "keda", "none", "keda", "hpa", "none")
#: Requests a second, and for how many seconds.
LOAD: Load = ((5, 20), (50, 40), (110, 60), (20, 20), (5, 20))
GORUSH_SECONDS = 0.3


@dataclass(frozen=True)
class Scenario:
    name: str
    run: Callable[[Rehearsal], str]


def installs(rehearsal: Rehearsal, mode: str, *, by_redis: bool = False) -> str:
    """Install, run `helm test`, uninstall: what is scaled never has fewer pods than its least."""
    redis = f"127.0.0.1:{rehearsal.parts.redis.port}" if by_redis else ""
    with rehearsal.watching() as watched:
        seconds = rehearsal.upgrade(rehearsal.values(mode, redis=redis))
        settled = _autoscalers_work(rehearsal)
    _never_below(watched, LEAST)
    tested = rehearsal.helm("test", RELEASE, "--timeout", "3m")
    check("Phase:          Succeeded" in tested, f"helm test said:\n{tested}")
    remainder = _uninstall(rehearsal)
    return f"{seconds:.0f} s, figures after {settled:.0f} s more, helm test passed; uninstall {remainder}"


def misses_an_autoscaler(rehearsal: Rehearsal) -> str:
    """KEDA makes no autoscaler where it cannot connect to Redis: `helm test` says so; the pools have their least."""
    rehearsal.upgrade(rehearsal.values("keda", redis="127.0.0.1:1"))
    try:
        rehearsal.helm("test", RELEASE, "--timeout", "4m")
    except CommandError:
        output = rehearsal.kubectl("logs", f"{RELEASE}-doctor")
    else:
        raise ScenarioFailedError("helm test passed without an autoscaler")
    named = [pool for pool in POOLS if f"keda-hpa-{RELEASE}-{pool}" in output]
    check(named == list(POOLS), f"helm test did not name every missing autoscaler:\n{output}")
    sizes = {pool: rehearsal.replicas(pool) for pool in POOLS}
    check(set(sizes.values()) == {LEAST}, f"replicas: {sizes}")
    rehearsal.kubectl("delete", "pod", f"{RELEASE}-doctor")
    rehearsal.upgrade(rehearsal.values("keda"))
    settled = _autoscalers_work(rehearsal)
    rehearsal.helm("test", RELEASE, "--timeout", "3m")
    _uninstall(rehearsal)
    return f"helm test named all {len(named)}; {LEAST} pods each; with the right address figures after {settled:.0f} s"


def changes_mode(rehearsal: Rehearsal) -> str:
    """Change the mode from each to each other, in one upgrade each; no pool ever shrinks by it."""
    rehearsal.upgrade(rehearsal.values(CHANGES[0]))
    took = []
    for before, after in pairwise(CHANGES):
        if before == "none":
            rehearsal.kubectl("scale", f"deployment/{RELEASE}-query", f"--replicas={LEAST + 1}")
            rehearsal.wait(lambda: rehearsal.ready("query") == LEAST + 1, "a third pod of query is ready")
        with rehearsal.watching() as watched:
            seconds = rehearsal.upgrade(rehearsal.values(after))
        if before == "none":
            check(set(watched.target_counts("query")) == {LEAST + 1}, f"query did not keep its pods: {watched}")
        _never_below(watched, LEAST)
        _autoscalers_work(rehearsal)
        took.append(f"{before} to {after} {seconds:.0f} s")
    return ", ".join(took)


def upgrades_and_rolls_back(rehearsal: Rehearsal) -> str:
    """Replace every pod under requests, and go back: nothing is lost or doubled, every pod ends in its time."""
    rehearsal.upgrade(rehearsal.values("none"))
    users = register(rehearsal)
    values = rehearsal.values("none")
    values["settings"]["log_level"] = "DEBUG"
    rehearsal.kubelet.stopped.clear()
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(send, rehearsal, users, ((8, 90),))
        upgraded = rehearsal.upgrade(values)
        start_time = time.monotonic()
        rehearsal.helm("rollback", RELEASE, "--wait", "--timeout", "8m")
        rolled = time.monotonic() - start_time
        summary = delivered(rehearsal, *sending.result())
    ends = rehearsal.kubelet.stopped
    failed = [end for end in ends if end[1]]
    check(not failed, f"pods that did not end with 0: {failed}")
    slowest = max(seconds for *_, seconds in ends)
    return (
        f"upgrade {upgraded:.0f} s, rollback {rolled:.0f} s, {len(ends)} pods ended within {slowest:.1f} s; {summary}"
    )


def refuses_a_failed_migration(rehearsal: Rehearsal) -> str:
    """An upgrade whose migration cannot reach Postgres fails, and what runs goes on."""
    rehearsal.upgrade(rehearsal.values("none"))
    before = {pod["metadata"]["name"] for pod in rehearsal.pods()}
    nowhere = {"database": "postgres", "port": 1}
    values = rehearsal.values("none", postgres=nowhere)
    try:
        rehearsal.upgrade(values)
    except CommandError as error:
        text = str(error)
    else:
        raise ScenarioFailedError("the upgrade did not fail")
    missing_pods = before - {pod["metadata"]["name"] for pod in rehearsal.pods()}
    check(not missing_pods, f"pods that went: {missing_pods}")
    rehearsal.helm("rollback", RELEASE, "--wait", "--timeout", "8m")
    return f"Helm said: {text.strip().splitlines()[-1][:120]}; all {len(before)} pods went on"


def drains(rehearsal: Rehearsal) -> str:
    """Drain a node: its pods go one of a component at a time, and come up on the other."""
    [node, other] = NODES
    rehearsal.upgrade(rehearsal.values("none"))
    with rehearsal.watching() as watched:
        start_time = time.monotonic()
        rehearsal.kubectl("drain", node, "--delete-emptydir-data", "--force", "--ignore-daemonsets", "--timeout=300s")
        seconds = time.monotonic() - start_time
        moved = [pod for pod in rehearsal.pods() if pod["spec"].get("nodeName") == other]
        back = rehearsal.wait(lambda: all(rehearsal.ready(pool) == LEAST for pool in POOLS), "all pods are ready")
    check(all(watched.least_ready(pool) >= LEAST - 1 for pool in POOLS), f"fewer than {LEAST - 1} ready: {watched}")
    rehearsal.kubectl("uncordon", node)
    availability = f"never fewer than {LEAST - 1} of a pool ready"
    return f"{seconds:.0f} s, all {len(moved)} pods on {other}, ready {back:.0f} s later, {availability}"


def scales_under_load(rehearsal: Rehearsal) -> str:
    """KEDA scales dispatch up and down by what waits; nothing is lost or doubled, and every pod that goes ends well."""
    rehearsal.upgrade(rehearsal.values("keda"))
    _autoscalers_work(rehearsal)
    users = register(rehearsal)
    rehearsal.kubelet.stopped.clear()
    fault = {"path": "/api/push", "kind": "delay", "seconds": GORUSH_SECONDS}
    httpx2.post(f"{rehearsal.parts.gorush_url}/dev/faults", json=fault, trust_env=False).raise_for_status()
    with rehearsal.watching() as watched:
        summary = delivered(rehearsal, *send(rehearsal, users, LOAD))
        rehearsal.wait(lambda: rehearsal.replicas("dispatch") == LEAST, "dispatch is small again", timeout=900)
    httpx2.delete(f"{rehearsal.parts.gorush_url}/dev/faults", trust_env=False).raise_for_status()
    most = max(watched.target_counts("dispatch"))
    check(most > LEAST, f"dispatch was never scaled up: {watched}")
    ends = [end for end in rehearsal.kubelet.stopped if end[0] == "dispatch"]
    check(not [end for end in ends if end[1]], f"pods that did not end with 0: {ends}")
    sizes = _without_repeats(watched.target_counts("dispatch"))
    check(all(before - after <= 1 for before, after in pairwise(sizes)), f"several pods went at once: {sizes}")
    return f"dispatch {' → '.join(map(str, sizes))}; {summary}"


def loses_figures(rehearsal: Rehearsal) -> str:
    """Without the exporter pools grow to their fallback; with it again they are scaled by what waits."""
    rehearsal.upgrade(rehearsal.values("keda"))
    _autoscalers_work(rehearsal)
    rehearsal.kubectl("scale", f"deployment/{RELEASE}-exporter", "--replicas=0")
    grown = rehearsal.wait(
        lambda: all(rehearsal.replicas(pool) == FALLBACK for pool in POOLS), "the pools have their fallback", 300
    )
    rehearsal.kubectl("scale", f"deployment/{RELEASE}-exporter", "--replicas=1")
    shrunk = rehearsal.wait(
        lambda: all(rehearsal.replicas(pool) == LEAST for pool in POOLS), "the pools are small again", 600
    )
    return f"{FALLBACK} pods each after {grown:.0f} s; {LEAST} again {shrunk:.0f} s after the exporter was back"


def loses_redis(rehearsal: Rehearsal) -> str:
    """Redis goes and comes back: the pools are never smaller, and what was sent meanwhile is delivered once."""
    rehearsal.upgrade(rehearsal.values("keda"))
    users = register(rehearsal)
    with rehearsal.watching() as watched:
        rehearsal.parts.redis.stop()
        requests, since = send(rehearsal, users, ((1, 60),))
        rehearsal.parts.redis.start()
        summary = delivered(rehearsal, requests, since)
    _never_below(watched, LEAST)
    return f"60 s without; {summary}"


def fails_over_postgres(rehearsal: Rehearsal) -> str:
    """The primary is killed under load, its replica promoted: nothing is lost, and doubled only by another attempt."""
    rehearsal.upgrade(rehearsal.values("keda"))
    users = register(rehearsal)

    def fail_over() -> None:
        time.sleep(20)
        rehearsal.parts.postgres.kill()
        time.sleep(3)
        rehearsal.replica.promote()

    with ThreadPoolExecutor(1) as threads, rehearsal.watching() as watched:
        failing = threads.submit(fail_over)
        requests, since = send(rehearsal, users, ((20, 60),))
        failing.result()
        summary = delivered(rehearsal, requests, since, may_double=True)
    _never_below(watched, LEAST)
    return summary


def _uninstall(rehearsal: Rehearsal) -> str:
    rehearsal.helm("uninstall", RELEASE, "--wait", "--timeout", "5m")
    rehearsal.wait(lambda: not rehearsal.pods(), "all pods are gone")
    kinds = "all,configmap,serviceaccount,role,rolebinding,networkpolicy,pdb,pvc,scaledobject,triggerauthentication"
    remainder = rehearsal.kubectl("get", kinds, "-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name").split()
    check(not remainder, f"left after uninstall: {remainder}")
    return "left nothing"


def _autoscalers_work(rehearsal: Rehearsal) -> float:
    """Wait until each pool's autoscaler, if it is to have one, has figures; fail if there is one that should not be."""
    path = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
    prefix = {"keda": f"keda-hpa-{RELEASE}-", "hpa": f"{RELEASE}-"}.get(rehearsal.mode)
    expected_names = sorted(f"{prefix}{pool}" for pool in POOLS) if prefix else []

    def work() -> bool:
        autoscalers = rehearsal.plane.get(path)["items"]
        names = sorted(each["metadata"]["name"] for each in autoscalers)
        return names == expected_names and all(_scales(each) for each in autoscalers)

    return rehearsal.wait(work, f"the autoscalers {expected_names} have figures")


def _scales(autoscaler: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in autoscaler["status"].get("conditions") or []}
    return conditions.get("AbleToScale") == conditions.get("ScalingActive") == "True"


def _never_below(watched: Watched, least: int) -> None:
    check(set(watched.pools) == set(POOLS), f"not all pools were seen: {watched}")
    for pool in POOLS:
        below = [change for change in watched.pools[pool] if change[1] < least]
        check(not below, f"{pool} was to have fewer than {least} pods (seconds, wanted, ready): {below}")


def _without_repeats(numbers: list[int]) -> list[int]:
    return [number for index, number in enumerate(numbers) if index == 0 or numbers[index - 1] != number]


SCENARIOS = (
    Scenario("install: none", partial(installs, mode="none")),
    Scenario("install: hpa", partial(installs, mode="hpa")),
    Scenario("install: keda", partial(installs, mode="keda")),
    Scenario("install: keda by Redis", partial(installs, mode="keda", by_redis=True)),
    Scenario("no autoscaler", misses_an_autoscaler),
    Scenario("changes of mode", changes_mode),
    Scenario("upgrade and rollback under load", upgrades_and_rolls_back),
    Scenario("a migration that fails", refuses_a_failed_migration),
    Scenario("drain", drains),
    Scenario("scaling under load", scales_under_load),
    Scenario("figures taken away", loses_figures),
    Scenario("Redis taken away", loses_redis),
    Scenario("Postgres fails over", fails_over_postgres),
    Scenario("executors", runs_executors),
)
