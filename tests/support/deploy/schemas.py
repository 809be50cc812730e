"""JSON schemas of what the chart uses of KEDA, the Prometheus operator and External Secrets.

Written after their documented API, and tighter than it, so that a misspelt field cannot pass: they know what the chart
renders of the values in `ci`. What it renders of other values is refused, too, and so nothing validates it: triggers of
the type redis-sentinel, `authModes` and `authenticationRef` of a Prometheus trigger, and a TriggerAuthentication's
`sentinelPassword`. Kubernetes' own objects are checked against Kubernetes' own schemas.
"""

from typing import Any


def _object(required: list[str], /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


_STRING = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 1}
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_DURATION = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}
_METADATA = _object(["name", "labels"], name=_STRING, labels=_STRINGS, annotations=_STRINGS)
_BOOLEAN_TEXT = {"enum": ["true", "false"]}
_NUMBER_TEXT = {"type": "string", "pattern": "^[0-9.]+$"}

_POLICIES = {
    "type": "array",
    "minItems": 1,
    "items": _object(
        ["type", "value", "periodSeconds"],
        type={"enum": ["Pods", "Percent"]},
        value=_COUNT,
        periodSeconds={"type": "integer", "minimum": 1, "maximum": 1800},
    ),
}
_RULES = _object(
    ["policies"],
    stabilizationWindowSeconds={"type": "integer", "minimum": 0, "maximum": 3600},
    policies=_POLICIES,
    selectPolicy={"enum": ["Max", "Min", "Disabled"]},
)

# https://keda.sh/docs/latest/reference/scaledobject-spec/ and the scalers `prometheus` and `redis`.
_PROMETHEUS_TRIGGER = _object(
    ["type", "name", "metadata"],
    type={"const": "prometheus"},
    name=_STRING,
    metricType={"enum": ["AverageValue", "Value"]},
    metadata=_object(
        ["serverAddress", "query", "threshold"],
        serverAddress=_STRING,
        query=_STRING,
        threshold=_NUMBER_TEXT,
        ignoreNullValues=_BOOLEAN_TEXT,
    ),
)
_REDIS_TRIGGER = _object(
    ["type", "name", "metadata"],
    type={"const": "redis"},
    name=_STRING,
    metricType={"const": "AverageValue"},
    metadata=_object(
        ["address", "listName", "listLength"],
        address={"type": "string", "pattern": "^[^/:]+:[0-9]+$"},
        listName=_STRING,
        listLength=_NUMBER_TEXT,
        databaseIndex=_NUMBER_TEXT,
        enableTLS=_BOOLEAN_TEXT,
        username=_STRING,
    ),
    authenticationRef=_object(["name"], name=_STRING),
)
_SCALED_OBJECT = _object(
    ["scaleTargetRef", "minReplicaCount", "maxReplicaCount", "fallback", "triggers"],
    scaleTargetRef=_object(["name"], name=_STRING),
    minReplicaCount=_COUNT,
    maxReplicaCount=_COUNT,
    fallback=_object(
        ["failureThreshold", "replicas"],
        failureThreshold=_COUNT,
        replicas=_COUNT,
        behavior={"enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]},
    ),
    advanced=_object(
        [],
        horizontalPodAutoscalerConfig=_object(["behavior"], behavior=_object([], scaleUp=_RULES, scaleDown=_RULES)),
    ),
    triggers={"type": "array", "minItems": 1, "items": {"oneOf": [_PROMETHEUS_TRIGGER, _REDIS_TRIGGER]}},
)
# https://keda.sh/docs/latest/concepts/authentication/
_TRIGGER_AUTHENTICATION = _object(
    ["secretTargetRef"],
    secretTargetRef={
        "type": "array",
        "minItems": 1,
        "items": _object(
            ["parameter", "name", "key"], parameter={"enum": ["password", "username"]}, name=_STRING, key=_STRING
        ),
    },
)
# https://prometheus-operator.dev/docs/api-reference/api/
_POD_MONITOR = _object(
    ["selector", "podMetricsEndpoints"],
    selector=_object(
        [],
        matchLabels=_STRINGS,
        matchExpressions={
            "type": "array",
            "items": _object(
                ["key", "operator"],
                key=_STRING,
                operator={"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                values={"type": "array", "items": _STRING},
            ),
        },
    ),
    podTargetLabels={"type": "array", "items": _STRING},
    podMetricsEndpoints={
        "type": "array",
        "minItems": 1,
        "items": _object(
            ["port"],
            port=_STRING,
            path={"type": "string", "pattern": "^/"},
            interval=_DURATION,
            relabelings={
                "type": "array",
                "items": _object(
                    [], sourceLabels={"type": "array", "items": _STRING}, targetLabel=_STRING, replacement=_STRING
                ),
            },
        ),
    },
)
_SERVICE_MONITOR = _object(
    ["selector", "endpoints"],
    selector=_object([], matchLabels=_STRINGS),
    podTargetLabels={"type": "array", "items": _STRING},
    endpoints=_POD_MONITOR["properties"]["podMetricsEndpoints"],
)
_PROMETHEUS_RULE = _object(
    ["groups"],
    groups={
        "type": "array",
        "minItems": 1,
        "items": _object(
            ["name", "rules"],
            name=_STRING,
            interval=_DURATION,
            rules={
                "type": "array",
                "minItems": 1,
                "items": {
                    "oneOf": [
                        _object(
                            ["alert", "expr"],
                            alert=_STRING,
                            expr=_STRING,
                            labels=_STRINGS,
                            annotations=_STRINGS,
                            **{"for": _DURATION},
                        ),
                        _object(["record", "expr"], record=_STRING, expr=_STRING, labels=_STRINGS),
                    ]
                },
            },
        ),
    },
)
# https://external-secrets.io/latest/api/externalsecret/
_EXTERNAL_SECRET = _object(
    ["secretStoreRef", "target", "data"],
    refreshInterval=_DURATION,
    secretStoreRef=_object(["name", "kind"], name=_STRING, kind={"enum": ["SecretStore", "ClusterSecretStore"]}),
    target=_object(
        ["name"],
        name=_STRING,
        creationPolicy={"enum": ["Owner", "Orphan", "Merge", "None"]},
        deletionPolicy={"enum": ["Delete", "Merge", "Retain"]},
    ),
    data={
        "type": "array",
        "minItems": 1,
        "items": _object(
            ["secretKey", "remoteRef"],
            secretKey=_STRING,
            remoteRef=_object(["key"], key=_STRING, property=_STRING, version=_STRING),
        ),
    },
)

SPECS = {
    ("keda.sh/v1alpha1", "ScaledObject"): _SCALED_OBJECT,
    ("keda.sh/v1alpha1", "TriggerAuthentication"): _TRIGGER_AUTHENTICATION,
    ("monitoring.coreos.com/v1", "PodMonitor"): _POD_MONITOR,
    ("monitoring.coreos.com/v1", "PrometheusRule"): _PROMETHEUS_RULE,
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _SERVICE_MONITOR,
    ("external-secrets.io/v1", "ExternalSecret"): _EXTERNAL_SECRET,
}


def schema(api_version: str, kind: str) -> dict[str, Any]:
    """The schema of a whole object; a KeyError if there is none."""
    return _object(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata=_METADATA,
        spec=SPECS[api_version, kind],
    )
