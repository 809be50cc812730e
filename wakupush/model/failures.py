"""The closed table of everything that can go wrong with a message or a delivery.

Each member decides once what the protocol answers, whether and how a delivery is tried again, the label in metrics
and events, and what it says about the device token and about the route to the platform. Nothing else in wakupush
classifies failures.
"""

from dataclasses import dataclass
from enum import Enum

from wakupush.pb.push_notification_pb2 import PushNotificationRegistrationResponse, PushNotificationReport


@dataclass(frozen=True, slots=True)
class Errors:
    """The error in a PushNotificationRegistrationResponse and in a PushNotificationReport."""

    registration: PushNotificationRegistrationResponse.ErrorType.ValueType | None = None
    report: PushNotificationReport.ErrorType.ValueType | None = None


class Answer(Enum):
    """The answer to the sender of a message; the names are those of the specification's error types."""

    SILENCE = Errors()
    MALFORMED_MESSAGE = Errors(registration=PushNotificationRegistrationResponse.MALFORMED_MESSAGE)
    VERSION_MISMATCH = Errors(registration=PushNotificationRegistrationResponse.VERSION_MISMATCH)
    UNSUPPORTED_TOKEN_TYPE = Errors(registration=PushNotificationRegistrationResponse.UNSUPPORTED_TOKEN_TYPE)
    INTERNAL_ERROR = Errors(PushNotificationRegistrationResponse.INTERNAL_ERROR, PushNotificationReport.INTERNAL_ERROR)
    WRONG_TOKEN = Errors(report=PushNotificationReport.WRONG_TOKEN)
    NOT_REGISTERED = Errors(report=PushNotificationReport.NOT_REGISTERED)


class Retry(Enum):
    """Whether and how a delivery that failed is tried again."""

    #: It would fail again.
    NEVER = "never"
    #: Exponential wait with jitter.
    BACKOFF = "backoff"
    #: As BACKOFF, from a longer first wait: somebody asked for less, or an operator has to act.
    SLOWLY = "slowly"


class Token(Enum):
    """What a failure says about the device token that was tried."""

    UNTOUCHED = "untouched"
    #: Dead after three of these within a day: one wrong APNs environment must not unsubscribe everybody.
    SUSPECT = "suspect"
    #: The platform says for certain that the token is gone.
    DEAD = "dead"


class Route(Enum):
    """What a failure says about the route to a platform: gorush, its credentials, the platform's own servers."""

    #: Nothing: its cause is the message or the device, or the platform was not asked.
    UNTOLD = "untold"
    #: The platform looked at the notification and turned it down: the route works.
    WORKS = "works"
    #: The route is broken, if `route_state` believes it. Several in a row open the platform's circuit breaker.
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Treatment:
    """What follows from a failure."""

    #: In metrics, events and logs.
    label: str
    answer: Answer
    retry: Retry = Retry.NEVER
    token: Token = Token.UNTOUCHED
    route: Route = Route.UNTOLD
    #: True if the push may have reached the device all the same.
    unknown: bool = False
    #: True if it is the server's own: of gorush itself, or of the settings. No device can bring it about.
    of_server: bool = False


