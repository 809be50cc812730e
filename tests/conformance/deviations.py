"""Where wakupush deviates from the recorded reference on purpose: the table of docs/reference/conformance.md.

A deviation holds by the name of a step and the type of message that the step sends, whatever set of vectors it is in;
two hold by what the recording shows: types of notification that the enum lacks, and a gorush that fails. Three hold in
every step, whatever else differs there.
"""

from dataclasses import dataclass

from wakupush.pb.push_notification_pb2 import PushNotification

REGISTRATION, REQUEST = "PUSH_NOTIFICATION_REGISTRATION", "PUSH_NOTIFICATION_REQUEST"


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """What differs in the outcome of a step; what is not said is as recorded, or as the specification has it."""

    #: None for one of `EVERYWHERE`.
    steps: tuple[str, ...]
    #: What the step sends.
    sends: str
    ours: str
    why: str
    #: Names of the functions in expected.py that give the answers, the notifications and the rows.
    answers: str = ""
    pushes: str = ""
    rows: str = ""


#: Holds for every request with an item of a type that the enum lacks, except 0: see `is_unknown_type`.
UNKNOWN_TYPE = Deviation(
    steps=("type_99",),
    sends=REQUEST,
    ours="nothing sent, INTERNAL_ERROR",
    why="the reference sends a mention",
    answers="internal_error_for_unknown_types",
    pushes="without_unknown_types",
)
#: Holds for every step in which gorush fails: see `gorush_trouble`.
GORUSH_FAILS = Deviation(
    steps=("gorush_answers_500", "gorush_unreachable"),
    sends=REQUEST,
    ours="success, kept and tried again",
    why="durable delivery",
    answers="recorded_or_success",
    pushes="recorded_or_asked_for",
)

NONE_TO_DISABLED = Deviation(
    steps=(),
    sends=REQUEST,
    ours="nothing sent to a device that registered with `enabled` false",
    why="so the field is described; the reference ignores it",
    pushes="without_disabled",
)
NO_TOPIC_FOR_FIREBASE = Deviation(
    steps=(),
    sends=REQUEST,
    ours="no topic for Firebase, even if the device registered with one",
    why="gorush would broadcast the notification to it",
    pushes="without_topic_for_firebase",
)
#: Holds in sets of 2024: those with no profile.txt, or with that of `status-2024`.
CONTACT_REQUEST_OF_2024 = Deviation(
    steps=(),
    sends=REQUEST,
    ours="in a set of 2024: no contact request (type 4) to a device that blocked its author",
    why="the reference knows its filters since 2026; before, it sent a mention to everybody",
    pushes="without_contact_requests_by_blocked_authors",
)
#: Hold for the notifications of every step, in this order: the last one changes what the others look at.
EVERYWHERE = (NONE_TO_DISABLED, CONTACT_REQUEST_OF_2024, NO_TOPIC_FOR_FIREBASE)

DEVIATIONS = (
    UNKNOWN_TYPE,
    Deviation(
        steps=("same_item_twice",),
        sends=REQUEST,
        ours="one push, two reports",
        why="a notification is sent once",
        pushes="distinct",
    ),
    Deviation(
        steps=("same_content_other_signer",),
        sends=REQUEST,
        ours="one push, two answers",
        why="the same notification",
        pushes="distinct",
    ),
    Deviation(
        steps=("duplicate",),
        sends=REQUEST,
        ours="two answers",
        why="a client whose first answer was lost must learn it",
        answers="one_for_each_message",
    ),
    GORUSH_FAILS,
    Deviation(
        steps=("version_uint64_max",),
        sends=REGISTRATION,
        ours="accepted (numeric(20)); its row stays",
        why="the reference overflows SQLite",
        answers="success",
        rows="as_sent",
    ),
    Deviation(
        steps=("unregister_never_registered",),
        sends=REGISTRATION,
        ours="a row {registered false, version} is kept, so register_below_unregistered_version is VERSION_MISMATCH",
        why="the specification's MUST",
        # The row follows from what holds for every successful unregister.
    ),
    Deviation(
        steps=("apn_without_topic", "token_type_3", "register_below_unregistered_version"),
        sends=REGISTRATION,
        ours="their rows, which the reference keeps, are absent in every later step",
        why="refused by the specification",
        # The answers follow from spec_expect.
        rows="none",
    ),
    Deviation(
        steps=("no_transport_signature",),
        sends=REGISTRATION,
        ours="answered; its row differs in this step only",
        why="the specification does not ask for that layer's signature",
        answers="success",
        rows="as_sent",
    ),
    NONE_TO_DISABLED,
    CONTACT_REQUEST_OF_2024,
    NO_TOPIC_FOR_FIREBASE,
)


def deviation_of(step: dict) -> Deviation | None:
    """Return what differs in a step on purpose."""
    if gorush_trouble(step) is not None:
        return GORUSH_FAILS
    if any(is_unknown_type(item) for message in step["send"] for item in items(message)):
        return UNKNOWN_TYPE
    type_names = set(map(type_of, step["send"]))
    return next((each for each in DEVIATIONS if step["name"] in each.steps and each.sends in type_names), None)


def gorush_trouble(step: dict) -> int | str | None:
    """Return the status with which gorush failed in a step, or "unreachable"; None if it worked.

    An unreachable gorush shows in the recording as an error about /api/push that the reference logged.
    """
    statuses = [post["answered_status"] for post in step["gorush_posts"] if post["answered_status"] != 200]
    if statuses:
        return statuses[0]
    return "unreachable" if any("/api/push" in line for line in step["reference_log"]) else None


def type_of(message: dict) -> str | None:
    """Return the name of the type of a message, None if it has none."""
    return (message.get("application") or {}).get("type_name")


def items(message: dict) -> list[dict]:
    """Return the items of a request that get a report; any other message has none."""
    fields = message["application"].get("fields") or {} if type_of(message) == REQUEST else {}
    return [
        item for item in fields.get("requests", ()) if item["type"] != PushNotification.UNKNOWN_PUSH_NOTIFICATION_TYPE
    ]


def is_unknown_type(item: dict) -> bool:
    """Return whether an item of a request has a type that the enum lacks."""
    return item["type"] not in PushNotification.PushNotificationType.values()
