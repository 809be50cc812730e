"""Checks of the pools' autoscalers: whether they exist and scale, as the Kubernetes API reports to a pod."""

import os
import ssl
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, Field, ValidationError

from wakupush.operate.finding import Finding, Level

#: Where Kubernetes puts the token of a pod, its namespace and the authority of the API.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Seconds to wait for each answer.
PATIENCE = 5.0
#: Seconds that autoscalers have to become ready: after an installation KEDA has to make them first, Kubernetes looks at
#: them each 15 s, and new pods have no metrics yet.
SETTLING = 90.0
#: Seconds between two looks while waiting.
PAUSE = 5.0
#: The prefix that KEDA adds to the name of a ScaledObject.
KEDA: Final = "keda-hpa-"
#: Conditions that must be true: the pool can be scaled, and there are metrics to scale it by.
NEEDED_CONDITIONS: Final = ("AbleToScale", "ScalingActive")


class _Condition(BaseModel):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Status(BaseModel):
    #: None or empty until Kubernetes has looked at it.
    conditions: list[_Condition] | None = None
    current: int = Field(0, alias="currentReplicas")
    desired: int = Field(0, alias="desiredReplicas")


class _Autoscaler(BaseModel):
    status: _Status = _Status()


def examine(names: Sequence[str]) -> Iterator[Finding]:
    """Check HorizontalPodAutoscalers of the pod's namespace; wait for those that are not ready yet."""
    if not names:
        return
    try:
        api = _api()
    except (KeyError, OSError):
        text = f"this is no pod of a cluster: no service account can be read at {SERVICE_ACCOUNT}; try `helm test`"
        yield Finding(Level.FAULT, "autoscalers", text)
        return
    with api:
        until = time.monotonic() + SETTLING
        findings = [_look(api, name) for name in names]
        while time.monotonic() < until and any(finding.level is Level.FAULT for finding in findings):
            time.sleep(PAUSE)
            findings = [_look(api, name) for name in names]
    yield from findings


def _api() -> httpx2.Client:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    namespace, token = ((SERVICE_ACCOUNT / name).read_text().strip() for name in ("namespace", "token"))
    context = ssl.create_default_context(cafile=SERVICE_ACCOUNT / "ca.crt")
    # Python 3.13 asks for extensions that the authorities of many clusters lack.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return httpx2.Client(
        base_url=f"https://{f'[{host}]' if ':' in host else host}:{port}/apis/autoscaling/v2/namespaces/{namespace}/",
        headers={"Authorization": f"Bearer {token}"},
        verify=context,
        timeout=PATIENCE,
        trust_env=False,
    )


def _look(api: httpx2.Client, name: str) -> Finding:
    level, text = Level.FAULT, ""
    try:
        answer = api.get(f"horizontalpodautoscalers/{quote(name, safe='')}")
    except httpx2.HTTPError as error:
        text = (
            f"the Kubernetes API does not answer ({type(error).__name__}): does a network policy let this pod reach it?"
        )
        return Finding(level, f"autoscaler {name}", text)
    match answer.status_code:
        case HTTPStatus.OK:
            level, text = _state(answer.content)
        case HTTPStatus.NOT_FOUND:
            text = _explain_missing(name)
        case HTTPStatus.FORBIDDEN:
            text = "this service account lacks the right to `get` it among horizontalpodautoscalers.autoscaling"
        case status:
            text = f"the Kubernetes API answers with {status}, and does not show it"
    return Finding(level, f"autoscaler {name}", text)


def _explain_missing(name: str) -> str:
    if not name.startswith(KEDA):
        return "it is missing, so nothing scales the pool: see `helm get manifest`, and who deleted it"
    resource = name.removeprefix(KEDA)
    return (
        f"KEDA has made none, so nothing scales the pool: `kubectl describe scaledobject {resource}` and the log of"
        " KEDA's operator say why; often it cannot connect to Redis, or has the wrong password (autoscaling.redis)"
    )


def _describe(condition: _Condition) -> str:
    message = " ".join(condition.message.split())
    return f"{condition.type} is {condition.status} ({condition.reason}: {message})"


def _state(content: bytes) -> tuple[Level, str]:
    try:
        status = _Autoscaler.model_validate_json(content).status
    except ValidationError:
        return Level.FAULT, "the Kubernetes API answers with something else than an autoscaler"
    conditions = {condition.type: condition for condition in status.conditions or ()}
    for kind in NEEDED_CONDITIONS:
        if kind not in conditions:
            return Level.FAULT, f"Kubernetes does not say yet whether it is {kind}: look again in a minute"
        if conditions[kind].status != "True":
            return Level.FAULT, f"it does not scale: {_describe(conditions[kind])}"
    return Level.OK, f"it scales: {status.current} replicas, {status.desired} wanted"
