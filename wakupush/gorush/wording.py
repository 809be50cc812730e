"""The meaning of the error texts that gorush passes on.

gorush passes on Apple's reason, Google's message or the error of Go's HTTP client, nothing else. The texts may hold
the device token: never log them. Source: docs/reference/contracts/gorush.md, section 3; Apple's and Google's public
lists of error codes.
"""

from typing import Final

from wakupush.model.failures import Failure
from wakupush.model.platforms import Platform

#: Reasons of APNs, exact.
APNS_REASONS: Final = {
    "Unregistered": Failure.TOKEN_UNREGISTERED,
    "ExpiredToken": Failure.TOKEN_UNREGISTERED,
    # A token of another app or environment, or no valid token; or a topic that the device made up.
    "BadDeviceToken": Failure.TOKEN_REJECTED,
    "DeviceTokenNotForTopic": Failure.TOKEN_REJECTED,
    "MissingDeviceToken": Failure.TOKEN_REJECTED,
    "BadPath": Failure.TOKEN_REJECTED,
    "BadTopic": Failure.TOKEN_REJECTED,
    "MissingTopic": Failure.TOKEN_REJECTED,
    "TopicDisallowed": Failure.TOKEN_REJECTED,
    "PayloadTooLarge": Failure.PAYLOAD_TOO_LARGE,
    "BadCertificate": Failure.CREDENTIALS_REJECTED,
    "BadCertificateEnvironment": Failure.CREDENTIALS_REJECTED,
    "BadEnvironmentKeyIdInToken": Failure.CREDENTIALS_REJECTED,
    "ExpiredProviderToken": Failure.CREDENTIALS_REJECTED,
    "Forbidden": Failure.CREDENTIALS_REJECTED,
    "InvalidProviderToken": Failure.CREDENTIALS_REJECTED,
    "MissingProviderToken": Failure.CREDENTIALS_REJECTED,
    "UnrelatedKeyIdInToken": Failure.CREDENTIALS_REJECTED,
    "TooManyProviderTokenUpdates": Failure.RATE_LIMITED,
    "TooManyRequests": Failure.RATE_LIMITED,
    "IdleTimeout": Failure.PLATFORM_UNAVAILABLE,
    "InternalServerError": Failure.PLATFORM_UNAVAILABLE,
    "ServiceUnavailable": Failure.PLATFORM_UNAVAILABLE,
    "Shutdown": Failure.PLATFORM_UNAVAILABLE,
    # A 5xx without a body.
    "": Failure.PLATFORM_UNAVAILABLE,
}

#: Parts of Google's messages, in lower case; the first that occurs counts.
FCM_MESSAGES: tuple[tuple[str, Failure], ...] = (
    ("requested entity was not found", Failure.TOKEN_UNREGISTERED),
    ("notregistered", Failure.TOKEN_UNREGISTERED),
    ("not a valid fcm registration token", Failure.TOKEN_REJECTED),
    ("exactly one of token", Failure.TOKEN_REJECTED),
    ("senderid mismatch", Failure.SENDER_MISMATCH),
    ("too big", Failure.PAYLOAD_TOO_LARGE),
    ("quota", Failure.RATE_LIMITED),
    # The token is of an iOS or web app in the same Firebase project; anybody can have one. Google may say the text
    # about credentials instead, which counts against a breaker only for devices that a push has reached.
    ("auth error from apns or web push", Failure.TOKEN_REJECTED),
    ("authentication credential", Failure.CREDENTIALS_REJECTED),
    ("permission", Failure.CREDENTIALS_REJECTED),
    ("internal error", Failure.PLATFORM_UNAVAILABLE),
    ("currently unavailable", Failure.PLATFORM_UNAVAILABLE),
    # FCM's other 400: a token of a strange form, or a payload that it does not take.
    ("invalid argument", Failure.TOKEN_REJECTED),
)

#: The quoted URL, which every error of a Go HTTP call contains, also inside an error of the Firebase SDK.
GO_ERROR = '"https://'
#: Parts of such errors; the first that occurs counts. These calls ended before the notification left gorush.
GO_ERRORS: tuple[tuple[str, Failure], ...] = (
    # A device token that cannot be part of a URL, a topic that cannot be part of a header.
    ('parse "https://', Failure.TOKEN_REJECTED),
    ("invalid header field value", Failure.TOKEN_REJECTED),
    # Device token and topic together are more than Apple takes.
    ("http2: request header list larger", Failure.TOKEN_REJECTED),
    ("cannot fetch token: 4", Failure.CREDENTIALS_REJECTED),
    ("cannot fetch token: 5", Failure.PLATFORM_UNAVAILABLE),
    ("cannot fetch token", Failure.PLATFORM_UNREACHABLE),
    ("dial tcp", Failure.PLATFORM_UNREACHABLE),
    ("no such host", Failure.PLATFORM_UNREACHABLE),
    ("connection refused", Failure.PLATFORM_UNREACHABLE),
    ("proxyconnect", Failure.PLATFORM_UNREACHABLE),
    ("TLS handshake", Failure.PLATFORM_UNREACHABLE),
    ("x509:", Failure.PLATFORM_UNREACHABLE),
)


def classify(platform: Platform, error: str) -> Failure:
    """Return the failure for an error text.

    Args:
        error: the ``error`` of a log entry or of the feedback webhook.

    Returns:
        `Failure.PLATFORM_UNCLEAR`, which is tried again, for a text that is not known.
    """
    if GO_ERROR in error:
        # Any other network error (a deadline, a cut connection) may have come after the push.
        return _first(GO_ERRORS, error, Failure.PLATFORM_TIMED_OUT)
    if platform is Platform.IOS:
        return APNS_REASONS.get(error, Failure.PLATFORM_UNCLEAR)
    return _first(FCM_MESSAGES, error.lower(), Failure.PLATFORM_UNCLEAR)


def _first(table: tuple[tuple[str, Failure], ...], text: str, default: Failure) -> Failure:
    return next((failure for part, failure in table if part in text), default)
