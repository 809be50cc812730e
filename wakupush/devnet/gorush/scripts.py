"""The scripted outcome of a push, which the beginning of its token decides: see `SCRIPTS` and the table.

==============  ================================================================================================
``flaky-N``     the first N attempts for this token and ``notif_id`` fail with a server error, then it is delivered; a
                hyphen in the ``notif_id`` and what follows it, which names an attempt, are ignored
``slow-MS``     takes MS milliseconds; what follows (``slow-300-dead``) is a script again
``total-``      Android: what follows (``total-flaky-1``) is a script again; if it fails, the whole notification
                does, which leaves ``logs`` empty: only the feedback webhook reports it
``malformed-``  the whole request is refused with 400, with all other notifications in it
anything else   is delivered; so is every token of 64 hex digits, which a random APNs token may be
==============  ================================================================================================
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ScriptedFailure:
    """Why one attempt failed."""

    error: str
    #: Whether gorush tries again at once, if ``max_retry`` lets it.
    retried: bool


@dataclass(frozen=True)
class Script:
    """The answers of Apple and Google to a token, as gorush passes them on (gorush.md section 3)."""

    ios: str
    android: str
    #: gorush repeats APNs' server errors only, but every error of FCM.
    ios_retried: bool = False

    def failure(self, platform: str) -> ScriptedFailure:
        """Return the failure on ``ios`` or ``android``."""
        return (
            ScriptedFailure(self.ios, self.ios_retried)
            if platform == "ios"
            else ScriptedFailure(self.android, retried=True)
        )


SERVER_ERROR = Script("InternalServerError", "Internal error encountered.", ios_retried=True)

#: By the beginning of the token.
SCRIPTS = {
    "dead": Script("Unregistered", "Requested entity was not found."),
    "bad": Script("BadDeviceToken", "The registration token is not a valid FCM registration token"),
    "expired": Script("ExpiredToken", "Requested entity was not found."),
    "topic": Script("DeviceTokenNotForTopic", "SenderId mismatch"),
    "mismatch": Script("DeviceTokenNotForTopic", "SenderId mismatch"),
    "throttled": Script("TooManyRequests", "Quota exceeded for quota metric"),
    "ise": SERVER_ERROR,
    "unavailable": Script("ServiceUnavailable", "The service is currently unavailable.", ios_retried=True),
    "empty": Script("", "Internal error encountered.", ios_retried=True),
    "credentials": Script("InvalidProviderToken", "Request had invalid authentication credentials."),
    "unreachable": Script(
        'Post "https://api.push.apple.com/3/device/": dial tcp: lookup api.push.apple.com: no such host',
        'unknown error while making an http call: Post "https://fcm.googleapis.com/v1/projects/devnet/messages:send": '
        "dial tcp: lookup fcm.googleapis.com: no such host",
    ),
}
