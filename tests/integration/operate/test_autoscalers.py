"""What doctor says of the autoscalers, by what the Kubernetes API says of them."""

import pytest

from support.certificates import self_signed
from support.cluster import ABLE, ACTIVE, AUTOSCALERS, LIMITED, READY, TOKEN, autoscaler
from wakupush.operate import autoscalers
from wakupush.operate.finding import Level


def look(*names):
    findings = list(autoscalers.examine(names))
    assert TOKEN not in str(findings)
    return [(each.level, each.part, each.text) for each in findings]


def test_nobody_is_asked_for_none(cluster):
    assert look() == []
    assert cluster.requested_paths == []


def test_those_that_scale_are_fine(cluster):
    cluster.answers = {"wakupush-query": [READY], "keda-hpa-wakupush-dispatch": [autoscaler(ABLE, ACTIVE, current=5)]}
    assert look(*cluster.answers) == [
        (Level.OK, "autoscaler wakupush-query", "it scales: 2 replicas, 3 wanted"),
        (Level.OK, "autoscaler keda-hpa-wakupush-dispatch", "it scales: 5 replicas, 3 wanted"),
    ]
    assert cluster.requested_paths == [AUTOSCALERS + name for name in cluster.answers]


def test_missing_autoscaler_is_a_fault(cluster):
    cluster.answers = {"wakupush-query": [READY]}
    (level, part, text), (other, *_) = look("wakupush-dispatch", "wakupush-query")
    assert (level, part, other) == (Level.FAULT, "autoscaler wakupush-dispatch", Level.OK)
    assert "it is missing, so nothing scales the pool" in text


@pytest.mark.usefixtures("cluster")
def test_missing_autoscaler_names_its_scaled_object():
    [(level, part, text)] = look("keda-hpa-wakupush-query")
    assert (level, part) == (Level.FAULT, "autoscaler keda-hpa-wakupush-query")
    assert "`kubectl describe scaledobject wakupush-query`" in text
    assert "has the wrong password" in text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            autoscaler(ABLE, ("ScalingActive", "False", "FailedGetExternalMetric", "unable\n to get [/it]"), LIMITED),
            "it does not scale: ScalingActive is False (FailedGetExternalMetric: unable to get [/it])",
        ),
        (
            autoscaler(("AbleToScale", "False", "FailedGetScale", "no deployment")),
            "it does not scale: AbleToScale is False (FailedGetScale: no deployment)",
        ),
        (
            autoscaler(ABLE, ("ScalingActive", "Unknown", "", "")),
            "it does not scale: ScalingActive is Unknown",
        ),
        (autoscaler(ABLE), "Kubernetes does not say yet whether it is ScalingActive"),
        (autoscaler(), "Kubernetes does not say yet whether it is AbleToScale"),
        ((200, {"kind": "HorizontalPodAutoscaler"}), "Kubernetes does not say yet whether it is AbleToScale"),
        ((200, {"status": "Failure"}), "something else than an autoscaler"),
        ((200, b"<html>"), "something else than an autoscaler"),
        ((403, {"code": 403}), "lacks the right to `get` it among horizontalpodautoscalers.autoscaling"),
        ((401, {"code": 401}), "answers with 401"),
        ((503, b""), "answers with 503"),
    ],
)
def test_broken_autoscaler_is_a_fault(cluster, answer, text):
    cluster.answers = {"wakupush-query": [answer]}
    [(level, part, message)] = look("wakupush-query")
    assert (level, part) == (Level.FAULT, "autoscaler wakupush-query")
    assert text in message


def test_one_that_was_just_installed_gets_time(cluster, monkeypatch):
    monkeypatch.setattr(autoscalers, "SETTLING", 60.0)
    monkeypatch.setattr(autoscalers, "PAUSE", 0.01)
    cluster.answers = {
        "wakupush-query": [(404, {}), autoscaler(), autoscaler(ABLE), READY],
        "wakupush-dispatch": [READY],
    }
    assert {level for level, *_ in look(*cluster.answers)} == {Level.OK}
    assert len(cluster.requested_paths) == 8


def test_an_api_that_hangs_is_a_fault(cluster, monkeypatch):
    monkeypatch.setattr(autoscalers, "PATIENCE", 0.5)
    cluster.hangs = True
    [(level, _, text)] = look("wakupush-query")
    assert (level, "does not answer (ReadTimeout)" in text) == (Level.FAULT, True)


@pytest.mark.usefixtures("cluster")
def test_an_api_that_cannot_be_reached_is_a_fault(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    [(level, _, text)] = look("wakupush-query")
    assert (level, "does a network policy let this pod reach it?" in text) == (Level.FAULT, True)


def test_a_stranger_gets_no_token(cluster):
    (cluster.account / "ca.crt").write_bytes(self_signed())
    [(level, _, text)] = look("wakupush-query")
    assert (level, "does not answer (ConnectError)" in text) == (Level.FAULT, True)
    assert cluster.requested_paths == []


def test_an_address_of_ipv6_is_written_as_urls_want_it(cluster, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
    with autoscalers._api() as api:
        assert (
            str(api.base_url)
            == f"https://[::1]:{cluster.server_port}{AUTOSCALERS.removesuffix('horizontalpodautoscalers/')}"
        )


def test_outside_of_a_cluster_doctor_says_so(cluster, monkeypatch):
    for break_ in (
        (cluster.account / "token").unlink,
        lambda: monkeypatch.delenv("KUBERNETES_SERVICE_HOST"),
    ):
        break_()
        [(level, part, text)] = look("wakupush-query", "wakupush-dispatch")
        assert (level, part) == (Level.FAULT, "autoscalers")
        assert "this is no pod of a cluster" in text