class Failure(Enum):
    """Every way in which a message or a delivery fails."""

    # Opening a message: what cannot be read is discarded in silence.
    NOT_FOR_US = Treatment("not_for_us", Answer.SILENCE)
    PAYLOAD_MALFORMED = Treatment("payload_malformed", Answer.SILENCE)
    SIGNATURE_INVALID = Treatment("signature_invalid", Answer.SILENCE)
    SIGNATURE_MISSING = Treatment("signature_missing", Answer.SILENCE)
    METADATA_MALFORMED = Treatment("metadata_malformed", Answer.SILENCE)
    SEGMENT_INCOMPLETE = Treatment("segment_incomplete", Answer.SILENCE)
    SEGMENT_LIMIT = Treatment("segment_limit", Answer.SILENCE)
    TYPE_UNSUPPORTED = Treatment("type_unsupported", Answer.SILENCE)
    INNER_MALFORMED = Treatment("inner_malformed", Answer.SILENCE)
    REGISTRATION_UNDECRYPTABLE = Treatment("registration_undecryptable", Answer.SILENCE)

    # Registrations, in the order of their checks.
    REGISTRATION_MALFORMED = Treatment("registration_malformed", Answer.MALFORMED_MESSAGE)
    VERSION_ZERO = Treatment("version_zero", Answer.MALFORMED_MESSAGE)
    INSTALLATION_ID_INVALID = Treatment("installation_id_invalid", Answer.MALFORMED_MESSAGE)
    VERSION_OUTDATED = Treatment("version_outdated", Answer.VERSION_MISMATCH)
    ACCESS_TOKEN_INVALID = Treatment("access_token_invalid", Answer.MALFORMED_MESSAGE)
    GRANT_INVALID = Treatment("grant_invalid", Answer.MALFORMED_MESSAGE)
    DEVICE_TOKEN_INVALID = Treatment("device_token_invalid", Answer.MALFORMED_MESSAGE)
    TOKEN_TYPE_UNSUPPORTED = Treatment("token_type_unsupported", Answer.UNSUPPORTED_TOKEN_TYPE)
    APN_TOPIC_INVALID = Treatment("apn_topic_invalid", Answer.MALFORMED_MESSAGE)
    # The topic names no app of this server; with Firebase, there is no app for devices without one either.
    APN_TOPIC_WITHOUT_APP = Treatment("apn_topic_without_app", Answer.MALFORMED_MESSAGE)
    FIREBASE_WITHOUT_APP = Treatment("firebase_without_app", Answer.UNSUPPORTED_TOKEN_TYPE)
    REGISTRATION_TOO_LARGE = Treatment("registration_too_large", Answer.MALFORMED_MESSAGE)
    INSTALLATION_LIMIT = Treatment("installation_limit", Answer.INTERNAL_ERROR)
    REGISTRATION_RATE_LIMIT = Treatment("registration_rate_limit", Answer.INTERNAL_ERROR)

    # Queries.
    QUERY_WITHOUT_KEYS = Treatment("query_without_keys", Answer.SILENCE)
    QUERY_LIMIT = Treatment("query_limit", Answer.SILENCE)
    NOTHING_KNOWN = Treatment("nothing_known", Answer.SILENCE)

    # Push requests, per item but for the first two.
    MESSAGE_ID_MISSING = Treatment("message_id_missing", Answer.SILENCE)
    REQUEST_EXPIRED = Treatment("request_expired", Answer.SILENCE)
    REQUEST_OVER = Treatment("request_over", Answer.SILENCE)
    REQUEST_LIMIT = Treatment("request_limit", Answer.INTERNAL_ERROR)
    WRONG_TOKEN = Treatment("wrong_token", Answer.WRONG_TOKEN)
    NOT_REGISTERED = Treatment("not_registered", Answer.NOT_REGISTERED)
    NOTIFICATION_TYPE_UNKNOWN = Treatment("notification_type_unknown", Answer.INTERNAL_ERROR)
    NOTIFICATION_TOO_LARGE = Treatment("notification_too_large", Answer.INTERNAL_ERROR)

    # Any message: answered again too often, or a fault of ours.
    REPEATED_TOO_OFTEN = Treatment("repeated_too_often", Answer.SILENCE)
    QUARANTINED = Treatment("quarantined", Answer.SILENCE)

    # Deliveries: what the platforms say through gorush. APNs throttles single devices: that says nothing of the route.
    TOKEN_UNREGISTERED = Treatment("token_unregistered", Answer.NOT_REGISTERED, token=Token.DEAD, route=Route.WORKS)
    TOKEN_REJECTED = Treatment("token_rejected", Answer.INTERNAL_ERROR, token=Token.SUSPECT, route=Route.WORKS)
    # The platform says that the token is gone, but says so of too many to be believed: the registration stands.
    TOKEN_DOUBTED = Treatment("token_doubted", Answer.INTERNAL_ERROR, route=Route.WORKS)
    PAYLOAD_TOO_LARGE = Treatment("payload_too_large", Answer.INTERNAL_ERROR, route=Route.WORKS)
    CREDENTIALS_REJECTED = Treatment("credentials_rejected", Answer.INTERNAL_ERROR, Retry.SLOWLY, route=Route.BROKEN)
    SENDER_MISMATCH = Treatment("sender_mismatch", Answer.INTERNAL_ERROR, token=Token.SUSPECT, route=Route.WORKS)
    RATE_LIMITED = Treatment("rate_limited", Answer.INTERNAL_ERROR, Retry.SLOWLY)
    PLATFORM_UNAVAILABLE = Treatment("platform_unavailable", Answer.INTERNAL_ERROR, Retry.BACKOFF, route=Route.BROKEN)
    PLATFORM_UNREACHABLE = Treatment("platform_unreachable", Answer.INTERNAL_ERROR, Retry.BACKOFF, route=Route.BROKEN)
    PLATFORM_TIMED_OUT = Treatment(
        "platform_timed_out", Answer.INTERNAL_ERROR, Retry.BACKOFF, route=Route.BROKEN, unknown=True
    )
    PLATFORM_UNCLEAR = Treatment("platform_unclear", Answer.INTERNAL_ERROR, Retry.BACKOFF)

    # Deliveries: gorush itself.
    GORUSH_UNREACHABLE = Treatment(
        "gorush_unreachable", Answer.INTERNAL_ERROR, Retry.BACKOFF, route=Route.BROKEN, of_server=True
    )
    GORUSH_TIMED_OUT = Treatment(
        "gorush_timed_out", Answer.INTERNAL_ERROR, Retry.BACKOFF, route=Route.BROKEN, unknown=True, of_server=True
    )
    GORUSH_FAILED = Treatment(
        "gorush_failed", Answer.INTERNAL_ERROR, Retry.BACKOFF, route=Route.BROKEN, unknown=True, of_server=True
    )
    GORUSH_THROTTLED = Treatment(
        "gorush_throttled", Answer.INTERNAL_ERROR, Retry.SLOWLY, route=Route.BROKEN, of_server=True
    )
    GORUSH_REFUSED = Treatment("gorush_refused", Answer.INTERNAL_ERROR)
    GORUSH_UNREADABLE = Treatment(
        "gorush_unreadable", Answer.INTERNAL_ERROR, Retry.BACKOFF, route=Route.BROKEN, unknown=True, of_server=True
    )
    GORUSH_DROPPED = Treatment(
        "gorush_dropped", Answer.INTERNAL_ERROR, Retry.SLOWLY, route=Route.BROKEN, of_server=True
    )
    LEASE_LOST = Treatment("lease_lost", Answer.INTERNAL_ERROR, Retry.BACKOFF, unknown=True)

    # Deliveries: ours.
    # The device's app is not in the settings any more: an operator has to act, and nothing is wrong with the device.
    APP_GONE = Treatment("app_gone", Answer.INTERNAL_ERROR, Retry.SLOWLY, route=Route.BROKEN, of_server=True)
    DEVICE_GONE = Treatment("device_gone", Answer.NOT_REGISTERED)
    # Muted, blocked or disabled since it was admitted; its sender never learns of it.
    UNWANTED = Treatment("unwanted", Answer.INTERNAL_ERROR)
    ATTEMPTS_EXHAUSTED = Treatment("attempts_exhausted", Answer.INTERNAL_ERROR)
    DELIVERY_EXPIRED = Treatment("delivery_expired", Answer.INTERNAL_ERROR)

    def __init__(self, treatment: Treatment) -> None:
        self.label: str = treatment.label
        self.answer: Answer = treatment.answer
        self.retry: Retry = treatment.retry
        self.token: Token = treatment.token
        self.route: Route = treatment.route
        self.unknown: bool = treatment.unknown
        self.of_server: bool = treatment.of_server


def route_state(failure: Failure | None, *, proven: bool) -> Route:
    """Return what the outcome of an attempt says about the route.

    Strangers make up devices. So a failure of a device that no push ever reached says nothing, unless it is the
    server's own; a success always does.

    Args:
        failure: None for success.
        proven: whether a push once reached the device.
    """
    if failure is None:
        return Route.WORKS
    return failure.route if proven or failure.of_server else Route.UNTOLD


_ALL = tuple(Failure)
#: What attempts at deliveries, and deliveries themselves, fail by: the end of the table.
OF_DELIVERIES = _ALL[_ALL.index(Failure.TOKEN_UNREGISTERED) :]
#: Failures by their label, as events and deliveries store them.
BY_LABEL = {failure.label: failure for failure in Failure}
